"""The shim: one small process per attempt that starts the evaluator, waits and records its end.

It runs in its own session outside the evaluator's group, is a child subreaper, and stays until no
descendant is left. It decides nothing, opens no socket, and never needs the launcher again once
GO was given: a channel that closes before GO means "exit, nothing ran", after GO it means nothing.
The file in the attempt's directory is evidence, never a signal, and losing it stops nothing.

Standard library only, single-threaded: forked by the zygote, without an interpreter start.
Sources: prctl(2) PR_SET_CHILD_SUBREAPER, posix_spawn(3), execvp(3), wait4(2).
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import struct
import time

TYPE_CHECKING = False  # typing itself would make every fork dearer
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

LENGTH = struct.Struct("<I")
CHANNEL_FRAME_BYTES_MAX = 8 * 1024 * 1024
LAUNCH, GO = b"L", b"G"
DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
EVIDENCE = "evidence.jsonl"
ROOM_BYTES = 4096
MS = 1_000_000
RESET_SIGNALS = sorted(
    int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
)


class Barred(Exception):
    """GO never came: the channel closed or carried a wrong nonce. Nothing ran."""


def pack(parts: list[bytes]) -> bytes:
    """Byte strings behind their lengths."""
    return b"".join(LENGTH.pack(len(part)) + part for part in parts)


def unpack(block: bytes) -> Iterator[bytes]:
    """The byte strings of `pack`."""
    at = 0
    while at < len(block):
        (size,) = LENGTH.unpack_from(block, at)
        at += LENGTH.size
        yield block[at : at + size]
        at += size


def launch_frame(command: list[bytes], cwd: bytes, environment: dict[bytes, bytes]) -> bytes:
    """What a shim needs to start the evaluator; the launcher sends it before GO."""
    flat = [item for pair in environment.items() for item in pair]
    return frame(LAUNCH, pack([cwd, str(len(command)).encode(), *command, *flat]))


def frame(kind: bytes, body: bytes) -> bytes:
    """One message to a shim."""
    return LENGTH.pack(len(body) + 1) + kind + body


class Shim:
    """One attempt's shim, after the fork."""

    def __init__(
        self, attempt: str, nonce: bytes, channel: socket.socket, directory: int, log: int
    ) -> None:
        self.attempt = attempt
        self.nonce = nonce
        self.channel = channel
        self.directory = directory
        self.log = log
        self.identity = identity_of(os.getpid())
        self.started_ns = 0
        self.file = -1
        self.evidence = bytearray()

    # -- evidence and news

    def tell(self, kind: str, **fields: object) -> None:
        """One JSON line to the launcher, if it is there."""
        line = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        try:
            self.channel.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            # The launcher died: normal. Whoever comes next reads the evidence instead.
            return

    def leave(self, kind: str, **fields: object) -> bool:
        """Add one line to the evidence, in the room kept for it. False when that failed."""
        line = {"kind": kind, "attempt": self.attempt, "shim": self.identity, **fields}
        body = json.dumps(line).encode() + b"\n"
        self.evidence += body
        try:
            if self.file < 0:
                self.create()
            else:
                os.pwrite(self.file, body, len(self.evidence) - len(body))
        except OSError as error:
            self.tell("evidence_lost", line=kind, errno=error.errno)
            return False
        return True

    def create(self) -> None:
        """The evidence so far in a fresh file, never through a link, with room to grow.

        The room is taken now, so that a disk that fills later loses no exit record. One file
        with a line for each step, since making a file costs more than all the writing.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.file = os.open(EVIDENCE, flags, 0o600, dir_fd=self.directory)
        os.pwrite(self.file, bytes(self.evidence).ljust(ROOM_BYTES, b"\n"), 0)

    def restore(self) -> None:
        """Before the last line: if the file was changed or taken away, write it afresh."""
        try:
            named = os.stat(EVIDENCE, dir_fd=self.directory, follow_symlinks=False)
            if self.file >= 0:
                mine = os.fstat(self.file)
                if (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino):
                    os.pwrite(self.file, bytes(self.evidence).ljust(ROOM_BYTES, b"\n"), 0)
                    os.ftruncate(self.file, max(ROOM_BYTES, len(self.evidence)))
                    return
            os.unlink(EVIDENCE, dir_fd=self.directory)
        except OSError as error:
            self.tell("evidence_lost", line="all", errno=error.errno)
        self.file = -1

    # -- the barrier

    def prepare(self) -> None:
        """Say that the barrier is reached."""
        self.leave("ready")
        self.tell("ready", shim=self.identity)

    def wait_for_go(self) -> Iterator[bytes]:
        """The launch data, once GO with our nonce came. Raises Barred."""
        launch = b""
        while True:
            kind, body = self.receive()
            if kind == LAUNCH:
                launch = body
            elif kind == GO and body == self.nonce and launch:
                return unpack(launch)
            else:
                raise Barred

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
        if self.leave("go"):
            return
        try:
            os.unlink(EVIDENCE, dir_fd=self.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Barred from error

    # -- the evaluator

    def start(self, data: Iterator[bytes]) -> int | None:
        """Execute the evaluator in its own group. None, and told, when that cannot be done."""
        cwd = next(data)
        command = [next(data) for _ in range(int(next(data)))]
        rest = list(data)
        environment = dict(zip(rest[::2], rest[1::2], strict=True))
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
        self.record_exit("exec_failed", None, None, None, error.errno, detail[:2000])

    def record_exit(
        self,
        outcome: str,
        status: int | None,
        usage: tuple[float, float, int] | None,
        drained: bool | None,
        number: int | None = None,
        detail: str = "",
    ) -> None:
        """Leave the exit record and tell the launcher."""
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        user, system, rss = usage or (0.0, 0.0, 0)
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        fields = {
            "outcome": outcome,
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "errno": number,
            "detail": detail,
            "ended_at_ms": time.time_ns() // MS,
            "wall_ms": max(0, now - self.started_ns) // MS if self.started_ns else 0,
            "user_ms": int(user * 1000),
            "system_ms": int(system * 1000),
            "max_rss_kib": rss,
        }
        self.restore()
        self.leave("ended", **fields)
        fields["drained"] = drained
        self.tell("ended", **fields)

    def watch(self, leader: int) -> None:
        """Reap everything; record the leader's end; return when no descendant is left."""
        flags = 0
        ended: tuple[int, tuple[float, float, int]] | None = None
        while True:
            try:
                pid, status, usage = os.wait4(-1, flags)
            except ChildProcessError:
                if ended is not None:
                    self.record_exit("exited", ended[0], ended[1], True)
                return
            if pid == 0 and ended is not None:
                # Descendants live on: say how the leader ended now, and wait without a bound.
                self.record_exit("exited", ended[0], ended[1], False)
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


