"""Milliseconds since 1970 as people and programs read them: RFC 3339, UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def rfc3339(at_ms: int | None) -> str | None:
    """Milliseconds since 1970 as RFC 3339 in UTC."""
    if at_ms is None:
        return None
    return timestamp(at_ms)


@lru_cache(maxsize=256)
def timestamp(at_ms: int) -> str:
    """The same for a time that is known. All of one turn have the same."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
