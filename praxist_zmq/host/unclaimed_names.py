"""Experiments of this scope that a registry finds when it starts and that no run has claimed yet.

A registry knows its rows from its ledger. Where that was removed, the runs register what they hold;
but a run that is down at that moment says nothing, and its experiments live. Their shims hold names
(`device_names`), and the kernel tells which process that is: until it has ended, or a run claims an
attempt with that shim, its device is taken. The names are looked for once, at the start: every
later shim has a row before it has a name.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from ..protocol.claims import DeviceElsewhere
from .device_names import AGAIN_MS, held_names, told
from .unix_sockets import Holder, ask, gone


@dataclass(slots=True)
class _Unclaimed:
    device: str
    holder: Holder
    connection: socket.socket | None
    """Readable once the shim is gone; None where it could not be had."""
    try_again_ms: int


class UnclaimedNames:
    """The names that were there at the start of a registry and that belong to none of its rows."""

    def __init__(
        self,
        watch: Callable[[socket.socket], None],
        unwatch: Callable[[socket.socket], None],
    ) -> None:
        """`watch` and `unwatch` say what the caller's loop is to wait for."""
        self._watch = watch
        self._unwatch = unwatch
        self._names: dict[str, _Unclaimed] = {}

    def find(self, directory: Path, now_ms: int) -> None:
        """Look for the names of the scope."""
        for name, device in held_names(directory):
            self._ask(name, device, now_ms)

    def claimed(self, shims: Callable[[], Collection[int]]) -> None:
        """Forget those that are shims of rows; hardly ever is there anything to ask for."""
        known = shims() if self._names else ()
        for name in [name for name, each in self._names.items() if each.holder.pid in known]:
            self._forget(name)

    def refresh(self, now_ms: int) -> None:
        """Forget whose shim has ended."""
        for name, each in list(self._names.items()):
            if each.connection is not None:
                if gone(each.connection, 0):
                    self._forget(name)
            elif now_ms >= each.try_again_ms:
                self._forget(name)
                self._ask(name, each.device, now_ms)

    @property
    def devices(self) -> tuple[DeviceElsewhere, ...]:
        """The devices that are taken so, each once."""
        by_device = {each.device: each for each in self._names.values()}
        return tuple(
            told(device, by_device[device].holder).model_copy(update={"unclaimed": True})
            for device in sorted(by_device)
        )

    def due_ms(self) -> int | None:
        """When to `refresh` without being woken; None when the shims' ends wake us."""
        return min(
            (e.try_again_ms for e in self._names.values() if e.connection is None), default=None
        )

    def close(self) -> None:
        """Watch nothing any more."""
        for name in list(self._names):
            self._forget(name)

    def _ask(self, name: str, device: str, now_ms: int) -> None:
        answer = ask(name)
        if answer is None:
            return  # it has ended since
        holder, connection = answer
        self._names[name] = _Unclaimed(device, holder, connection, now_ms + AGAIN_MS)
        if connection is not None:
            self._watch(connection)

    def _forget(self, name: str) -> None:
        connection = self._names.pop(name).connection
        if connection is not None:
            self._unwatch(connection)
            connection.close()
