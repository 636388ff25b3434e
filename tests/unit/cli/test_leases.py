"""`lease` and `leases`: what they say, in every form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from praxist_zmq.cli.lease import lease_lines
from praxist_zmq.cli.status_words import stats_line, supply_words
from praxist_zmq.cli.submission import LEASE_VARIABLE
from tests.unit.cli.conftest import Outcome
from tests.unit.cli.fake_scheduler import FakeScheduler, submitted, view

Call = Callable[..., Outcome]

LEASE: dict[str, Any] = {
    "lease_id": "supply-7-1e1e1e1e1e1e1e1e", "peer": "gen3_peer5", "generation": 3,
    "priority": "mature", "profiles": ["cpu_ordinary"], "state": "out", "reason": None,
    "detail": None, "job": None, "issued_at": "2026-01-01T00:00:00.000Z",
    "expires_at": "2026-01-01T00:10:00.000Z", "left_s": 372.0, "release_pending": False,
    "cooling_s": None,
}  # fmt: skip
STATS: dict[str, Any] = {
    "granted": 9, "consumed": 6, "declined": 2, "expired": 0, "revoked": 0, "outstanding": 1,
    "conversion_rate": 0.667, "stale_submission": 0, "reuse_ignored": 2, "by_priority": {},
}  # fmt: skip


def test_a_lease_says_what_it_is_for_and_what_to_do_next() -> None:
    lines = lease_lines(LEASE)
    assert lines[0].startswith("supply-7-1e1e1e1e1e1e1e1e  mature  for gen3_peer5  6m12s left")
    assert "class mature; or decline" in lines[2]
    assert "--lease supply-7-1e1e1e1e1e1e1e1e --work-class mature" in lines[3]
    other = lease_lines({**LEASE, "priority": "frontier_followup"})
    assert not any("mature" in line for line in other)


def test_the_counts_in_one_line() -> None:
    assert stats_line(STATS) == (
        "granted 9  consumed 6  declined 2  expired 0  revoked 0  out 1   conversion 0.67"
        "   reuse_ignored 2"
    )
    assert supply_words({"resource_supply": {"idle_waiters": 0, "stats": {"granted": 0}}}) is None
    told = supply_words({"resource_supply": {"idle_waiters": 2, "stats": STATS}})
    assert told is not None
    assert told.startswith("2 idle peers   granted 9")


def test_leases_as_a_table_and_as_a_document(call: Call, scheduler: FakeScheduler) -> None:
    ended = {**LEASE, "state": "declined", "reason": "session_ended_without_submission"}
    ended |= {"detail": "all planned", "cooling_s": 60.0, "left_s": None}
    scheduler.answers["list_leases"] = {
        "kind": "leases", "leases": [LEASE, ended], "idle": ["p1"], "stats": STATS,
    }  # fmt: skip
    told = call("leases", "-o", "plain").out
    assert "supply-7-1e1e1e1e1e1e1e1e" in told
    assert "cooling 1m00s" in told
    assert "idle: p1" in call("leases", "-o", "table").out
    document = call("leases", "--json").document
    assert document["kind"] == "leases"
    assert document["leases"][1]["detail"] == "all planned"


def test_show_and_decline(call: Call, scheduler: FakeScheduler) -> None:
    reply = {
        "kind": "lease",
        "peer": "p",
        "lease": None,
        "waiting": True,
        "epoch": 1,
        "sequence": 0,
    }
    scheduler.answers["get_lease"] = reply
    assert call("lease", "show", "--peer", "p").out == "p has no lease; it is idle and waits\n"
    assert call("lease", "show", "--peer", "p", "--json").document["lease"] is None
    last = {**LEASE, "state": "revoked", "reason": "generation_frozen"}
    scheduler.answers["get_lease"] = {**reply, "waiting": False, "last": last, "cooling_s": 41.0}
    assert call("lease", "show", "--peer", "p").out.splitlines() == [
        "p has no lease; it is not registered as idle",
        "  last      supply-7-1e1e1e1e1e1e1e1e revoked: generation frozen",
        "  cooling   it declined; for 41s it is offered less",
        "  next      praxist-zmq lease wait --peer p",
    ]
    ended = {**LEASE, "state": "declined", "cooling_s": 120.0}
    scheduler.answers["decline_lease"] = {"kind": "lease_declined", "lease": ended}
    told = call("lease", "decline", "--peer", "p")
    assert told.out.endswith("declined; nothing mature is offered for 2m00s\n")


@pytest.mark.parametrize("text", ["", "x" * 200, "a\nb"])
def test_a_locator_that_can_be_none_is_left_out(
    call: Call, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(LEASE_VARIABLE, text)
    call("submit", "--peer", "p", "--tag", "t", "--", "true")
    (sent,) = [r for r in scheduler.requests if r["kind"] == "submit_job"]
    assert sent["lease_id"] is None


def test_a_lease_that_is_worth_nothing_is_noted(call: Call, scheduler: FakeScheduler) -> None:
    note = "lease supply-1 is unknown; taken without it"
    scheduler.answers["submit_job"] = {**submitted(view()), "notes": [note]}
    words = ("--peer", "p", "--tag", "t", "--lease", "supply-1", "--", "true")
    assert f"  note  {note}\n" in call("submit", *words).err
    assert call("submit", "--json", *words).document["notes"] == [note]
    scheduler.answers["submit_job"] = submitted(view())
    told = call("submit", "--peer", "p", "--tag", "t", "--lease", "a\nb", "--", "true").err
    assert "--lease a\\x0ab can be no lease; taken without it" in told
