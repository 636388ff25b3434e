"""What `explain` says of a waiting job, of one that ended, and of a profile."""

from __future__ import annotations

import pytest

from praxist_zmq.core.explain import ORDER
from praxist_zmq.core.forecast import DEPARTURES_MAX, ENTRIES_MAX
from praxist_zmq.core.pressure import pressed_words
from praxist_zmq.protocol.replies import Explanation, Submitted
from praxist_zmq.protocol.requests import (
    CancelJobs,
    ExplainJob,
    ListJobs,
    OpenGeneration,
    ShowJob,
    SubmitJob,
    SubmitJobs,
)
from tests.support.explained import PROFILES, LoadedWorld, Wish


def explained(world: LoadedWorld, subject: str) -> Explanation:
    """The answer."""
    answer = world.ask(ExplainJob(subject=subject))
    assert isinstance(answer, Explanation)
    return answer


def dry_run(world: LoadedWorld, wish: Wish) -> list[str]:
    """The blockers that a submission is told before it is made."""
    answer = world.ask(
        SubmitJob(
            peer=wish.peer, tag="a new tag", command=("true",), cwd="/", environment={},
            profile=wish.profile, work_class=wish.work_class,  # type: ignore[arg-type]
            dry_run=True,
        )
    )  # fmt: skip
    assert isinstance(answer, Submitted)
    return [blocker.code for blocker in answer.job.blockers]


def test_the_worked_case_of_the_reference() -> None:
    world = LoadedWorld([(410, 0.0), (31_900, 38.0)])
    for eta_s in (960.0, 660.0):
        world.submit(Wish("p1", "small", eta_s=eta_s))
    world.submit(Wish("p2", "small"))
    waiting = world.submit(Wish("p1", "small"))
    world.look()
    answer = explained(world, waiting)
    assert [blocker.code for blocker in answer.blockers] == ["gpu_compute_short"]
    assert [gate.name for gate in answer.gates] == list(ORDER)
    assert [gate.name for gate in answer.gates if gate.state == "blocked"] == ["devices"]
    assert answer.position == 1
    first, second = answer.devices
    assert (first.need_utilization_pct, first.free_utilization_pct) == (45.0, 10.0)
    assert (second.external_utilization_pct, second.free_utilization_pct) == (38.0, 17.0)
    assert second.external == ("pid 88001 python, user dana, 38 %, 31900 MiB",)
    assert [device.fits for device in answer.devices] == [False, False]
    events = [entry.event for entry in answer.would_start]
    assert "ends on GPU" in events[0]
    assert any(event.startswith("external load on GPU 1 falls by 28") for event in events)
    timed = [entry for entry in answer.would_start if entry.likely_s is not None]
    assert timed
    assert all(entry.by_s and entry.likely_s and entry.by_s > entry.likely_s for entry in timed)
    assert answer.start_estimate is not None
    assert answer.start_estimate.likely_s == min(entry.likely_s or 0 for entry in timed)
    assert answer.snapshot["attribution"] == "unavailable"
    assert len(answer.would_start) <= ENTRIES_MAX


def test_a_dry_run_meets_what_the_real_one_meets() -> None:
    world = LoadedWorld([(0, 0.0)], cap=2)
    for _ in range(3):
        world.submit(Wish("p1", "small"))
    world.look()
    for wish in (
        Wish("p1", "cpu"),
        Wish("p2", "cpu"),
        Wish("p2", "small"),
        Wish("p1", "big", "mature"),
        Wish("p2", "alone"),
    ):
        told = dry_run(world, wish)
        answer = world.ask(
            SubmitJob(
                peer=wish.peer, tag=f"{wish}", command=("true",), cwd="/", environment={},
                profile=wish.profile, work_class=wish.work_class,  # type: ignore[arg-type]
            )
        )  # fmt: skip
        assert [blocker.code for blocker in answer.job.blockers] == told
        world.settle()


