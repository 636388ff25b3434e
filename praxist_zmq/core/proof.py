"""What proves that nothing of an attempt lives: the one rule, for launcher, registry and stop.

Facts in (`Sighting`, which `host.remains` gathers), verdict out, with the name of the evidence that
it rests on. Nothing is freed, run again or called dead on any other ground; nothing is called alive
or unkillable that is only out of sight. The table with all situations is in docs/operations.md,
the reasons in ADR 13. It looks at nothing. Source: the design's promises 6 and 7.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..protocol.process import Sighting

State = Literal["gone", "alive", "unseen"]
LOOKS = 2
"""Empty searches that prove an end: what forked during the first is there at the second."""

EVIDENCE = {
    "never_bound": "it never came to its barrier, so nothing of it ran",
    "never_released": "it waited at its barrier and was never let go, so nothing of it ran",
    "other_boot": "the machine was restarted, and no process outlives its boot",
    "namespace_dead": "its PID namespace (a container) has ended, and every process in it",
    "nothing_found": "its shim is gone and two searches of /proc found no process of it",
    "presumed_dead": "an operator said that its processes are gone",
    "shim": "its shim lives",
    "members": "its shim is gone and processes of it live",
    "lock": "a process of it still holds the lock on its log",
    "not_searched": "its shim is gone and its processes have not been looked for yet",
    "lock_free": (
        "it ran in another PID namespace (a container); its shim is dead, since nobody holds its "
        "lock any more, but a process that sent its output elsewhere may live"
    ),
    "other_namespace": "it ran in another PID namespace (a container)",
}
"""Each name of evidence in words. The first six prove an end."""


class Verdict(NamedTuple):
    """What is known of an attempt's processes, and by which evidence."""

    state: State
    evidence: str

    @property
    def words(self) -> str:
        """The evidence in words."""
        return EVIDENCE[self.evidence]


def judge(seen: Sighting) -> Verdict:
    """Whether the whole tree is proved gone, something of it lives, or neither can be seen."""
    if not seen.same_boot:
        return Verdict("gone", "other_boot")
    if seen.namespace == "dead":
        return Verdict("gone", "namespace_dead")
    if seen.namespace == "own":
        return _judge_visible(seen)
    if seen.lock == "held":
        return Verdict("alive", "lock")
    if seen.presumed_dead:
        return Verdict("gone", "presumed_dead")
    return Verdict("unseen", "lock_free" if seen.lock == "free" else "other_namespace")


def _judge_visible(seen: Sighting) -> Verdict:
    if seen.shim_alive:
        return Verdict("alive", "shim")
    if seen.found:
        return Verdict("alive", "members")
    if seen.lock == "held":
        return Verdict("alive", "lock")
    if seen.found is None or seen.empty_looks < LOOKS:
        return Verdict("unseen", "not_searched")
    return Verdict("gone", "nothing_found")
