"""Whether the broker sleeps at once after an answer, or looks for what comes next.

A peer that was answered often asks again at once: the next submission of a series, the wait after
it. A process that has fallen asleep by then is woken late and runs slowly at first; looking on for
a few hundred microseconds spares that. Only for a lone peer, and only while the run is at rest:
where many ask, or experiments start and end, others need the processor more (docs/adr/0010).
"""

from __future__ import annotations

from ..host.give_way import give_way
from ..transport.poller import Item, Poller

LOOKS = 40
"""Each takes about 10 us; whoever is ready to run comes before it."""
REST_MS = 20
"""So long after the last message to the launcher or the registry the run counts as at rest."""


class Attention:
    """Whether one alone was answered just now, and when the run was last busy."""

    def __init__(self) -> None:
        self._alone = False
        self._busy_at_ms = 0

    def answered(self, number: int) -> None:
        """So many outside were answered in this turn."""
        self._alone = number == 1

    def busy(self, now_ms: int) -> None:
        """Something was started, ended or asked for; CLOCK_BOOTTIME milliseconds."""
        self._busy_at_ms = now_ms

    def look_on(self, poller: Poller, now_ms: int) -> set[Item]:
        """What came while we looked; empty when nothing did, or there was no reason to look."""
        alone, self._alone = self._alone, False
        if not alone or now_ms - self._busy_at_ms < REST_MS:
            return set()
        for _ in range(LOOKS):
            if ready := poller.wait(0):
                return ready
            give_way()
        return set()
