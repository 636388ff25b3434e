"""The restart rule: how often is too often, and which exits are never answered by a restart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from praxist_zmq.service.restart import (
    PERIOD_MS,
    RESTARTS_MAX,
    RestartIntensity,
    is_passing,
    is_permanent,
)


def test_five_restarts_at_once_are_allowed_and_the_sixth_is_not() -> None:
    intensity = RestartIntensity()
    assert [intensity.allow(1000) for _ in range(6)] == [True] * 5 + [False]


def test_a_restart_counts_for_exactly_ten_seconds() -> None:
    intensity = RestartIntensity()
    for _ in range(5):
        assert intensity.allow(1000)
    assert not intensity.allow(1000 + PERIOD_MS - 1)
    assert intensity.allow(1000 + PERIOD_MS)


def test_one_restart_every_two_seconds_goes_on_for_ever() -> None:
    intensity = RestartIntensity()
    assert all(intensity.allow(at) for at in range(0, 1_000_000, 2000))


@given(st.lists(st.integers(min_value=0, max_value=3000), max_size=60))
def test_no_window_ever_holds_more_restarts_than_the_limit(gaps: list[int]) -> None:
    intensity = RestartIntensity()
    now, allowed = 0, []
    for gap in gaps:
        now += gap
        recent = [at for at in allowed if now - at < PERIOD_MS]
        answer = intensity.allow(now)
        assert answer == (len(recent) < RESTARTS_MAX)
        if answer:
            allowed.append(now)


def test_permanent_exits() -> None:
    assert [code for code in range(256) if is_permanent(code)] == [65, 73, 74, 78]
    assert not is_permanent(None)


def test_a_passing_exit_is_no_permanent_one() -> None:
    assert [code for code in range(256) if is_passing(code)] == [75]
    assert not is_passing(None)
    assert not is_permanent(75)