def identity_of(pid: int) -> dict[str, object]:
    """The identity of a process that cannot go away meanwhile (ourselves, or our child)."""
    with open(f"/proc/{pid}/stat", "rb") as source:
        raw = source.read(4096)
    return {
        "boot_id": _boot(),
        "pid_namespace": _namespace(),
        "pid": pid,
        "start_ticks": int(raw[raw.rfind(b")") + 2 :].split()[19]),
    }


_known: dict[str, object] = {}


def _boot() -> object:
    if "boot" not in _known:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
            _known["boot"] = source.read().strip()
    return _known["boot"]


def _namespace() -> object:
    if "namespace" not in _known:
        _known["namespace"] = os.stat("/proc/self/ns/pid").st_ino
    return _known["namespace"]


def run(attempt: str, nonce: bytes, channel: int, directory: int, log: int) -> NoReturn:
    """Be the shim of one attempt, to the end. Called in a fresh fork; never returns."""
    os.setsid()
    shim = Shim(attempt, nonce, socket.socket(fileno=channel), directory, log)
    shim.prepare()
    try:
        data = shim.wait_for_go()
        shim.record_go()
    except Barred:
        os._exit(0)
    shim.tell("going")
    leader = shim.start(data)
    os.close(log)
    if leader is not None:
        identity = identity_of(leader)
        at_ms = time.time_ns() // MS
        os.chdir("/")
        shim.leave("started", leader=identity, at_ms=at_ms)
        shim.tell("started", leader=identity, at_ms=at_ms)
        shim.watch(leader)
    os._exit(0)