@pytest.mark.parametrize("profiles", [("small", "cpu"), ("cpu", "small"), ("alone", "cpu")])
@pytest.mark.parametrize("dry", [(True, False), (True, True), (False, False)])
def test_the_reasons_of_a_batch_are_each_one_s_own(
    profiles: tuple[str, str], dry: tuple[bool, bool]
) -> None:
    """A dry run has the name that the next one that is taken will have."""
    world = LoadedWorld([(80_000, 95.0)], limit=1)
    world.submit(Wish("p1", "cpu"))
    world.settle()
    jobs = tuple(
        SubmitJob(
            peer="p2", tag=f"tag of {number}", command=("true",), cwd="/", environment={},
            profile=profile, dry_run=dry[number],
        )
        for number, profile in enumerate(profiles)
    )  # fmt: skip
    told = world.ask(SubmitJobs(jobs=jobs)).results
    for profile, answer in zip(profiles, told, strict=True):
        codes = {blocker.code for blocker in answer.job.blockers}
        assert "run_limit" in codes
        assert (len(codes) > 1) == (profile != "cpu"), codes


def test_the_end_of_a_pressure_is_told() -> None:
    world = LoadedWorld([(0, 0.0)], cpu_pct=97.0)
    waiting = world.submit(Wish("p1", "big"))
    world.look()
    answer = explained(world, waiting)
    assert [blocker.code for blocker in answer.blockers] == ["pressure_cpu"]
    (entry,) = answer.would_start
    assert entry.event == "cpu pressure falls below 92 (now 97)"
    assert pressed_words(PROFILES["cpu"], world.policy, world.sample()) == "", "declares none"
    (option,) = [option for option in answer.options if "pressure_domains" in option]
    assert "waits for cpu because its pressure_domains name it" in option
    assert "the mark cpu_high_pct" in option
    world.cpu_pct = 50.0
    world.look()
    assert world.queued() == []


def test_a_job_behind_the_head_is_told_what_ends_first_and_then_the_next() -> None:
    """Nothing runs, so there is no end to wait for until those ahead of it have started."""
    world = LoadedWorld([(0, 0.0)], cpu_pct=97.0)
    _, second, third = [world.submit(Wish("p1", "big", eta_s=60.0)) for _ in range(3)]
    world.look()
    (entry,) = explained(world, second).would_start
    assert entry.event == "cpu pressure falls below 92 (now 97), then j-1 ends"
    assert (entry.job, entry.after) == ("j-1", ())
    (entry,) = explained(world, third).would_start
    assert entry.event == "cpu pressure falls below 92 (now 97), then j-1, then j-2 end"
    assert entry.likely_s is None


def test_a_job_far_behind_is_told_that_those_ahead_of_it_end_first() -> None:
    world = LoadedWorld([(0, 0.0)], limit=1)
    jobs = [world.submit(Wish("p1", "cpu", eta_s=60.0)) for _ in range(DEPARTURES_MAX + 6)]
    (entry,) = explained(world, jobs[-1]).would_start
    assert entry.event == (
        "j-1, then j-2, then j-3, then j-4, then j-5, then 58 more, then j-64 end, "
        "and more of those ahead of it after that"
    )


def test_foreign_load_that_holds_those_ahead_is_told_before_their_ends() -> None:
    world = LoadedWorld([(70_000, 90.0)], cpu_pct=97.0)
    first, second = [world.submit(Wish("p1", "big", eta_s=60.0)) for _ in range(2)]
    world.look()
    both = "cpu pressure falls below 92 (now 97) and external use of GPU 0 ends"
    assert [entry.event for entry in explained(world, first).would_start] == [both]
    assert [entry.event for entry in explained(world, second).would_start] == [
        f"{both}, then j-1 ends"
    ]


