"""What wakes the launcher: descriptors and timers, behind one epoll.

It knows no attempt; it calls back whoever watches. Source: epoll(7).
"""

from __future__ import annotations

import select
from collections.abc import Callable


class Wakeups:
    """Descriptors with the function to call when they are ready."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watches: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, react: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        """Call `react` with the event mask whenever `fd` is ready."""
        if fd in self._watches:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._watches[fd] = react

    def unwatch(self, fd: int | None) -> None:
        """Forget `fd`; before it is closed. Nothing happens when it isn't watched."""
        if fd is not None and self._watches.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def wait(self, timeout_s: float | None) -> None:
        """Wait for something and call back; `None` waits without a bound."""
        for fd, mask in self._epoll.poll(timeout_s):
            react = self._watches.get(fd)
            if react is not None:
                react(mask)

    def close(self) -> None:
        """Close the epoll descriptor."""
        self._epoll.close()
