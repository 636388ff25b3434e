"""Sockets as this project uses them: bounded, never lingering, bound where nobody else may look.

Decides the options of every ZeroMQ socket and how an ipc path is bound. Never decides what a
message means. Sources: zmq_setsockopt(3), zmq_ipc(7), unix(7).

Two facts shape `bind_checked`: ZeroMQ's bind removes whatever lies at the path, a regular file
included, and the mode of the socket follows the umask. So the path is looked at first, and the
umask is narrowed around the bind (a chmod afterwards would leave a window).
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq

from ..errors import PraxistError
from ..protocol import limits

HANDSHAKE_MS = 1_000
BACKLOG = 4_096
THREADS = 3
"""Of ZeroMQ, the one of our doors included."""
RECONNECT_FIRST_MS = 20
RECONNECT_MAX_MS = 400
REPLY_BYTES_MAX = 64 * 1024 * 1024
"""Largest frame taken from our own side: a page of 10,000 jobs or a full batch of events."""

ZSocket = zmq.Socket[bytes]

_WRITABLE = int(zmq.POLLOUT)
_LAST = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)


@dataclass(frozen=True, slots=True)
class BoundFile:
    """A socket file as bound, so that only that very file is removed again."""

    path: Path
    device: int
    inode: int

    def remove(self) -> None:
        """Remove the file if it is still the one that was bound."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if (found.st_dev, found.st_ino) == (self.device, self.inode):
            self.path.unlink(missing_ok=True)


def open_socket(
    kind: int,
    *,
    send_messages_max: int = 1_000,
    receive_messages_max: int = 1_000,
    frame_bytes_max: int = limits.FRAME_BYTES_MAX,
) -> ZSocket:
    """A socket of the process's one context, with every limit set. Raises `no_threads`."""
    prove_threads()
    socket: ZSocket = zmq.Context.instance().socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, send_messages_max)
    socket.setsockopt(zmq.RCVHWM, receive_messages_max)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_FIRST_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    return socket


_proved: list[zmq.Context[ZSocket]] = []


def prove_threads() -> None:
    """Raise `no_threads` when the process can have none of those that the first socket needs:
    ZeroMQ ends the process then."""
    context: zmq.Context[ZSocket] = zmq.Context.instance()
    if _proved and _proved[0] is context:
        return
    over = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(THREADS):
            started.append(threading.Thread(target=over.wait, daemon=True))
            started[-1].start()
    except RuntimeError:
        started.pop()
        raise PraxistError("no_threads", f"{len(started)} of {THREADS} could be started") from None
    finally:
        over.set()
        for thread in started:
            thread.join()
    _proved[:] = [context]


def send_now(socket: ZSocket, frames: Sequence[bytes]) -> bool:
    """Hand a message over without blocking; False when there is no room or nobody connected.

    ZeroMQ may put off looking at what its I/O thread told (a connection made, room in a queue)
    and refuse a send that it could take. Reading EVENTS makes it look; so a refusal counts only
    after that. Errors other than EAGAIN are raised.
    """
    try:
        _send(socket, frames)
    except zmq.Again:
        if not int(socket.getsockopt(zmq.EVENTS)) & _WRITABLE:
            return False
    else:
        return True
    try:
        _send(socket, frames)
    except zmq.Again:
        return False
    return True


def _send(socket: ZSocket, frames: Sequence[bytes]) -> None:
    """`send_multipart` without its checks and its arithmetic on flags, half of what it costs."""
    for frame in frames[:-1]:
        socket.send(frame, _MORE)
    socket.send(frames[-1], _LAST)


def endpoint_of(path: str | os.PathLike[str]) -> str:
    """The ZeroMQ endpoint of a socket path. Raises `path_unusable` when it is too long."""
    text = os.fspath(path)
    size = len(os.fsencode(text))
    if size > limits.SOCKET_PATH_BYTES_MAX:
        raise PraxistError(
            "path_unusable",
            f"socket path {text} has {size} bytes; the kernel takes {limits.SOCKET_PATH_BYTES_MAX}",
            ["set PRAXIST_ZMQ_RUNTIME_DIR or PRAXIST_ZMQ_HOST_DIR to a shorter directory"],
        )
    return f"ipc://{text}"


def bind_checked(
    socket: ZSocket, path: str | os.PathLike[str], *, everybody: bool = False
) -> BoundFile:
    """Bind a ZeroMQ socket as `bind_guarded` does."""
    endpoint = endpoint_of(path)
    return bind_guarded(path, lambda: socket.bind(endpoint), everybody=everybody)


def bind_guarded(
    path: str | os.PathLike[str], bind: Callable[[], object], *, everybody: bool = False
) -> BoundFile:
    """`bind` to a path that only this user may reach; an old socket of ours there is replaced.

    With `everybody` all may reach it who may pass the directory.
    The caller has checked the directory (`host.runtime_dir`) and holds the lock
    that makes it the only one to bind here. Raises `unsafe_path` when something that is not our
    socket lies at the path, `path_unusable` when the bind fails.
    """
    place = Path(path)
    _refuse_strange_file(place)
    before = os.umask(0o111 if everybody else 0o177)
    try:
        bind()
    except (zmq.ZMQError, OSError) as error:
        raise PraxistError("path_unusable", f"{place} cannot be bound: {error}") from None
    finally:
        os.umask(before)
    found = os.lstat(place)
    return BoundFile(place, found.st_dev, found.st_ino)


def _refuse_strange_file(place: Path) -> None:
    try:
        found = os.lstat(place)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PraxistError("path_unusable", f"{place}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise PraxistError("unsafe_path", f"{place} exists and is not a socket; it was left alone")
    if found.st_uid != os.geteuid():
        raise PraxistError("unsafe_path", f"{place} belongs to user {found.st_uid}")
