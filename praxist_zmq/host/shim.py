"""The shim: one small process per attempt that starts the evaluator, waits and records its end.

It runs in its own session outside the evaluator's group, is a child subreaper, and stays until no
descendant is left. It decides nothing, connects to nobody, and never needs the launcher again once
GO was taken: a channel that closes before that means "exit, nothing ran", after it means nothing.
The file in the attempt's directory is evidence, never a signal, and losing it stops nothing.

Standard library only, single-threaded: forked by the zygote, without an interpreter start. Every
page that is touched here is copied, which is most of a shim's cost: so lines are put together by
hand, descriptors are used without file objects, and `_socket` stands for `socket`, which brings
enums, a selector and a megabyte.
Sources: prctl(2) PR_SET_CHILD_SUBREAPER, posix_spawn(3), execvp(3), wait4(2).
"""

from __future__ import annotations

import _socket
import errno
import os
import struct
import time

TYPE_CHECKING = False  # typing itself would make every fork dearer
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

LENGTH = struct.Struct("<I")
UNTIL = struct.Struct("<q")
CHANNEL_FRAME_BYTES_MAX = 8 * 1024 * 1024
LAUNCH, GO = b"L", b"G"
SHELL = b"/bin/sh"
DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
EVIDENCE = "evidence.jsonl"
ROOM_BYTES = 4096
ASKING_MAX = 4096
"""As `unix_sockets.WAITING_MAX`: nobody accepts."""
MS = 1_000_000
READ = os.O_RDONLY | os.O_CLOEXEC
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SEND_FLAGS = _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL
PEEK_FLAGS = _socket.MSG_DONTWAIT | _socket.MSG_PEEK
RESET_SIGNALS = [number for number in range(1, 65) if number not in (9, 19, 32, 33)]
"""All but KILL, STOP, and the two that the C library keeps for itself."""


class Barred(Exception):
    """GO never came, was called back or came too late. Nothing ran."""


def launch_frame(command: list[bytes], cwd: bytes, environment: dict[bytes, bytes]) -> bytes:
    """What a shim needs to start the evaluator; the launcher sends it before GO.

    No part holds a NUL byte: the kernel could not take it either.
    """
    flat = [item for pair in environment.items() for item in pair]
    return frame(LAUNCH, b"\0".join([cwd, b"%d" % len(command), *command, *flat]))


def go_frame(nonce: bytes, until_ms: int) -> bytes:
    """GO, to be taken up to a CLOCK_BOOTTIME in milliseconds."""
    return frame(GO, UNTIL.pack(until_ms) + nonce)


def frame(kind: bytes, body: bytes) -> bytes:
    """One message to a shim."""
    return LENGTH.pack(len(body) + 1) + kind + body


