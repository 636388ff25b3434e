"""The evidence controller: Q, M, D, A and what is still to be offered."""

from __future__ import annotations

import pytest

from praxist_zmq.core.maturity import advice, maturity, quota_met
from praxist_zmq.core.state import BrokerState, Generation, Job, Published
from praxist_zmq.protocol.policy import SchedulerPolicy


def state_of(fraction: float = 0.25, redundancy: float = 3.0) -> BrokerState:
    policy = SchedulerPolicy(mature_supply_fraction=fraction, mature_supply_redundancy=redundancy)
    return BrokerState(policy=policy)


def generation(cohort: int | None, quorum: int | None = None, *grown: str) -> Generation:
    """`grown`: mature results as `tag/peer`."""
    found = Generation(0, 0, cohort_size=cohort, mature_quorum=quorum)
    for one in grown:
        tag, _, peer = one.partition("/")
        found.results[tag] = Published(tag, peer or None, True, "peer", 0)
    return found


def on_the_way(state: BrokerState, *works: str) -> None:
    """Mature jobs as `tag/peer`, queued in generation 0."""
    for number, one in enumerate(works, 1):
        tag, _, peer = one.partition("/")
        state.mature_open.setdefault(0, {})[f"j-{number}"] = Job(
            job=f"j-{number}", number=number, job_id="", identity=tag, tag=tag, peer=peer,
            generation=0, profile="cpu", work_class="mature", eta_ms=None,
            command=("true",), cwd="/", environment_id="", lease_id=None,
            uid=None, state="queued", submitted_at_ms=0, queue_sequence=number, version=number,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("cohort", "fraction", "target"),
    [
        (12, 0.25, 3), (13, 0.25, 4), (30, 0.1, 3), (31, 0.1, 4), (10, 0.7, 7), (1, 0.25, 1),
        (None, 0.25, 1), (12, 0.01, 1), (12, 1.0, 12), (12, 0.0, 0),
    ],
)  # fmt: skip
def test_the_target_is_a_rounded_up_share_of_the_cohort(
    cohort: int | None, fraction: float, target: int
) -> None:
    assert maturity(generation(cohort), state_of(fraction), ()).target == target


def test_the_debt_and_what_is_to_be_on_its_way() -> None:
    state = state_of()
    on_the_way(state, "b/p2", "c/p3")
    found = maturity(generation(12, None, "a/p1"), state, ("p4",))
    assert (found.counted_in, found.target, found.completed, found.debt) == ("results", 3, 1, 2)
    assert (found.target_inflight, found.inflight_jobs, found.priority_leases) == (6, 2, 1)
    assert found.needed_inflight == 3
    assert maturity(generation(4, None), state, ()).target_inflight == 3
    assert maturity(generation(2, None), state, ()).target_inflight == 2, "at most the cohort"


@pytest.mark.parametrize(("redundancy", "inflight"), [(3.0, 9), (1.1, 4), (0.1, 1), (0.0, 0)])
def test_redundancy(redundancy: float, inflight: int) -> None:
    found = maturity(generation(12), state_of(redundancy=redundancy), ())
    assert found.target_inflight == found.needed_inflight == inflight
    assert found.target == (0 if redundancy == 0 else 3)


def test_a_retry_and_a_published_tag_count_once() -> None:
    state = state_of()
    on_the_way(state, "a/p1", "b/p1", "b/p1")
    found = maturity(generation(12, None, "a/p1"), state, ())
    assert found.inflight_jobs == 1


def test_a_hard_quorum_counts_distinct_peers_that_are_not_done() -> None:
    state = state_of()
    on_the_way(state, "a/p1", "b/p2", "c/p2", "d/p2")
    found = maturity(generation(12, 5, "x/p1", "y/p1", "z"), state, ("p1", "p2", "p7"))
    assert (found.counted_in, found.target, found.completed, found.debt) == ("peers", 5, 1, 4)
    assert (found.target_inflight, found.inflight_jobs) == (12, 1)
    assert found.needed_inflight == 12 - 1 - 1, "of the leases only that of p7 is one more"


def test_a_smaller_hard_quorum_does_not_lower_the_target() -> None:
    assert maturity(generation(12, 1), state_of(), ()).target == 3


@pytest.mark.parametrize(("fraction", "redundancy"), [(0.0, 3.0), (0.25, 0.0)])
def test_zero_switches_the_supply_off_but_not_the_hard_quorum(
    fraction: float, redundancy: float
) -> None:
    state = state_of(fraction, redundancy)
    found = generation(12, 2, "a/p1", "b/p1")
    assert maturity(found, state, ()).needed_inflight == 0
    assert maturity(found, state, ()).target == 0
    assert not quota_met(found, state)
    found.results["c"] = Published("c", "p2", True, "peer", 0)
    assert quota_met(found, state)
    assert not quota_met(generation(12, None, "a/p1"), state), "no target, no quota"


def test_without_a_hard_quorum_the_quota_is_met_when_no_debt_is_left() -> None:
    state = state_of()
    assert not quota_met(generation(12, None, "a/p", "b/p"), state)
    assert quota_met(generation(12, None, "a/p", "b/p", "c/p"), state)


def test_the_first_wave_goes_by_the_list_and_keeps_an_explorer() -> None:
    found = Generation(0, 0, peers=tuple(f"gen0_peer{n * 7}" for n in range(12)))
    told = advice(found, 3)
    assert [told[peer] for peer in found.peers] == ["direct_mature"] * 3 + ["explore"] * 9
    found.peers = ("a", "b")
    assert list(advice(found, 9).values()) == ["direct_mature", "explore"]
    found.peers = ("a",)
    assert advice(found, 3) == {"a": "direct_mature"}
    assert advice(found, 0) == {}
