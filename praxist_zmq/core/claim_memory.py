"""Which requests were granted or denied, and which are of a lost connection: what comes late must
change nothing.

Source: design 3 (every request is safe to repeat).
"""

from __future__ import annotations

from collections import OrderedDict

from ..protocol.claims import Denied
from ..protocol.process import ProcessIdentity

Number = tuple[int, int]
"""Epoch of a broker and its registration within it."""

REQUESTS_REMEMBERED = 16_384
"""Request ids kept; a late copy is older than this many requests only after minutes."""


class GrantedRequests:
    """Request ids by broker; those of another broker are other requests."""

    def __init__(self) -> None:
        self._granted: OrderedDict[tuple[ProcessIdentity, str], None] = OrderedDict()

    def has(self, broker: ProcessIdentity, request_id: str) -> bool:
        """Whether it was granted, as far as is remembered."""
        return (broker, request_id) in self._granted

    def add(self, broker: ProcessIdentity, request_id: str) -> None:
        """It is granted."""
        self._granted[broker, request_id] = None
        if len(self._granted) > REQUESTS_REMEMBERED:
            self._granted.popitem(last=False)


class DeniedRequests:
    """Requests to hold something that were denied, by broker. Its broker plans anew, under another
    id: if a copy were granted later, that would be held for nobody."""

    def __init__(self) -> None:
        self._denied: OrderedDict[tuple[ProcessIdentity, str], Denied] = OrderedDict()

    def get(self, broker: ProcessIdentity, request_id: str) -> Denied | None:
        """How it was denied, as far as is remembered."""
        return self._denied.get((broker, request_id))

    def add(self, broker: ProcessIdentity, request_id: str, denied: Denied) -> None:
        """It is denied."""
        self._denied[broker, request_id] = denied
        if len(self._denied) > REQUESTS_REMEMBERED:
            self._denied.popitem(last=False)


class Registrations:
    """The newest registration of each run. A broker registers first of all on each connection, and
    again after a denial; then it takes back all that it asked before. So what bears a lower number
    is wanted no more, and was left, as a rule, in a connection that it lost. Its request id may
    never have been seen."""

    def __init__(self) -> None:
        self._newest: dict[str, Number] = {}

    def late(self, run_key: str, number: Number) -> Denied | None:
        """The answer to what was asked under a registration that was replaced, else None."""
        newest = self._newest.get(run_key, number)
        if number >= newest:
            return None
        told = f"epoch {number[0]}, registration {number[1]}: the run has registered since"
        return Denied(code="stale_epoch", detail=told)

    def add(self, run_key: str, number: Number) -> None:
        """It is registered."""
        self._newest[run_key] = number

    def forget(self, run_key: str) -> None:
        """It is no longer registered."""
        self._newest.pop(run_key, None)