class Shim:
    """One attempt's shim, after the fork."""

    def __init__(
        self, attempt: str, nonce: bytes, channel: _socket.socket, directory: int, log: int
    ) -> None:
        self.nonce = nonce
        self.channel = channel
        self.directory = directory
        self.log = log
        self.identity = identity_of(os.getpid())
        self.whose = b', "attempt": "%b", "shim": %b' % (attempt.encode(), self.identity)
        self.started_ns = 0
        self.file = -1
        self.evidence = b""

    # -- evidence and news; `fields` is a piece of JSON that begins with a comma

    def tell(self, kind: bytes, fields: bytes = b"") -> None:
        """One JSON line to the launcher, if it is there."""
        try:
            self.channel.send(b'{"kind": "%b"%b}\n' % (kind, fields), SEND_FLAGS)
        except OSError:
            # The launcher died: normal. Whoever comes next reads the evidence instead.
            return

    def leave(self, kind: bytes, fields: bytes = b"") -> bool:
        """Add one line to the evidence, in the room kept for it. False when that failed."""
        body = b'{"kind": "%b"%b%b}\n' % (kind, self.whose, fields)
        at = len(self.evidence)
        self.evidence += body
        try:
            if self.file < 0:
                self.create()
            else:
                os.pwrite(self.file, body, at)
        except OSError as error:
            self.lose(kind, error)
            return False
        return True

    def lose(self, kind: bytes, error: OSError) -> None:
        """Tell the launcher which line could not be left."""
        self.tell(b"evidence_lost", b', "line": "%b", "errno": %d' % (kind, error.errno or 0))

    def create(self) -> None:
        """The evidence so far in a fresh file, never through a link, with room to grow.

        The room is taken now, so that a disk that fills later loses no exit record. One file
        with a line for each step, since making a file costs more than all the writing.
        """
        self.file = os.open(EVIDENCE, CREATE, 0o600, dir_fd=self.directory)
        os.pwrite(self.file, self.evidence.ljust(ROOM_BYTES, b"\n"), 0)

    def restore(self) -> None:
        """Before the last line: if the file was changed or taken away, write it afresh."""
        try:
            named = os.stat(EVIDENCE, dir_fd=self.directory, follow_symlinks=False)
            if self.file >= 0:
                mine = os.fstat(self.file)
                if (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino):
                    os.pwrite(self.file, self.evidence.ljust(ROOM_BYTES, b"\n"), 0)
                    os.ftruncate(self.file, max(ROOM_BYTES, len(self.evidence)))
                    return
            os.unlink(EVIDENCE, dir_fd=self.directory)
        except OSError as error:
            self.lose(b"all", error)
        self.file = -1

    # -- the barrier

    def prepare(self) -> None:
        """Say that the barrier is reached."""
        self.leave(b"ready")
        self.tell(b"ready", b', "shim": %b' % self.identity)

    def wait_for_go(self) -> list[bytes]:
        """The launch data, once GO with our nonce came. Raises Barred."""
        launch = b""
        while True:
            kind, body = self.receive()
            if kind == LAUNCH:
                launch = body
            elif kind == GO and body[UNTIL.size :] == self.nonce and launch and self.holds(body):
                return launch.split(b"\0")
            else:
                raise Barred

    def holds(self, body: bytes) -> bool:
        """Whether GO is still meant: it may have lain here, or with the launcher, for long.

        The launcher calls it back by closing its side of the channel; its death does the same.
        """
        (until_ms,) = UNTIL.unpack(body[: UNTIL.size])
        if time.clock_gettime_ns(time.CLOCK_BOOTTIME) > until_ms * MS:
            return False
        try:
            return bool(self.channel.recv(1, PEEK_FLAGS))
        except BlockingIOError:
            return True

    def receive(self) -> tuple[bytes, bytes]:
        """One whole message. Raises Barred when the channel ends first."""
        (size,) = LENGTH.unpack(self.exactly(LENGTH.size))
        if not 0 < size <= CHANNEL_FRAME_BYTES_MAX:
            raise Barred
        message = self.exactly(size)
        return message[:1], message[1:]

    def exactly(self, size: int) -> bytes:
        """`size` bytes of the channel. Raises Barred when it ends first."""
        parts: list[bytes] = []
        while size:
            try:
                part = self.channel.recv(min(size, 1 << 20))
            except OSError as error:
                raise Barred from error
            if not part:
                raise Barred
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def record_go(self) -> None:
        """Leave "go", so that a death from here on is never taken for "never ran".

        Without it "ready" must not stay alone, for that claims that nothing ran. Raises Barred
        when neither can be had.
        """
        if self.leave(b"go"):
            return
        try:
            os.unlink(EVIDENCE, dir_fd=self.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Barred from error

    # -- the evaluator

    def start(self, data: list[bytes]) -> int | None:
        """Execute the evaluator in its own group. None, and told, when that cannot be done."""
        cwd, end = data[0], 2 + int(data[1])
        command = data[2:end]
        environment = dict(zip(data[end::2], data[end + 1 :: 2], strict=True))
        try:
            os.chdir(cwd)
        except OSError as error:
            self.refuse(error, "working directory", cwd)
            return None
        self.started_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        refusal: OSError | None = None
        refused = command[0]
        for program in candidates(command[0], environment.get(b"PATH", DEFAULT_PATH)):
            try:
                return self.spawn(program, command, environment)
            except OSError as error:
                if error.errno == errno.ENOEXEC and is_script(program):
                    return self.spawn(SHELL, [SHELL, program, *command[1:]], environment)
                # As execvp(3): look on, but remember that something was there and not allowed.
                if error.errno == errno.EACCES:
                    refusal, refused = error, program
                elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    self.refuse(error, "program", program)
                    return None
        missing = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        self.refuse(refusal or missing, "program", refused)
        return None

    def spawn(self, program: bytes, command: list[bytes], environment: dict[bytes, bytes]) -> int:
        """posix_spawn one candidate. Raises OSError when it is not to be executed."""
        return os.posix_spawn(
            program,
            command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, self.log, 1),
                (os.POSIX_SPAWN_DUP2, self.log, 2),
            ],
            setpgroup=0,
            setsigmask=(),
            setsigdef=RESET_SIGNALS,
        )

    def refuse(self, error: OSError, what: str, where: bytes) -> None:
        """Record and tell a permanent failure to execute."""
        shown = where[:1000].decode("utf-8", "backslashreplace")
        detail = f"{what} {shown!r}: {error.strerror or error}"
        # The path is told and not left in the file: it may hold a credential of the command's.
        kept = quoted(f"{what}: {error.strerror or error}"[:2000])
        self.record_exit(b"exec_failed", None, None, None, error.errno, quoted(detail[:2000]), kept)

    def record_exit(
        self,
        outcome: bytes,
        status: int | None,
        usage: tuple[float, float, int] | None,
        drained: bool | None,
        number: int | None = None,
        detail: bytes = b'""',
        kept: bytes = b'""',
    ) -> None:
        """Leave the exit record with `kept` and tell the launcher with `detail`, JSON strings."""
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        user, system, rss = usage or (0.0, 0.0, 0)
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        fields = (
            b', "outcome": "%b", "exit_code": %b, "signal": %b, "errno": %b,'
            b' "ended_at_ms": %d, "wall_ms": %d, "user_ms": %d, "system_ms": %d,'
            b' "max_rss_kib": %d'
        ) % (
            outcome,
            _number(code if code is not None and code >= 0 else None),
            _number(-code if code is not None and code < 0 else None),
            _number(number),
            time.time_ns() // MS,
            max(0, now - self.started_ns) // MS if self.started_ns else 0,
            int(user * 1000),
            int(system * 1000),
            rss,
        )
        self.restore()
        self.leave(b"ended", fields + b', "detail": ' + kept)
        told = fields + b', "detail": ' + detail
        self.tell(b"ended", told + (b', "drained": true' if drained else b', "drained": false'))

    def watch(self, leader: int) -> None:
        """Reap everything; record the leader's end; return when no descendant is left."""
        flags = 0
        ended: tuple[int, tuple[float, float, int]] | None = None
        while True:
            try:
                pid, status, usage = os.wait4(-1, flags)
            except ChildProcessError:
                if ended is not None:
                    self.record_exit(b"exited", ended[0], ended[1], True)
                return
            if pid == 0 and ended is not None:
                # Descendants live on: say how the leader ended now, and wait without a bound.
                self.record_exit(b"exited", ended[0], ended[1], False)
                ended, flags = None, 0
            elif pid == leader:
                ended = (status, (usage.ru_utime, usage.ru_stime, usage.ru_maxrss))
                flags = os.WNOHANG
                leader = 0  # its number is free now, and a descendant may get it


