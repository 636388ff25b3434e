"""Learns from the kernel that processes ended: one pidfd each, no scan, no polling.

Proves only what it can: a process of another boot is gone; one of another pid namespace of this
boot cannot be judged from here and is never reported. It never signals. Source: pidfd_open(2).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from ..protocol.process import ProcessIdentity
from .identity import boot_id, open_pidfd, visible

KeyT = TypeVar("KeyT", bound=Hashable)


class ProcessWatch(Generic[KeyT]):
    """Processes by key. `opened` and `closing` tell the poller's owner about descriptors.

    Each end is told once, by `update` for a process that is gone already, else by `ended`.
    """

    def __init__(self, opened: Callable[[int], None], closing: Callable[[int], None]) -> None:
        self._opened = opened
        self._closing = closing
        self._descriptors: dict[KeyT, int | None] = {}
        self._keys: dict[int, KeyT] = {}
        self.unjudged: set[KeyT] = set()
        """Keys whose process lives in another pid namespace: only a message can end them."""

    def update(self, wanted: Mapping[KeyT, ProcessIdentity]) -> list[KeyT]:
        """Watch exactly these. Returns the new ones whose process is gone already.

        Raises OSError when the kernel gives no descriptor.
        """
        for key in self._descriptors.keys() - wanted.keys():
            self._close(key)
            del self._descriptors[key]
            self.unjudged.discard(key)
        gone = []
        for key in wanted.keys() - self._descriptors.keys():
            identity = wanted[key]
            descriptor = None
            if identity.boot_id == boot_id() and not visible(identity):
                self.unjudged.add(key)
            else:
                descriptor = open_pidfd(identity)
                if descriptor is None:
                    gone.append(key)
            self._descriptors[key] = descriptor
            if descriptor is not None:
                self._keys[descriptor] = key
                self._opened(descriptor)
        return gone

    def ended(self, readable: Iterable[object]) -> list[KeyT]:
        """The keys of those descriptors in `readable` that are ours."""
        found = [
            self._keys[item] for item in readable if isinstance(item, int) and item in self._keys
        ]
        for key in found:
            self._close(key)
        return found

    def close(self) -> None:
        """Watch nothing any more."""
        self.update({})

    def _close(self, key: KeyT) -> None:
        descriptor = self._descriptors[key]
        if descriptor is None:
            return
        self._descriptors[key] = None
        del self._keys[descriptor]
        self._closing(descriptor)
        os.close(descriptor)
