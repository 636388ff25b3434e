"""One attempt's process life: what is reported after which facts."""

from __future__ import annotations

import itertools

from praxist_zmq.core.launch import (
    TABLE,
    Fact,
    GoGiven,
    Going,
    LeaderEnded,
    LeaderStarted,
    Life,
    Phase,
    ShimGone,
    ShimReady,
    SpawnRefused,
    Stuck,
    TreeAbsent,
    Withdrawn,
    advance,
    latest_report,
)
from praxist_zmq.protocol.evidence import ExitRecord
from praxist_zmq.protocol.process import ProcessIdentity
from praxist_zmq.protocol.reports import AttemptEnded

SHIM = ProcessIdentity(boot_id="b", pid_namespace=1, pid=10, start_ticks=5)
LEADER = ProcessIdentity(boot_id="b", pid_namespace=1, pid=11, start_ticks=6)
RECORD = ExitRecord(
    attempt="j-1.1", shim=SHIM, outcome="exited", exit_code=3, signal=None, errno=None,
    detail="", ended_at_ms=9, wall_ms=1, user_ms=0, system_ms=0, max_rss_kib=1,
)  # fmt: skip
RUNNING: list[Fact] = [ShimReady(SHIM), GoGiven(), Going(), LeaderStarted(LEADER, 8)]


def tell(*facts: Fact) -> list[str]:
    """The kinds reported, in order, as the shell would send them."""
    life, sent = Life("j-1.1"), []
    for fact in facts:
        before, life = latest_report(life), advance(life, fact)
        after = latest_report(life)
        if after is not None and after != before:
            detail = f":{after.outcome}" if isinstance(after, AttemptEnded) else ""
            sent.append(after.kind + detail)
    return sent


def test_a_plain_life() -> None:
    assert tell(*RUNNING, LeaderEnded(RECORD, drained=True), ShimGone()) == [
        "attempt_ready",
        "attempt_started",
        "attempt_ended:exited",
    ]


def test_descendants_hold_the_end_back() -> None:
    facts = [*RUNNING, LeaderEnded(RECORD, survivors=(12,))]
    assert tell(*facts)[-1] == "attempt_leader_exited"
    assert tell(*facts, ShimGone())[-1] == "attempt_leader_exited"
    assert tell(*facts, ShimGone(), TreeAbsent())[-1] == "attempt_ended:exited"


def test_a_destroyed_shim_is_never_success() -> None:
    assert tell(*RUNNING, ShimGone())[-1] == "attempt_started"
    assert tell(*RUNNING, ShimGone(), TreeAbsent())[-1] == "attempt_ended:unknown"


def test_never_ran_needs_proof() -> None:
    assert tell(ShimReady(SHIM), ShimGone())[-1] == "attempt_ended:never_ran"
    released: list[Fact] = [ShimReady(SHIM), GoGiven()]
    assert tell(*released, ShimGone(never_ran=True))[-1] == "attempt_ended:never_ran"
    assert tell(*released, ShimGone(), TreeAbsent())[-1] == "attempt_ended:unknown"
    # GO was taken: a later claim that nothing ran is not believed.
    going = [*released, Going(), ShimGone(never_ran=True), TreeAbsent()]
    assert tell(*going)[-1] == "attempt_ended:unknown"


def test_a_shim_that_never_came_is_withdrawn_and_what_cannot_be_made_is_a_failed_spawn() -> None:
    assert tell(Withdrawn("x")) == ["attempt_ended:never_ran"]
    assert tell(SpawnRefused("log_open", True, "x")) == ["spawn_failed"]


def test_survivors_of_kill_are_told_and_the_end_waits() -> None:
    facts = [*RUNNING, Stuck((11,), "still there")]
    assert tell(*facts)[-1] == "attempt_unkillable"
    ended = [*facts, LeaderEnded(RECORD, drained=True), ShimGone()]
    assert tell(*ended)[-1] == "attempt_ended:exited"


def test_no_sequence_of_facts_ends_twice_or_ends_a_running_tree() -> None:
    facts: list[Fact] = [
        ShimReady(SHIM), GoGiven(), Going(), LeaderStarted(LEADER, 8),
        LeaderEnded(RECORD, survivors=(12,)), ShimGone(), TreeAbsent(),
    ]  # fmt: skip
    for sequence in itertools.product(facts, repeat=5):
        life = Life("j-1.1")
        for index, fact in enumerate(sequence):
            life = advance(life, fact)
            if life.phase is Phase.ENDED:
                assert any(isinstance(f, ShimGone) for f in sequence[: index + 1])
                assert all(advance(life, later) == life for later in facts)
                break


def test_every_phase_but_the_last_has_a_way_on() -> None:
    assert {phase for phase, _ in TABLE} == set(Phase) - {Phase.ENDED}
