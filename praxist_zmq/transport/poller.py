"""One wait for everything a process listens to: links, doors and plain descriptors.

Decides nothing; it lets the shells wait without importing ZeroMQ. Source: zmq_poll(3).
"""

from __future__ import annotations

import select
from collections.abc import Hashable
from typing import Protocol, runtime_checkable

import zmq

from .context import ZSocket


@runtime_checkable
class Pollable(Protocol):
    """A door or link of this layer."""

    @property
    def sockets(self) -> tuple[ZSocket, ...]:
        """Its ZeroMQ sockets."""
        ...


@runtime_checkable
class HasFileno(Protocol):
    """A pipe, pidfd object, socket or file."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...


Item = Pollable | HasFileno | int


class Poller:
    """Waits for readability. Items are doors and links, descriptors, or things with `fileno`."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._owners: dict[Hashable, Item] = {}

    def register(self, item: Item) -> None:
        """Watch `item`; for a link also connections made and lost."""
        for handle in _handles(item):
            self._poller.register(handle, zmq.POLLIN)
            self._owners[handle] = item

    def unregister(self, item: Item) -> None:
        """Watch `item` no more. An item that is not watched is no error."""
        for handle in [handle for handle, owner in self._owners.items() if owner is item]:
            self._poller.unregister(handle)
            del self._owners[handle]
        if isinstance(item, int) and item in self._owners:
            self._poller.unregister(item)
            del self._owners[item]

    def wait(self, timeout_ms: int | None) -> set[Item]:
        """The items with something to read; empty when `timeout_ms` passed or a signal came.

        None waits for ever. A descriptor whose other end closed counts as readable.
        """
        if not self._owners and timeout_ms is not None:
            sleep_ms(timeout_ms)
            return set()
        try:
            ready = self._poller.poll(timeout_ms)
        except InterruptedError:
            return set()
        return {self._owners[handle] for handle, _ in ready}


def sleep_ms(timeout_ms: int) -> None:
    """Wait where there is nothing to watch. ZeroMQ's own poll of nothing returns at once."""
    select.poll().poll(timeout_ms)


def _handles(item: Item) -> tuple[ZSocket | int, ...]:
    if isinstance(item, int):
        return (item,)
    if isinstance(item, Pollable):
        return item.sockets
    return (item.fileno(),)
