"""A door for brokers of any user: what it keeps of all that they send and don't take has a bound.

To a peer it is the ROUTER of `transport.front`: the same frames, ids and refusals. But it owns a
ledger's process, and ZeroMQ would let a peer fill its memory (docs/adr/0014). So it speaks ZMTP
itself, keeps one message a connection and a sum a user, and closes a connection that wants more.
Decides who may connect, by user and by the rate; never reads a body.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from dataclasses import dataclass

from ..protocol import limits
from ..protocol.envelope import PREAMBLE
from . import zmtp
from .front import Incoming
from .listener import Arrival, Listener
from .stream import READ_BYTES, Wire
from .zap import ConnectionQuota, own_uid_only

PARTS_MAX = 2
CONNECTIONS_A_USER = 256
USER_BYTES_MAX = 64 * 1024 * 1024
"""Of what one user began to send, and of what one user did not take yet."""
READS_A_TURN = 16
DRAIN_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class _Peer:
    """One connection."""

    wire: Wire
    uid: int
    pid: int
    routing_id: bytes
    reader: zmtp.Reader


class BoundedDoor:
    """`everybody` lets all users in who may pass its directory, else ours alone; `mono_ms`, a clock
    in milliseconds, turns the quota of connections on. Raises PraxistError when the path is
    unsafe. `counters` says what was refused and dropped since start."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        everybody: bool = False,
        mono_ms: Callable[[], int] | None = None,
    ) -> None:
        self._uids = None if everybody else own_uid_only()
        self._mono_ms = mono_ms
        self._by_process, self._by_user = ConnectionQuota(512, 64), ConnectionQuota(8_192, 2_048)
        self._listener = Listener(path, everybody=everybody)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.socket, select.EPOLLIN)
        self._peers: dict[int, _Peer] = {}
        self._ids: dict[bytes, int] = {}
        self._connections = 0
        self.counters = dict.fromkeys(
            ("received", "sent", "connections_admitted", "connections_denied", "refused_messages",
             "dropped_slow_peer", "dropped_peer_gone"), 0,
        )  # fmt: skip

    def fileno(self) -> int:
        """Readable while there is something to `drain`."""
        return self._epoll.fileno()

    def drain(self) -> list[Incoming]:
        """Requests that came, about 16 MiB of them at most; never blocks."""
        found: list[Incoming] = []
        room = DRAIN_BYTES
        for descriptor, events in self._epoll.poll(0):
            peer = self._peers.get(descriptor)
            if peer is None:
                self._accept()
                continue
            if events & select.EPOLLOUT:
                peer.wire.flush()
            if events & ~select.EPOLLOUT and room > 0:
                requests = self._read(peer)
                room -= sum(len(request.body) for request in requests)
                found += requests
            if peer.wire.closed:
                self._forget(descriptor)
            else:
                peer.wire.watch(self._epoll)
        self.counters["received"] += len(found)
        return found

    def _read(self, peer: _Peer) -> list[Incoming]:
        found: list[Incoming] = []
        try:
            for _ in range(READS_A_TURN):
                data = peer.wire.receive()
                for parts in peer.reader.take(data):
                    if len(parts) != PARTS_MAX or parts[0] != PREAMBLE:
                        raise zmtp.Broken("no message of ours")
                    found.append(Incoming(peer.routing_id, peer.uid, peer.pid, parts[1]))
                if peer.reader.answer:
                    peer.wire.write(bytes(peer.reader.answer))
                    peer.reader.answer.clear()
                if len(data) < READ_BYTES:
                    break
            if peer.reader.kept and self._kept(peer.uid) > USER_BYTES_MAX:
                raise zmtp.Broken("more than a user may leave unfinished")
        except zmtp.Broken:
            self.counters["refused_messages"] += 1
            peer.wire.closed = True
        return found

    def _kept(self, uid: int) -> int:
        return sum(peer.reader.kept for peer in self._peers.values() if peer.uid == uid)

    def _accept(self) -> None:
        newcomer = self._listener.accept()
        if newcomer is None:
            return
        if not self._may_come_in(newcomer):
            self.counters["connections_denied"] += 1
            newcomer.connection.close()
            return
        self.counters["connections_admitted"] += 1
        self._connections += 1
        reader = zmtp.Reader(PARTS_MAX, limits.FRAME_BYTES_MAX)
        routing_id = b"%d" % self._connections
        wire = Wire(newcomer.connection)
        self._peers[wire.fileno()] = _Peer(wire, newcomer.uid, newcomer.pid, routing_id, reader)
        self._ids[routing_id] = wire.fileno()
        wire.write(bytes(reader.answer))
        reader.answer.clear()
        wire.watch(self._epoll)

    def _may_come_in(self, newcomer: Arrival) -> bool:
        if self._uids is not None and newcomer.uid not in self._uids:
            return False
        if self._mono_ms is not None:
            now_ms = self._mono_ms()
            if not self._by_user.allow(newcomer.uid, now_ms):
                return False
            if newcomer.pid and not self._by_process.allow(newcomer.pid, now_ms):
                return False
        theirs = [d for d, peer in self._peers.items() if peer.uid == newcomer.uid]
        if len(theirs) < CONNECTIONS_A_USER:
            return True
        # The eldest that never finished its handshake gives way.
        silent = next((d for d in theirs if not self._peers[d].reader.ready), None)
        if silent is not None:
            self._forget(silent)
        return silent is not None

    def _forget(self, descriptor: int) -> None:
        peer = self._peers.pop(descriptor)
        del self._ids[peer.routing_id]
        self._epoll.unregister(descriptor)
        peer.wire.close()

    def send(self, routing_id: bytes, body: bytes) -> bool:
        """Hand a reply to a peer; False when it is gone or does not read. Never blocks."""
        peer = self._peers.get(self._ids.get(routing_id, -1))
        if peer is None or peer.wire.closed:
            self.counters["dropped_peer_gone"] += 1
            return False
        waiting = sum(p.wire.waiting for p in self._peers.values() if p.uid == peer.uid)
        sent = waiting + len(body) <= USER_BYTES_MAX
        sent = sent and peer.wire.write(zmtp.message((PREAMBLE, body)))
        peer.wire.watch(self._epoll)
        self.counters["sent" if sent else "dropped_slow_peer"] += 1
        return sent

    def close(self) -> None:
        """Close all, remove the socket file."""
        for descriptor in list(self._peers):
            self._forget(descriptor)
        self._epoll.close()
        self._listener.close()
