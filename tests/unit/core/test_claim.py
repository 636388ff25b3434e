"""The claim registry's rules, one story a test."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core.claim import ORPHAN_GRACE_MS, ClaimMachine
from praxist_zmq.core.claim_admit import ROWS_MAX, RUNS_MAX
from praxist_zmq.core.claim_commands import BrokerUnreachable, RegistryStarted
from praxist_zmq.core.claim_invariants import history_violations, state_violations
from praxist_zmq.core.claim_view import PUSH_AGAIN_MS
from praxist_zmq.core.decision import Undecodable
from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.claims import (
    AllocationRow,
    Bind,
    ClaimReleased,
    Denied,
    DeregisterRun,
    Granted,
    HostView,
    Registered,
    RegisterRun,
    Release,
    ReportLoad,
    Reserve,
    RunDeregistered,
    ViewHost,
)
from praxist_zmq.protocol.codec import adapter, encode
from tests.support.claim_desk import A, Desk
from tests.support.claims import (
    BOOT,
    exclusive,
    process,
    reserve,
    run_key,
    run_row,
    shared,
    stamp,
)


@pytest.fixture
def desk() -> Any:
    desk = Desk()
    assert isinstance(desk.register("a"), Registered)
    assert isinstance(desk.register("b"), Registered)
    yield desk
    desk.check()


def test_exclusive_device_has_one_holder(desk: Desk) -> None:
    assert desk.ask(reserve("a", "j-1.1", exclusive("gpu0"))) == Granted(
        attempt="j-1.1", view_version=3
    )
    denied = desk.ask(reserve("b", "j-1.1", exclusive("gpu0")))
    assert isinstance(denied, Denied)
    assert denied.code == "conflict"
    assert denied.view is not None
    assert denied.view.allocations[0].run_key == A
    assert isinstance(desk.ask(reserve("b", "j-1.1", shared("gpu0"))), Denied)
    assert isinstance(desk.ask(reserve("b", "j-1.1", exclusive("gpu1"))), Granted)


def test_exclusive_needs_an_empty_device_also_within_a_run(desk: Desk) -> None:
    assert isinstance(desk.ask(reserve("a", "j-1.1", shared("gpu0"))), Granted)
    assert isinstance(desk.ask(reserve("a", "j-2.1", exclusive("gpu1", "gpu0"))), Denied)
    assert isinstance(desk.ask(reserve("a", "j-3.1", exclusive("gpu1"))), Granted)


def test_known_demand_shares_and_unknown_demand_is_exclusive(desk: Desk) -> None:
    assert isinstance(desk.ask(reserve("a", "j-1.1", shared("gpu0"))), Granted)
    assert isinstance(desk.ask(reserve("b", "j-1.1", shared("gpu0"))), Granted)
    assert isinstance(desk.ask(reserve("b", "j-2.1", shared("gpu0", memory_mib=None))), Denied)
    assert isinstance(desk.ask(reserve("b", "j-3.1", shared("gpu1", memory_mib=None))), Granted)
    assert isinstance(desk.ask(reserve("a", "j-2.1", shared("gpu1"))), Denied)


def test_an_attempt_without_devices_holds_a_row_and_hinders_nobody(desk: Desk) -> None:
    assert isinstance(desk.ask(reserve("a", "j-1.1", exclusive())), Granted)
    assert isinstance(desk.ask(reserve("b", "j-1.1", exclusive())), Granted)


def test_a_device_named_twice_is_refused(desk: Desk) -> None:
    denied = desk.ask(reserve("a", "j-1.1", exclusive("gpu0", "gpu0")))
    assert denied.code == "malformed_request"


def test_every_request_may_be_sent_again(desk: Desk) -> None:
    requests = [
        RegisterRun(registration=1, run=run_row("a"), attempts=()),
        reserve("a", "j-1.1", exclusive("gpu0")),
        Bind(registration=1, run_key=A, epoch=1, attempt="j-1.1", shim=process(900)),
        Release(registration=1, run_key=A, epoch=1, attempt="j-1.1"),
    ]
    for request in requests:
        first = desk.ask(request, "the-same-id")
        told = len(desk.history)
        assert desk.ask(request, "the-same-id") == first
        assert desk.ask(request, "another-id-1") == first
        assert len(desk.history) == told


def test_another_envelope_or_shim_for_the_same_attempt_is_a_conflict(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    assert desk.ask(reserve("a", "j-1.1", exclusive("gpu1"))).code == "conflict"
    assert isinstance(desk.bind("j-1.1"), Granted)
    assert desk.bind("j-1.1", pid=901).code == "conflict"
    assert desk.bind("j-9.1").code == "conflict"


def test_a_run_must_be_registered_and_current(desk: Desk) -> None:
    assert desk.ask(reserve("c", "j-1.1", exclusive("gpu0"))).code == "unknown_run"
    assert desk.ask(reserve("a", "j-1.1", exclusive("gpu0"), epoch=2)).code == "unknown_run"
    desk.register("a", epoch=3)
    for request in (
        reserve("a", "j-1.1", exclusive("gpu0"), epoch=2),
        Release(registration=1, run_key=A, epoch=2, attempt="j-1.1"),
        Bind(registration=1, run_key=A, epoch=2, attempt="j-1.1", shim=process(900)),
        DeregisterRun(registration=1, run_key=A, epoch=2),
        ReportLoad(registration=1, run_key=A, epoch=2, running=0, queued=0, limit=1),
        RegisterRun(registration=1, run=run_row("a", epoch=2), attempts=()),
    ):
        assert desk.ask(request).code == "stale_epoch"
    assert desk.held() == set()


def test_new_broker_keeps_listed_rows_and_releases_unbound_others(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.ask(reserve("a", "j-2.1", exclusive("gpu1")))
    registered = desk.register("a", epoch=2, attempts=("j-1.1", "j-7.1"))
    assert {row.attempt for row in registered.view.allocations} == {"j-1.1"}
    assert desk.history[-1].reason == "not_claimed_by_run"


def test_unlisted_bound_row_waits_for_its_shim(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    desk.register("a", epoch=2)
    assert desk.held() == {(A, "j-1.1")}
    assert isinstance(desk.ask(reserve("b", "j-1.1", exclusive("gpu0"))), Denied)
    assert [event.reason for event in desk.shim_gone("j-1.1")] == ["proved_absent"]
    assert isinstance(desk.ask(reserve("b", "j-1.1", exclusive("gpu0"))), Granted)


def test_a_run_made_anew_cannot_touch_what_it_did_not_list(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    desk.register("a", epoch=2)
    assert desk.ask(reserve("a", "j-1.1", exclusive("gpu0"), epoch=2)).code == "conflict"
    assert isinstance(desk.release("j-1.1", epoch=2), Granted)
    assert desk.held() == {(A, "j-1.1")}


def test_nor_after_the_registry_was_killed_and_forgot_what_was_listed(desk: Desk) -> None:
    """Else it would end the hold as its own while the earlier experiment still runs."""
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    desk.register("a", epoch=2)
    desk.machine = ClaimMachine(desk.machine.snapshot())
    desk.fact(RegistryStarted(BOOT))
    assert desk.ask(reserve("a", "j-1.1", exclusive("gpu0"), epoch=2)).code == "conflict"
    desk.register("a", epoch=3, attempts=("j-1.1",))
    again = desk.ask(reserve("a", "j-1.1", exclusive("gpu0"), epoch=3))
    assert isinstance(again, Granted), "the run that listed it may ask for it again"


def test_request_ids_of_another_broker_are_other_requests(desk: Desk) -> None:
    desk.ask(RegisterRun(registration=1, run=run_row("a", 2), attempts=()), "register-1")
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0"), epoch=2), "reserve-1")
    again = desk.ask(RegisterRun(registration=1, run=run_row("a", 3), attempts=()), "register-1")
    assert isinstance(again, Registered)
    assert desk.held() == set()
    assert isinstance(
        desk.ask(reserve("a", "j-1.1", exclusive("gpu0"), epoch=3), "reserve-1"), Granted
    )


def test_unlisted_bound_row_of_an_absent_shim_ends_at_once(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    assert desk.shim_gone("j-1.1") == [], "a live broker decides about its own attempt"
    desk.register("a", epoch=2)
    assert desk.held() == set()


def test_dead_run_keeps_what_lives(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    assert isinstance(desk.broker_gone()[0], RunDeregistered)
    desk.settle(0)
    desk.settle(10 * ORPHAN_GRACE_MS)
    assert desk.held() == {(A, "j-1.1")}
    assert desk.shim_gone("j-1.1", pid=901) == [], "another process's absence proves nothing"
    assert isinstance(desk.shim_gone("j-1.1")[0], ClaimReleased)


def test_shim_first_then_broker(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    assert desk.shim_gone("j-1.1") == []
    assert [type(e) for e in desk.broker_gone()] == [RunDeregistered]
    desk.settle(0)
    desk.settle(ORPHAN_GRACE_MS - 1)
    assert desk.held() == {(A, "j-1.1")}
    desk.settle(ORPHAN_GRACE_MS)
    assert desk.held() == set()
    assert desk.history[-1].reason == "proved_absent"


@pytest.mark.parametrize("shim_first", [True, False])
def test_a_destroyed_shim_frees_nothing_while_its_broker_may_return(
    desk: Desk, shim_first: bool
) -> None:
    """What it started may live on, and only its broker knows."""
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    if shim_first:
        desk.shim_gone("j-1.1")
    desk.broker_gone()
    desk.settle(0)
    if not shim_first:
        desk.shim_gone("j-1.1")
    desk.settle(1_000)
    assert isinstance(desk.ask(reserve("b", "j-1.1", exclusive("gpu0"))), Denied)
    desk.register("a", epoch=2, attempts=("j-1.1",))
    desk.settle(10 * ORPHAN_GRACE_MS)
    assert desk.held() == {(A, "j-1.1")}
    desk.release("j-1.1", epoch=2)
    assert desk.held() == set()


def test_unbound_row_of_a_dead_run_waits_for_the_next_broker_then_ends(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.broker_gone()
    desk.settle(1_000)
    assert desk.machine.wake_at_ms() == 1_000 + ORPHAN_GRACE_MS
    desk.settle(999 + ORPHAN_GRACE_MS)
    assert desk.held() == {(A, "j-1.1")}
    assert desk.bind("j-1.1").code == "unknown_run", "an unregistered run can start nothing"
    desk.settle(1_000 + ORPHAN_GRACE_MS)
    assert desk.held() == set()
    assert desk.machine.wake_at_ms() is None


def test_next_broker_in_time_keeps_the_unbound_row(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.broker_gone()
    desk.settle(0)
    desk.register("a", epoch=2, attempts=("j-1.1",))
    desk.settle(10 * ORPHAN_GRACE_MS)
    assert desk.held() == {(A, "j-1.1")}
    assert isinstance(desk.bind("j-1.1", epoch=2), Granted)


def test_old_brokers_end_does_not_end_the_new_ones_run(desk: Desk) -> None:
    desk.register("a", epoch=2)
    assert desk.broker_gone(epoch=1) == []
    assert A in desk.machine.state.runs


def test_deregister_keeps_rows(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    assert isinstance(desk.ask(DeregisterRun(registration=1, run_key=A, epoch=1)), Granted)
    assert desk.held() == {(A, "j-1.1")}
    assert not desk.machine.idle


def test_other_boot_releases_everything(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.ask(reserve("b", "j-1.1", exclusive("gpu1")))
    desk.bind("j-1.1")
    assert len(desk.fact(RegistryStarted(BOOT))) == 1, "the same boot: rows stay"
    desk.fact(RegistryStarted("22222222-2222-4222-8222-222222222222"))
    assert desk.machine.idle
    assert desk.machine.state.epoch == 3


def test_a_start_in_another_boot_may_be_cut_in_two_anywhere(desk: Desk) -> None:
    """What did not reach the disk is done again by the next start."""
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.ask(reserve("b", "j-1.1", exclusive("gpu1")))
    before = list(desk.history)
    other = "22222222-2222-4222-8222-222222222222"
    ends = desk.fact(RegistryStarted(other))
    for cut in range(len(ends) + 1):
        machine, history = ClaimMachine(), [*before, *ends[:cut]]
        for sequence, event in enumerate(history, 1):
            machine.apply(event, sequence)
        history += machine.decide(RegistryStarted(other), stamp()).events
        assert machine.idle
        assert history_violations(history) == []
        assert state_violations(machine.state) == []


def test_views_are_pushed_once_a_turn_to_registered_brokers(desk: Desk) -> None:
    assert {send.address for send in desk.settle()} == {b"a", b"b"}
    assert desk.settle() == []
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.ask(reserve("a", "j-2.1", exclusive("gpu1")))
    pushed = desk.settle()
    assert [send.address for send in pushed] == [b"b"], "a run knows its own rows"
    assert all(send.request_id is None for send in pushed)
    assert isinstance(pushed[0].message, HostView)
    assert len(pushed[0].message.allocations) == 2
    desk.ask(DeregisterRun(registration=1, run_key=A, epoch=1))
    assert {send.address for send in desk.settle()} == {b"b"}


def test_a_view_that_did_not_arrive_is_pushed_again(desk: Desk) -> None:
    desk.settle()
    desk.ask(reserve("b", "j-1.1", exclusive("gpu0")), address=b"b")
    (push,) = desk.settle(1_000)
    assert push.address == b"a"
    desk.fact(BrokerUnreachable(b"a"), 1_000)
    assert desk.settle(1_001) == []
    assert desk.machine.wake_at_ms() == 1_000 + PUSH_AGAIN_MS
    (again,) = desk.settle(1_000 + PUSH_AGAIN_MS)
    assert (again.address, again.message) == (push.address, push.message)
    assert desk.machine.wake_at_ms() is None


def test_a_viewer_needs_no_run_and_sees_the_load(desk: Desk) -> None:
    desk.ask(ReportLoad(registration=1, run_key=A, epoch=1, running=2, queued=5, limit=3))
    view = desk.ask(ViewHost(), address=b"viewer")
    shown = next(run for run in view.runs if run.run_key == A)
    assert (shown.running, shown.queued, shown.limit) == (2, 5, 3)
    desk.ask(ReportLoad(registration=1, run_key=A, epoch=1, running=0, queued=0, limit=8))


def test_limits_are_told_as_busy() -> None:
    desk = Desk()
    for number in range(RUNS_MAX):
        desk.ask(
            RegisterRun(registration=1, run=run_row(f"r{number}", limit=ROWS_MAX + 1), attempts=())
        )
    assert desk.register("one-more").code == "busy"
    for number in range(1, ROWS_MAX + 1):
        assert isinstance(desk.ask(reserve("r0", f"j-{number}.1", exclusive())), Granted)
    assert desk.ask(reserve("r0", "j-999999.1", exclusive())).code == "busy"


def test_restored_snapshot_is_the_state(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", shared("gpu0")))
    desk.ask(reserve("b", "j-1.1", shared("gpu0")))
    desk.bind("j-1.1")
    again = ClaimMachine(desk.machine.snapshot())
    assert again.snapshot() == desk.machine.snapshot()
    assert state_violations(again.state) == []
    assert set(again.state.watches) == set(desk.machine.state.watches)


@pytest.mark.parametrize(
    "event",
    [
        ClaimReleased(at_ms=0, run_key=A, attempt="j-1.1", reason="released"),
        RunDeregistered(at_ms=0, run_key=A, reason="ended"),
    ],
)
def test_an_event_that_cannot_follow_is_damage(event: Any) -> None:
    with pytest.raises(PraxistError) as raised:
        ClaimMachine().apply(event, 7)
    assert raised.value.code == "ledger_damaged"
    assert "7" in raised.value.detail


def test_history_check_sees_what_the_state_cannot(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.release("j-1.1")
    doubled = [*desk.history, desk.history[-1]]
    assert any("twice" in fault for fault in history_violations(doubled))


def test_what_is_no_request_is_denied_in_its_turn(desk: Desk) -> None:
    error = PraxistError("too_large", "9 bytes; the limit is 8")
    decision = desk.machine.decide(Undecodable(b"a", None, error), stamp())
    assert not decision.events
    (send,) = decision.outbox
    assert (send.address, send.request_id) == (b"a", None)
    assert send.message == Denied(code="too_large", detail=error.detail)


@pytest.mark.parametrize("gone", [True, False])
def test_a_run_without_a_broker_is_told_for_as_long_as_it_holds_anything(gone: bool) -> None:
    desk = Desk(uid=1000)
    desk.register("a")
    desk.register("theirs", uid=1001)
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    desk.bind("j-1.1")
    assert desk.ask(ViewHost()).down == ()
    if gone:
        desk.broker_gone()
    else:
        desk.ask(DeregisterRun(registration=1, run_key=A, epoch=1))
    (down,) = desk.ask(ViewHost()).down
    assert (down.run_id, down.run_dir, down.running) == ("a", "/runs/a", 0)
    assert A not in {run.run_key for run in desk.ask(ViewHost()).runs}
    assert desk.ask(ViewHost(), uid=1001).down[0].run_dir == "", "not another user's business"
    desk.check()
    again = ClaimMachine(desk.machine.snapshot())
    assert list(again.state.down) == [A], "a snapshot keeps it"
    desk.register("a", epoch=2, attempts=("j-1.1",))
    assert desk.ask(ViewHost()).down == (), "it is served again"
    desk.broker_gone(epoch=2)
    assert [run.run_id for run in desk.ask(ViewHost()).down] == ["a"]
    desk.shim_gone("j-1.1")
    desk.settle()  # from now on its broker may come back for a while
    desk.settle(ORPHAN_GRACE_MS)
    assert desk.ask(ViewHost()).down == ()
    desk.check()


def test_only_the_registered_broker_speaks_for_a_run(desk: Desk) -> None:
    desk.ask(reserve("a", "j-1.1", exclusive("gpu0")))
    for request in (
        reserve("a", "j-2.1", exclusive("gpu1")),
        Release(registration=1, run_key=A, epoch=1, attempt="j-1.1"),
        ReportLoad(registration=1, run_key=A, epoch=1, running=0, queued=0, limit=1),
        DeregisterRun(registration=1, run_key=A, epoch=1),
    ):
        denied = desk.ask(request, pid=102)
        assert denied.code == "not_yours"
        assert denied.detail == "process 102 sent this, and process 101 is the run's broker"
    assert desk.held() == {(A, "j-1.1")}
    # A registered broker that is gone is replaced by the next one, which then speaks for the run.
    desk.broker_gone()
    assert isinstance(desk.register("a", epoch=2, attempts=("j-1.1",)), Registered)
    assert isinstance(desk.release("j-1.1", epoch=2), Granted)


def test_what_runs_already_is_taken_beside_others_and_nothing_more_is_placed(desk: Desk) -> None:
    """A registry that lost its ledger gave the device to another run meanwhile."""
    desk.ask(reserve("b", "j-1.1", exclusive("gpu0")))
    again = reserve("a", "j-1.1", exclusive("gpu0"), seen=())
    assert desk.ask(again).code == "conflict", "without a process it gives way"
    assert isinstance(desk.ask(again.model_copy(update={"shim": process(900)})), Granted)
    assert isinstance(desk.bind("j-1.1"), Granted)
    assert [row.overcommitted for row in desk.machine.state.rows.values()] == [False, True]
    desk.check()
    desk.ask(Release(registration=1, run_key=run_key("b"), epoch=1, attempt="j-1.1"))
    assert desk.ask(reserve("b", "j-2.1", exclusive("gpu0"))).code == "conflict"
    assert desk.ask(reserve("b", "j-2.1", shared("gpu0"))).code == "conflict"


def test_what_an_earlier_release_does_not_know_is_written_only_where_it_matters() -> None:
    plain = reserve("a", "j-1.1", exclusive("gpu0"))
    assert b"shim" not in encode(plain)
    held = plain.model_copy(update={"shim": process(900)})
    assert adapter(Reserve).validate_json(encode(held)) == held
    row = AllocationRow(run_key=A, attempt="j-1.1", envelope=plain.envelope, bound=None)
    assert b"overcommitted" not in encode(HostView(version=1, runs=(), allocations=(row,)))
    crowded = row.model_copy(update={"overcommitted": True})
    assert adapter(AllocationRow).validate_json(encode(crowded)) == crowded
