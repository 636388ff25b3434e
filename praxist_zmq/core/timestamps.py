"""Milliseconds since 1970 as people and programs read them (RFC 3339, UTC), and lengths of time."""

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


def span_words(milliseconds: int) -> str:
    """A length of time for people: `64 s`, `14m`, `3h05m`."""
    seconds = max(0, milliseconds) // 1000
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"