def test_devices_that_are_not_known_start_nothing_until_the_driver_or_a_sample_tells() -> None:
    world = LoadedWorld([(0, 0.0)])
    known = world.sample
    world.sample = lambda: known().model_copy(  # type: ignore[method-assign]
        update={"probe_state": "unknown", "probe_reason": "the driver hangs", "devices": ()}
    )
    world.look()
    first, second = [world.submit(Wish("p1", "alone")) for _ in range(2)]
    assert [entry.event for entry in explained(world, first).would_start] == [
        "the driver tells of the devices again"
    ]
    assert [entry.event for entry in explained(world, second).would_start] == [
        "the driver tells of the devices again, then its turn comes after the job before it"
    ]


def test_unknown_demand_is_told_how_to_become_known() -> None:
    world = LoadedWorld([(18_000, 0.0)])
    waiting = world.submit(Wish("p1", "alone"))
    world.look()
    answer = explained(world, waiting)
    assert [blocker.code for blocker in answer.blockers] == ["gpu_needs_exclusive"]
    assert any("praxist-zmq config explain gpu_memory_gb" in option for option in answer.options)
    assert any("only if the task calls it equivalent" in option for option in answer.options)
    assert answer.would_start[0].event.startswith("external use of GPU 0 ends")


def test_asking_changes_nothing() -> None:
    world = LoadedWorld([(0, 0.0), (40_000, 38.0)], limit=3)
    for profile in ("small", "pair", "big", "alone", "small", "cpu"):
        world.submit(Wish("p1", profile, eta_s=60.0))
    world.look()
    before = world.ask(ListJobs())
    soft = world.broker.soft
    facts = (dict(soft.plans), dict(soft.queue.waiting), soft.reservation, soft.registry_counter)
    first = [explained(world, job) for job in world.queued()]
    assert (
        dict(soft.plans),
        dict(soft.queue.waiting),
        soft.reservation,
        soft.registry_counter,
    ) == (facts)
    after = world.ask(ListJobs())
    told = [[(job.job, job.state, job.blockers) for job in jobs.jobs] for jobs in (before, after)]
    assert told[0] == told[1]
    assert [answer.blockers for answer in first] == [
        explained(world, job).blockers for job in world.queued()
    ]


def test_a_peer_at_its_cap_is_counted_with_what_is_being_started() -> None:
    world = LoadedWorld([(0, 0.0)], cap=1)
    for tag in ("one", "two"):
        world.ask(
            SubmitJob(
                peer="p1", tag=tag, command=("true",), cwd="/", environment={}, profile="cpu"
            )
        )  # fmt: skip
    assert len(world.broker.soft.plans) == 1
    capped = explained(world, "j-2")
    (blocker,) = capped.blockers
    assert (blocker.code, blocker.detail) == ("peer_cap", "p1 runs 1 of 1")
    # The cap is the peer's: under no profile would one more of it start.
    assert not any("would start now" in option for option in capped.options)
    assert explained(world, "j-1").blockers == ()


def test_a_profile_is_explained_on_an_empty_host_and_now() -> None:
    world = LoadedWorld([(70_000, 80.0)])
    answer = explained(world, "profile:small")
    assert answer.gates[0].name == "empty host"
    assert answer.gates[0].detail == "1 of 1 devices would fit, needs 1"
    assert answer.verdict.startswith("a job of it would wait: compute: needs 45 %")
    assert len(answer.devices) == 1
    assert explained(world, "profile:pair").verdict.startswith("can never run here: needs 2 GPUs")
    assert explained(world, "profile:cpu").verdict == "a job of it would start now"


def test_an_ended_job_says_whether_a_retry_would_be_taken() -> None:
    world = LoadedWorld([(0, 0.0)], limit=1)
    world.submit(Wish("p1", "cpu"))
    waiting = world.submit(Wish("p1", "cpu"))
    world.ask(CancelJobs(jobs=(waiting,), reason="superseded"))
    answer = explained(world, waiting)
    assert any("--retry-terminal would be accepted" in option for option in answer.options)
    assert f"if it should run after all: praxist-zmq retry {waiting} [-- CMD...]" in answer.options
    world.broker.soft.low_space = True
    refused = explained(world, waiting)
    assert any(option.startswith("a retry would be refused now") for option in refused.options)