def candidates(program: bytes, path: bytes) -> Iterator[bytes]:
    """Where execvp(3) would look; places that hold nothing are passed over without a spawn."""
    if b"/" in program or not program:
        yield program
        return
    for directory in path.split(b":"):
        place = os.path.join(directory, program) if directory else b"./" + program
        try:
            os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass  # let the spawn itself tell the reason
        yield place


def is_script(program: bytes) -> bool:
    """Whether what the kernel does not execute is text for a shell, as execvp(3) takes it to be.

    An empty file or one of bytes (a program of another machine, a torn download) is not: a shell
    would end with 0 or guess.
    """
    try:
        file = os.open(program, READ)
    except OSError:
        return False
    head = os.read(file, 256)
    os.close(file)
    return bool(head.strip()) and b"\0" not in head and not head.startswith(b"\x7fELF")


def quoted(text: str) -> bytes:
    """Text without surrogates as a JSON string; json itself would double what forks copy."""
    plain = (
        letter if letter >= " " and letter not in '"\\' else f"\\u{ord(letter):04x}"
        for letter in text
    )
    return f'"{"".join(plain)}"'.encode()


def _number(value: int | None) -> bytes:
    return b"null" if value is None else b"%d" % value


def identity_of(pid: int) -> bytes:
    """The identity, as JSON, of a process that cannot go away meanwhile: we, or our child."""
    stat = os.open(b"/proc/%d/stat" % pid, READ)
    raw = os.read(stat, 1024)
    os.close(stat)
    ticks = raw[raw.rfind(b")") + 2 :].split(b" ", 20)[19]
    return b'{%b, "pid": %d, "start_ticks": %b}' % (_boot_and_namespace(), pid, ticks)


_known: list[bytes] = []


def _boot_and_namespace() -> bytes:
    """What all shims share; the zygote reads it once."""
    if not _known:
        with open("/proc/sys/kernel/random/boot_id", "rb") as source:
            boot = source.read().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
        _known.append(b'"boot_id": "%b", "pid_namespace": %d' % (boot, namespace))
    return _known[0]


def run(
    attempt: str, nonce: bytes, channel: int, directory: int, log: int, held: list[int]
) -> NoReturn:
    """Be the shim of one attempt, to the end. Called in a fresh fork; never returns."""
    os.setsid()
    for named in held:
        # Who connects to the name of a device learns from the kernel that we hold it.
        name = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, named)
        name.listen(ASKING_MAX)
        name.detach()
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, channel)
    shim = Shim(attempt, nonce, door, directory, log)
    shim.prepare()
    try:
        data = shim.wait_for_go()
        shim.record_go()
    except Barred:
        os._exit(0)
    shim.tell(b"going")
    leader = shim.start(data)  # the log stays open: its lock says that the attempt lives
    if leader is not None:
        started = b', "leader": %b, "at_ms": %d' % (identity_of(leader), time.time_ns() // MS)
        os.chdir("/")
        shim.leave(b"started", started)
        shim.tell(b"started", started)
        shim.watch(leader)
    os._exit(0)
