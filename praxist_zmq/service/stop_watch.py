"""The processes of a run while its own scheduler ends them: watched, so that a stop can name them.

Only reads /proc and never signals: the launcher does, through identities of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..host import tree
from ..host.identity import identity_from, is_alive, stat_of
from ..protocol.process import ProcessIdentity


class StopWatch:
    """Evaluators, and what is below the shims around them, as they were at the beginning."""

    def __init__(self, leaders: Iterable[ProcessIdentity]) -> None:
        """An identity counts whole or not at all: what is gone, or of another namespace, names
        nobody here."""
        self.matched: set[int] = set()
        self.descendants: set[int] = set()
        self._known: dict[int, ProcessIdentity] = {}
        for leader in leaders:
            stat = stat_of(leader)
            if stat is None:
                continue
            self.matched.add(stat.pid)
            self._known[stat.pid] = leader
            for each in tree.living(tree.descendants(stat.parent if stat.parent > 1 else stat.pid)):
                self._known[each.pid] = identity_from(each)
                if each.pid != stat.pid:
                    self.descendants.add(each.pid)
        self.descendants -= self.matched

    def alive(self) -> set[int]:
        """Those that live."""
        return {pid for pid, identity in self._known.items() if is_alive(identity)}
