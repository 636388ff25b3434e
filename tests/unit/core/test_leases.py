"""Leases in the broker: who gets one, every way in which one ends, what counts, what is told."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core import broker_snapshot
from praxist_zmq.core.commands import FenceSeen
from praxist_zmq.core.lease_memory import IDLE_PEERS_MAX
from praxist_zmq.core.leases import cooldown_ms
from praxist_zmq.core.narrate import line
from praxist_zmq.protocol.claims import Envelope, LeaseRow
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.replies import LeaseDeclined, LeaseReply, LeasesReply, Refusal
from praxist_zmq.protocol.requests import (
    AssessGeneration,
    CancelJobs,
    DeclineLease,
    ExplainJob,
    FreezeGeneration,
    GetLease,
    GetStatus,
    ListLeases,
    PublishResult,
    RegisterIdle,
    StopRun,
    UnregisterIdle,
)
from tests.support.lease_world import LeaseWorld

WINDOW_MS = 180_000


def kinds(world: LeaseWorld) -> list[str]:
    """Kinds of all events, in order."""
    return [decode_event(body).kind for body in world.disk]


def narrated(world: LeaseWorld) -> str:
    """The last event about a locator that was worth nothing, in words."""
    events = [decode_event(body) for body in world.disk]
    return [line(1, event).text for event in events if event.kind == "lease_counted"][-1]


def stats(world: LeaseWorld) -> Any:
    """What became of offers."""
    reply: LeasesReply = world.ask(ListLeases())
    return reply.stats


def decline(world: LeaseWorld, peer: str, lease_id: str | None = None) -> Any:
    """The peer has nothing planned."""
    return world.ask(DeclineLease(peer=peer, lease_id=lease_id))


def test_the_reason_of_a_decline_brings_no_credential_to_the_disk() -> None:
    world = LeaseWorld()
    world.granted("a")
    told = "ghp_" + "a" * 36
    ended = world.ask(DeclineLease(peer="a", reason=f"look at {told}"))
    assert ended.lease.detail == "look at [redacted]"
    assert told.encode() not in b"".join(world.disk)


# -- grants ---------------------------------------------------------------------------------


def test_six_idle_peers_and_three_slots_wake_three() -> None:
    world = LeaseWorld(devices=1)
    world.open(0, cohort_size=6)
    world.idle(*"abcdef")
    assert len(world.to_supply) == 1, "the newest sample, told once"
    assert not world.broker.state.leases.live
    world.look()
    live = list(world.broker.state.leases.live.values())
    assert [lease.peer for lease in live] == ["a", "b", "c"]
    assert live[0].profiles == ("cpu", "gpu", "half"), "the largest shape has all inside it"
    assert live[1].profiles == ("cpu",), "the device is offered once"
    assert [lease.priority for lease in live] == ["mature"] * 3
    world.look(4)
    assert len(world.broker.state.leases.live) == 3, "N slots wake N peers"
    assert stats(world).outstanding == 3


def test_room_is_looked_at_anew_for_a_peer_that_comes_when_nobody_waited() -> None:
    world = LeaseWorld(supply_idle_samples=3)
    world.idle("a")
    world.look(2)
    world.ask(UnregisterIdle(peer="a"))
    world.look(5)
    world.idle("b")
    world.look(1)
    assert world.lease("b") is None
    world.look(2)
    assert world.lease("b") is not None


def test_ids_are_not_guessed_and_do_not_come_again() -> None:
    world = LeaseWorld()
    first = world.granted("a")
    world.crash_broker()
    world.settle()
    world.turn_supply()
    second = world.granted("a")
    assert first.lease_id.startswith("supply-1-")
    assert second.lease_id.startswith("supply-2-")
    assert first.lease_id[-16:] != second.lease_id[-16:]


def test_the_longest_waiting_come_first_and_registering_again_keeps_the_place() -> None:
    world = LeaseWorld(slots=1)
    world.idle("b", "a", "b")
    world.look(2)
    assert [lease.peer for lease in world.broker.state.leases.live.values()] == ["b"]


def test_queued_work_that_could_start_goes_before_leases() -> None:
    world = LeaseWorld(slots=2)
    world.idle("a", "b", "c")
    world.send("x", "one")
    world.settle()
    world.look(2)
    assert len(world.broker.state.leases.live) == 1


def test_work_that_waits_for_a_device_leaves_its_slot_to_others() -> None:
    world = LeaseWorld(devices=1, slots=3)
    world.send("x", "one", profile="gpu")
    world.send("x", "two", profile="gpu")
    world.settle()
    world.idle("a", "b", "c")
    world.look(2)
    live = list(world.broker.state.leases.live.values())
    assert [lease.profiles for lease in live] == [("cpu",), ("cpu",)]


def test_shared_devices_are_offered_while_the_largest_shape_fits() -> None:
    world = LeaseWorld(devices=1)
    world.send("x", "one", profile="half")
    world.settle()
    world.idle("a", "b")
    world.look(2)
    live = list(world.broker.state.leases.live.values())
    assert [lease.profiles for lease in live] == [("cpu", "half"), ("cpu",)]


def test_what_the_host_denies_is_not_granted_and_the_peer_waits_on() -> None:
    world = LeaseWorld()
    world.deny = "conflict"
    world.idle("a")
    world.look(2)
    assert not world.broker.state.leases.live
    assert not world.broker.soft.leases.offers
    world.deny = None
    world.look(2)
    assert world.lease("a") is not None


def test_a_peer_that_left_while_the_host_was_asked_gets_nothing() -> None:
    world = LeaseWorld()
    world.idle("a")
    world.silent = True
    world.look(2)
    assert world.broker.soft.leases.offers
    world.ask(UnregisterIdle(peer="a"))
    world.silent = False
    world.to_registry.extend(world.unanswered)
    world.settle()
    assert "lease_granted" not in kinds(world)
    assert not world.rows, "the room is given back"


def test_no_supply_without_the_signal_and_only_where_work_is_taken() -> None:
    world = LeaseWorld(supply_signal_enabled=False)
    reply = world.ask(RegisterIdle(peer="a"))
    assert isinstance(reply, Refusal)
    assert reply.code == "supply_disabled"
    world = LeaseWorld()
    assert world.ask(RegisterIdle(peer="a", generation=9)).code == "generation_unknown"
    world.ask(FreezeGeneration(generation=0))
    assert world.ask(RegisterIdle(peer="a")).code == "generation_closing"


def test_waiters_are_bounded() -> None:
    world = LeaseWorld()
    world.broker.soft.leases.idle = {f"p{n}": 0 for n in range(IDLE_PEERS_MAX)}
    assert world.ask(RegisterIdle(peer="late")).code == "busy"
    assert isinstance(world.ask(RegisterIdle(peer="p7")), LeaseReply)


def test_the_host_being_away_grants_nothing() -> None:
    from praxist_zmq.core.commands import RegistryLost

    world = LeaseWorld()
    world.idle("a")
    world.turn(RegistryLost())
    world.look(3)
    assert not world.broker.state.leases.live


# -- ends -----------------------------------------------------------------------------------


def test_a_lease_is_consumed_in_the_batch_of_its_job_and_once() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    before = len(world.disk)
    reply = world.send("a", "t1", lease.lease_id, work_class="mature")
    batch = [decode_event(body).kind for body in world.disk[before:]]
    assert batch.index("lease_ended") == batch.index("job_queued") + 1
    assert world.ended(lease.lease_id) == ("consumed", "experiment_submitted")
    assert stats(world).conversion_rate == 1.0
    world.settle()
    assert not world.rows, "the job's own row took its place"
    assert not world.broker.soft.leases.holds
    again = world.send("a", "t2", lease.lease_id, work_class="mature")
    assert again.new
    assert (stats(world).reuse_ignored, stats(world).consumed) == (1, 1)
    assert stats(world).by_priority["mature"].reuse_ignored == 1
    assert reply.job.lease_id == lease.lease_id


def test_a_duplicate_leaves_the_lease_alone() -> None:
    world = LeaseWorld()
    world.send("a", "t1", work_class="mature")
    lease = world.granted("a")
    assert not world.send("a", "t1", lease.lease_id, work_class="mature").new
    assert world.lease("a") is not None
    assert not world.ask(ListLeases()).stats.reuse_ignored


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"work_class": "ordinary"}, "work_class_not_mature"),
        ({"work_class": "mature", "profile": "gpu"}, "profile_not_admissible"),
    ],
)
def test_what_was_not_asked_for_is_taken_without_the_lease(
    facts: dict[str, Any], reason: str
) -> None:
    world = LeaseWorld(devices=0)
    world.broker.soft.sample = None
    lease = world.granted("a")
    # A device comes later: the profile is declared, and the lease does not name it.
    world.devices = 1
    world.pass_time(1_000)
    assert world.send("a", "t1", lease.lease_id, **facts).new
    assert world.ended(lease.lease_id) == ("revoked", reason)
    world.settle()
    assert not world.rows


def test_a_submission_without_its_locator_ends_the_lease() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    assert world.send("a", "t1").new
    assert world.ended(lease.lease_id) == ("revoked", "submission_without_matching_lease")


def test_locators_of_others_and_of_nobody_harm_nothing() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    told = world.send("b", "t1", lease.lease_id)
    assert told.new
    assert told.notes == (f"lease {lease.lease_id} is a's, of generation 0; taken without it",)
    assert narrated(world) == f"lease {lease.lease_id} sent by b: stale submission"
    told = world.send("c", "t2", "no such thing at all")
    assert told.new
    assert told.notes == ("lease no such thing at all is unknown; taken without it",)
    assert world.lease("a") is not None
    assert stats(world).stale_submission == 2


def test_the_room_of_a_lease_is_held_until_the_broker_has_ended_it() -> None:
    """The registry counts from when it was asked, which is before the grant is known here."""
    world = LeaseWorld()
    world.silent = True
    world.idle("a")
    world.look(2)
    ((request_id, claim),) = world.unanswered
    ends_ms = world.now_ms + claim.window_ms
    world.pass_time(500)
    world.silent = False
    world.to_registry.append((request_id, claim))
    world.settle()
    lease = world.lease("a")
    assert lease is not None
    assert ends_ms > world.broker.soft.leases.due_ms[lease.lease_id] + 1_000


def test_a_submission_after_the_window_is_stale_and_the_lease_expired() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    world.now_ms += WINDOW_MS + 7_500
    told = world.send("a", "t1", lease.lease_id, work_class="mature")
    assert told.new
    over = f"lease {lease.lease_id} expired "
    assert told.notes[0].startswith(over)
    assert told.notes[0] in [f"{over}{n} s ago; taken without it" for n in (7, 8)]
    assert world.ended(lease.lease_id) == ("expired", "response_window_elapsed")
    again = world.send("a", "t2", lease.lease_id, work_class="mature")
    assert again.notes == told.notes
    assert stats(world).by_priority["mature"].stale_submission == 2


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("fetch", "lease_fetched_after_expiry"),
        ("register", "idle_peer_reregistered_after_expiry"),
        ("unregister", "response_window_elapsed"),
        ("decline", "release_after_response_window"),
        ("nothing", "response_window_elapsed"),
    ],
)
def test_each_way_in_which_an_expiry_is_noticed(what: str, reason: str) -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    due = world.broker.wake_at_ms()
    assert due is not None
    assert due <= world.now_ms + WINDOW_MS
    world.now_ms += WINDOW_MS
    if what == "fetch":
        assert world.lease("a") is None
    elif what == "register":
        world.idle("a")
    elif what == "unregister":
        world.ask(UnregisterIdle(peer="a"))
    elif what == "decline":
        reply = decline(world, "a")
        assert isinstance(reply, LeaseDeclined)
        assert reply.lease.state == "expired"
    else:
        world.turn()
    assert world.ended(lease.lease_id) == ("expired", reason)


def test_declining_cools_the_peer_down_longer_each_time() -> None:
    world = LeaseWorld(slots=1)
    for waited in (60, 120):
        lease = world.granted("a")
        reply = decline(world, "a", lease.lease_id)
        assert reply.lease.cooling_s == waited
        assert world.ended(lease.lease_id) == ("declined", "session_ended_without_submission")
        assert decline(world, "a", lease.lease_id).lease.state == "declined", "again: as it was"
        world.broker.soft.leases.cooling_ms[("a", 0, "frontier_followup")] = 10**9
        world.idle("a")
        world.look(4)
        assert world.lease("a") is None
        world.broker.soft.leases.cooling_ms.pop(("a", 0, "frontier_followup"))
        world.now_ms += waited * 1000
    lease = world.granted("a")
    world.send("a", "t1", lease.lease_id, work_class="mature")
    assert not world.broker.soft.leases.cooling_ms
    assert not world.broker.state.leases.declines


def test_a_peer_without_a_lease_is_told_what_became_of_its_last() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    decline(world, "a")
    told = world.ask(GetLease(peer="a"))
    assert (told.lease, told.waiting) == (None, False)
    assert (told.last.lease_id, told.last.state) == (lease.lease_id, "declined")
    assert 59 < told.cooling_s <= 60
    other = world.ask(GetLease(peer="b"))
    assert (other.last, other.cooling_s) == (None, None)


def test_a_generation_in_a_name_that_was_never_opened_is_told() -> None:
    world = LeaseWorld()
    told = world.ask(RegisterIdle(peer="gen7_peer2"))
    assert told.note == "generation 7 was never opened; taken for the current one, 0"
    assert world.ask(RegisterIdle(peer="gen0_peer2")).note is None
    assert world.ask(RegisterIdle(peer="p")).note is None


def test_evidence_that_may_be_a_slip_is_noted() -> None:
    world = LeaseWorld()
    world.send("a", "t1")
    assert world.ask(PublishResult(tag="t1", generation=0)).notes == ()
    assert world.ask(PublishResult(tag="t1", peer="b", generation=0)).notes == (
        "it stays a's, not b's",
    )
    assert world.ask(PublishResult(tag="nosuchtag", peer="a", generation=0)).notes == (
        "no job of generation 0 has this tag; mistyped it counts all the same",
    )


def test_another_priority_is_offered_while_one_cools_once_it_is_wanted() -> None:
    world = LeaseWorld(slots=1)
    world.open(0, cohort_size=1)
    world.granted("a")
    decline(world, "a")
    world.settle()
    world.idle("a")
    world.look(4)
    assert world.lease("a") is None, "mature work is needed and cools"
    world.ask(PublishResult(tag="other", peer="b", mature=True, generation=0))
    world.look(2)
    found = world.lease("a")
    assert found is not None
    assert found.priority == "frontier_followup"


def test_the_formula_of_the_cooldown() -> None:
    assert [cooldown_ms(n) // 1000 for n in range(1, 8)] == [60, 120, 240, 480, 900, 900, 900]


def test_a_cooldown_goes_on_over_a_restart() -> None:
    world = LeaseWorld(slots=1)
    world.granted("a")
    decline(world, "a")
    world.crash_broker()
    left = world.broker.soft.leases.cooling_ms[("a", 0, "mature")] - world.now_ms
    assert 55_000 < left <= 60_000
    assert world.broker.state.leases.declined_times("a", 0, "mature") == 1


def test_declining_what_is_not_there_is_refused() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    assert decline(world, "b").code == "unknown_lease"
    assert decline(world, "b", lease.lease_id).code == "unknown_lease"
    assert decline(world, "a", "supply-9-0000000000000000").code == "unknown_lease"


def test_a_peer_that_withdraws_loses_lease_and_place() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    world.ask(UnregisterIdle(peer="a"))
    assert world.ended(lease.lease_id) == ("revoked", "peer_unregistered_idle_supply")
    world.settle()
    assert not world.rows
    world.idle("a")
    world.ask(UnregisterIdle(peer="a"))
    world.look(3)
    assert world.lease("a") is None


def test_a_peer_that_goes_to_another_generation_releases_its_lease() -> None:
    world = LeaseWorld()
    lease = world.granted("gen0_a")
    world.open(1)
    world.idle("gen0_a", generation=1)
    assert world.ended(lease.lease_id) == ("revoked", "peer_release")
    assert world.broker.soft.leases.idle == {"gen0_a": 1}


def test_a_new_generation_ends_the_offers_that_could_not_be_answered_any_more() -> None:
    world = LeaseWorld()
    theirs, kept = world.granted("a"), world.granted("gen0_b")
    world.idle("c")
    world.idle("gen0_d")
    world.open(1)
    assert world.ended(theirs.lease_id) == ("revoked", "generation_superseded")
    assert world.lease("gen0_b") is not None, "its work still goes to generation 0"
    assert kept.lease_id in world.broker.state.leases.live
    assert world.broker.soft.leases.idle == {"gen0_d": 0}, "who listens registers again"
    world.settle()
    assert list(world.rows) == [kept.lease_id], "the room is given back"
    world.idle("c")
    assert world.broker.soft.leases.idle["c"] == 1


def test_room_that_real_work_took_takes_the_lease_along() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    world.push_view()
    assert world.lease("a") is not None, "a view that shows it changes nothing"
    world.take_back(lease.lease_id)
    assert world.ended(lease.lease_id) == ("revoked", "resource_claim_reclaimed")


def test_assessment_keeps_only_mature_leases() -> None:
    world = LeaseWorld(slots=4)
    world.open(0, cohort_size=1)
    world.idle("a", "b")
    world.look(2)
    leases = {lease.peer: lease for lease in world.broker.state.leases.live.values()}
    assert [lease.priority for lease in leases.values()] == ["mature", "frontier_followup"]
    world.ask(AssessGeneration(generation=0))
    assert world.lease("a") is not None
    assert world.ended(leases["b"].lease_id) == ("revoked", "assessment_mature_only")


def test_a_freeze_ends_leases_and_drops_who_waits() -> None:
    world = LeaseWorld(slots=1)
    lease = world.granted("a")
    world.idle("b")
    world.ask(FreezeGeneration(generation=0))
    assert world.ended(lease.lease_id) == ("revoked", "generation_frozen")
    assert not world.broker.soft.leases.idle
    topics = [topic for topic, _ in world.told]
    assert topics[-2:] == [b"lease/a", b"lease/b"], "who waits is told that it waits no more"


def test_opening_again_and_stopping_end_leases() -> None:
    world = LeaseWorld(slots=2)
    lease = world.granted("a")
    world.open(0)
    assert world.ended(lease.lease_id) == ("revoked", "generation_reopened")
    lease = world.granted("b")
    world.ask(StopRun(grace_seconds=0))
    assert world.ended(lease.lease_id) == ("revoked", "scheduler_stopped")


def test_surplus_mature_leases_go_newest_first() -> None:
    world = LeaseWorld(slots=6)
    world.open(0, cohort_size=4)
    world.idle(*"abcd")
    world.look(2)
    live = [lease.lease_id for lease in world.broker.state.leases.live.values()]
    assert [world.broker.state.leases.live[name].priority for name in live] == [
        *["mature"] * 3,
        "frontier_followup",
    ]
    world.send("x", "t1", work_class="mature")
    assert world.ended(live[2]) == ("revoked", "mature_demand_satisfied")
    world.ask(PublishResult(tag="t1", mature=True, generation=0))
    assert [world.ended(name)[1] for name in live[:2]] == ["mature_demand_satisfied"] * 2
    assert list(world.broker.state.leases.live) == [live[3]]


def test_a_mature_peer_is_not_asked_again_under_a_hard_quorum() -> None:
    world = LeaseWorld(slots=3)
    world.open(0, cohort_size=4, mature_quorum=2)
    lease = world.granted("a")
    world.ask(PublishResult(tag="other", peer="a", mature=True, generation=0))
    assert world.ended(lease.lease_id) == ("revoked", "mature_peer_completed")
    world.idle("a")
    world.look(4)
    assert world.lease("a") is None, "what is needed must come from another"
    world.ask(PublishResult(tag="third", peer="b", mature=True, generation=0))
    world.look(2)
    found = world.lease("a")
    assert found is not None
    assert found.priority == "frontier_followup"


def test_an_orderly_end_takes_leases_back_and_tells_the_host() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    decision = world.broker.end(world.stamp())
    world._commit(decision)
    assert world.ended(lease.lease_id) == ("revoked", "scheduler_stopped")
    asked = [request.kind for _, request in world.to_registry]
    assert asked == ["release_lease", "deregister_run"]


def test_the_shutdown_sentinel_ends_offers_and_waits_while_it_is_there() -> None:
    world = LeaseWorld(slots=1)
    lease = world.granted("a")
    world.idle("b")
    world.turn(FenceSeen(present=True))
    outcome, reason = world.ended(lease.lease_id)
    assert outcome == "revoked"
    assert str(reason).startswith("admission_closed:the run's shutdown sentinel")
    assert not world.broker.soft.leases.idle
    assert world.ask(RegisterIdle(peer="c")).code == "admission_closed"
    world.settle()
    assert not world.rows
    world.turn(FenceSeen(present=False))
    assert world.granted("c").peer == "c"


# -- restarts, the host, what is shown ------------------------------------------------------


@pytest.mark.parametrize(
    ("work_class", "end"),
    [
        ("mature", ("consumed", "experiment_submitted")),
        ("scout", ("revoked", "scheduler_restarted")),
    ],
)
def test_a_batch_that_reached_the_disk_in_part_still_used_its_lease(
    work_class: str, end: tuple[str, str]
) -> None:
    world = LeaseWorld()
    world.open(0, cohort_size=1)
    lease = world.granted("a")
    assert lease.priority == "mature"
    world.send("a", "t1", lease.lease_id, work_class=work_class)
    del world.disk[kinds(world).index("job_queued") + 1 :]
    world.crash_broker()
    world.settle()
    assert world.ended(lease.lease_id) == end
    assert stats(world).consumed == (end[0] == "consumed")
    assert world.broker.state.jobs["j-1"].state == "running"
    assert not world.rows


@pytest.mark.parametrize(
    ("passed", "outcome", "reason"),
    [
        (0, "revoked", "scheduler_restarted"),
        (WINDOW_MS, "expired", "response_window_elapsed"),
    ],
)
def test_a_restart_ends_what_was_out_and_keeps_the_counts(
    passed: int, outcome: str, reason: str
) -> None:
    world = LeaseWorld()
    used = world.granted("a")
    world.send("a", "t1", used.lease_id, work_class="mature")
    lease = world.granted("b")
    world.settle()
    world.take_snapshot()
    world.now_ms += passed
    world.crash_broker()
    world.settle()
    assert world.ended(lease.lease_id) == (outcome, reason)
    assert not world.rows, "what the host still held is given back"
    found = stats(world)
    assert (found.granted, found.consumed, getattr(found, outcome)) == (2, 1, 1)
    world.send("a", "t2", used.lease_id)
    assert stats(world).reuse_ignored == 1
    world.crash_broker()
    assert stats(world).reuse_ignored == 1


def test_a_replay_gives_the_same_state() -> None:
    from praxist_zmq.core.broker import Broker

    world = LeaseWorld(devices=1)
    lease = world.granted("a")
    world.send("a", "t1", lease.lease_id)
    world.granted("b")
    decline(world, "b")
    reader = Broker()
    for sequence, body in enumerate(world.disk, 1):
        reader.apply(decode_event(body), sequence)
    assert broker_snapshot.differences(reader.state, world.broker.state) == []
    loaded = broker_snapshot.load(broker_snapshot.dump(reader.state))
    assert broker_snapshot.differences(loaded, reader.state) == []


def test_a_release_that_the_host_does_not_confirm_stays_visible_and_counts_as_taken() -> None:
    world = LeaseWorld(slots=1)
    lease = world.granted("a")
    world.silent = True
    decline(world, "a")
    world.settle()
    shown = world.ask(GetStatus()).resource_supply
    assert [(v["lease_id"], v["release_pending"]) for v in shown["leases"]] == [
        (lease.lease_id, True)
    ]
    assert shown["maturity"]["0"]["priority_leases"] == 0
    assert world.lease("a") is None
    world.idle("b")
    world.look(3)
    assert world.lease("b") is None, "its slot is not free"
    world.silent = False
    world.to_registry.extend(world.unanswered)
    world.settle()
    assert not world.broker.soft.leases.releasing
    world.look(2)
    assert world.lease("b") is not None


def test_a_registry_that_forgot_is_asked_again_before_anything_is_taken_back() -> None:
    from praxist_zmq.core.commands import RegistryConnected

    world = LeaseWorld()
    kept = world.granted("a")
    world.rows.clear()
    world.turn(RegistryConnected())
    world.settle()
    assert set(world.rows) == {kept.lease_id}
    assert world.lease("a") is not None
    world.rows.clear()
    world.deny = "conflict"
    world.turn(RegistryConnected())
    world.settle()
    assert world.ended(kept.lease_id) == ("revoked", "resource_claim_reclaimed")


def test_the_room_of_a_job_that_never_ran_is_given_back() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    world.broker.soft.held = True
    job = world.send("a", "t1", lease.lease_id, work_class="mature").job.job
    world.settle()
    assert set(world.rows) == {lease.lease_id}
    world.ask(CancelJobs(jobs=(job,)))
    world.settle()
    assert not world.rows


def test_what_is_published_is_what_is_asked_for_at_that_sequence() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    topic, told = world.told[-1]
    assert topic == b"lease/a"
    assert told.lease.lease_id == lease.lease_id
    assert (told.epoch, told.sequence, told.waiting) == (1, 1, False)
    decline(world, "a")
    topic, told = world.told[-1]
    assert (topic, told.lease, told.sequence) == (b"lease/a", None, 2)


def test_the_sequence_is_told_only_while_somebody_listens() -> None:
    from praxist_zmq.core.commands import AudienceChanged

    world = LeaseWorld()
    world.look(3)
    assert not world.told
    world.turn(AudienceChanged(False, True))
    assert [(topic, alive.sequence) for topic, alive in world.told] == [(b"leases", 0)]
    world.now_ms += 1_000
    world.turn()
    assert len(world.told) == 1
    world.now_ms += 1_000
    world.turn()
    assert len(world.told) == 2
    world.turn(AudienceChanged(False, False))
    world.now_ms += 5_000
    world.turn()
    assert len(world.told) == 2


def test_facts_come_once_a_sample_and_only_while_peers_wait() -> None:
    world = LeaseWorld()
    world.pass_time(1_000)
    assert not world.to_supply
    world.idle("a")
    assert len(world.to_supply) == 1
    world.pass_time(1_000)
    world.turn()
    assert len(world.to_supply) == 2
    assert world.to_supply[0].free_slots == 3
    assert [peer.peer for peer in world.to_supply[0].idle] == ["a"]


def test_a_lease_is_found_by_what_the_table_shows_of_its_id() -> None:
    world = LeaseWorld()
    lease = world.granted("a").lease_id
    whole = world.ask(ExplainJob(subject=f"lease:{lease}"))
    for shown in (lease[:-12], lease.rpartition("-")[0]):
        assert world.ask(ExplainJob(subject=f"lease:{shown}")) == whole
    for other in ("supply-9", f"{lease[:-12]}zz", "nothing"):
        assert world.ask(ExplainJob(subject=f"lease:{other}")).code == "unknown_lease"


def test_a_lease_is_explained() -> None:
    world = LeaseWorld()
    lease = world.granted("a")
    told = world.ask(ExplainJob(subject=f"lease:{lease.lease_id}"))
    assert told.verdict.startswith("a may answer for 1")
    assert [gate.state for gate in told.gates] == ["ok"] * 4
    job = world.send("a", "t1", lease.lease_id, work_class="mature").job.job
    told = world.ask(ExplainJob(subject=f"lease:{lease.lease_id}"))
    assert told.verdict == f"consumed: experiment_submitted by {job}"
    assert told.options == ()
    assert world.ask(ExplainJob(subject="lease:nothing")).code == "unknown_lease"


def test_a_peer_that_waits_is_told_why_no_lease_comes() -> None:
    world = LeaseWorld(slots=1)
    world.send("b", "t1")
    world.idle("a")
    told = world.ask(ExplainJob(subject="lease:a"))
    assert told.verdict == "no lease comes: 1 of 1 running"
    assert [gate.name for gate in told.gates if gate.state == "blocked"] == ["room"]
    off = LeaseWorld()
    off.idle("a")
    told = off.ask(ExplainJob(subject="lease:a"))
    assert told.verdict.startswith("a lease comes when")
    assert {gate.state for gate in told.gates} == {"ok"}
    lease = off.granted("a")
    told = off.ask(ExplainJob(subject="lease:a"))
    assert told == off.ask(ExplainJob(subject=f"lease:{lease.lease_id}"))


def test_a_device_that_another_run_offers_is_not_offered() -> None:
    """What another run's lease holds of a device is not offered here."""
    world = LeaseWorld(devices=1)
    world.rows["supply-9-0123456789abcdef"] = LeaseRow(
        run_key="b" * 64,
        lease_id="supply-9-0123456789abcdef",
        envelope=Envelope(
            device_uuids=("GPU-0",), exclusive=True, memory_mib=None, utilization_pct=None
        ),
    )
    world.push_view()
    assert world.granted("a").profiles == ("cpu",)