def test_a_running_job_tells_the_median_of_what_is_left() -> None:
    world = LoadedWorld([(0, 0.0)])
    known = world.submit(Wish("p1", "cpu", eta_s=600.0))
    unknown = world.submit(Wish("p1", "cpu"))
    left_s = world.ask(ShowJob(job=known)).job.left_s
    assert left_s is not None
    assert 590 < left_s <= 600
    assert world.ask(ShowJob(job=unknown)).job.left_s is None


def test_a_step_of_the_limit_is_told_and_enough() -> None:
    world = LoadedWorld([(0, 0.0), (0, 0.0)], limit=1, most=2)
    world.submit(Wish("p1", "big"))
    waiting = world.submit(Wish("p1", "big"))
    world.look()
    events = [entry.event for entry in explained(world, waiting).would_start]
    assert events == [
        "j-1 ends on GPU 0",
        "the limit rises from 1 to 2 (at cpu <= 0.5 (now 1))",
    ]
    world.cpu_pct = 0.3
    world.look()
    assert world.queued() == []


def test_a_peer_at_its_cap_is_offered_no_other_profile() -> None:
    world = LoadedWorld([(0, 0.0)], cap=1)
    world.submit(Wish("p", "small"))
    waiting = world.submit(Wish("p", "small"))
    answer = explained(world, waiting)
    assert [blocker.code for blocker in answer.blockers] == ["peer_cap"]
    assert not [option for option in answer.options if option.startswith("use ")]


def test_what_would_start_a_peer_at_its_cap_is_found_among_many() -> None:
    world = LoadedWorld([(0, 0.0)] * 24, limit=60, cap=3)
    for number in range(24):
        world.submit(Wish(f"q{number}", "alone"))
    for number in range(30):
        world.submit(Wish(f"r{number}", "small" if number % 2 else "alone"))
    mine = [world.submit(Wish("p", "cpu")) for _ in range(6)]
    world.look()
    (entry,) = explained(world, mine[5]).would_start
    assert (*entry.after, entry.job) == tuple(mine[:3])


def test_the_job_for_which_devices_are_kept_is_first_whatever_its_class() -> None:
    world = LoadedWorld([(0, 0.0), (0, 0.0)])
    holders = [world.submit(Wish("q", "alone")) for _ in range(2)]
    scout = world.submit(Wish("p", "pair", "scout"))
    mature = [world.submit(Wish("q", "small", "mature")) for _ in range(2)]
    kept = world.broker.soft.reservation
    assert kept is not None
    assert kept.job == scout
    answer = explained(world, scout)
    assert answer.position == 1
    (order,) = [gate.detail for gate in answer.gates if gate.name == "class order"]
    assert order == "devices are kept for it, so it goes before all others"
    assert [explained(world, job).position for job in mature] == [2, 3]
    listed = [job.job for job in world.ask(ListJobs()).jobs if job.state == "queued"]
    assert listed == [scout, *mature]
    for holder in holders:
        world.finish(holder)
    assert world.broker.state.jobs[scout].state == "running"


def test_figures_have_units_and_a_near_deadline_its_seconds() -> None:
    world = LoadedWorld([(0, 60.0)])
    waiting = world.submit(Wish("p1", "small"))
    world.look()
    assert explained(world, waiting).verdict == (
        "waits: compute: needs 45 %, at best 40 % free on GPU 0"
    )
    world.ask(OpenGeneration(generation=0, deadline_seconds=12))
    gates = {gate.name: gate.detail for gate in explained(world, waiting).gates}
    assert "deadline in 0m1" in gates["admission"]
