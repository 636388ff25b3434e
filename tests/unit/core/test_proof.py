"""What proves an attempt gone: every situation, by every combination of facts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from praxist_zmq.core.proof import EVIDENCE, judge
from praxist_zmq.protocol.process import Sighting

OWN: dict[str, Any] = {"same_boot": True, "namespace": "own"}
OTHER: dict[str, Any] = {"same_boot": True, "namespace": "other"}


@pytest.mark.parametrize(
    ("facts", "state", "evidence"),
    [
        ({"same_boot": False, "namespace": "other"}, "gone", "other_boot"),
        ({"same_boot": True, "namespace": "dead"}, "gone", "namespace_dead"),
        ({**OWN, "shim_alive": True}, "alive", "shim"),
        ({**OWN, "found": 2}, "alive", "members"),
        ({**OWN, "found": 0, "empty_looks": 2, "lock": "held"}, "alive", "lock"),
        ({**OWN}, "unseen", "not_searched"),
        ({**OWN, "found": 0, "empty_looks": 1}, "unseen", "not_searched"),
        ({**OWN, "found": 0, "empty_looks": 2, "lock": "free"}, "gone", "nothing_found"),
        ({**OWN, "found": 0, "empty_looks": 2}, "gone", "nothing_found"),
        ({**OTHER}, "unseen", "other_namespace"),
        ({**OTHER, "lock": "free"}, "unseen", "lock_free"),
        ({**OTHER, "lock": "held"}, "alive", "lock"),
        ({**OTHER, "lock": "free", "presumed_dead": True}, "gone", "presumed_dead"),
        ({**OTHER, "lock": "held", "presumed_dead": True}, "alive", "lock"),
        ({**OWN, "found": 1, "presumed_dead": True}, "alive", "members"),
    ],
)
def test_each_situation(facts: dict[str, Any], state: str, evidence: str) -> None:
    assert judge(Sighting(**facts)) == (state, evidence)


def test_what_is_seen_alive_is_never_gone_and_what_is_hidden_is_neither() -> None:
    values = itertools.product(
        (True, False), ("own", "dead", "other"), (True, False), ("held", "free", "unknown"),
        (None, 0, 1), (0, 1, 2), (True, False),
    )  # fmt: skip
    for one in values:
        seen = Sighting(*one)  # type: ignore[arg-type]
        state, evidence = judge(seen)
        assert evidence in EVIDENCE
        over = not seen.same_boot or seen.namespace == "dead"
        if over:
            assert state == "gone"
        elif seen.lock == "held" or (seen.namespace == "own" and (seen.shim_alive or seen.found)):
            assert state == "alive"
        elif seen.namespace == "other":
            assert state == ("gone" if seen.presumed_dead else "unseen")
        else:
            assert (state == "gone") == (seen.found == 0 and seen.empty_looks >= 2)
