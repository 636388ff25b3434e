"""The broker stays awake for a lone peer of a run at rest, and for nobody else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from praxist_zmq.service.attention import LOOKS, REST_MS, Attention
from praxist_zmq.transport.poller import Item, Poller


class CountingPoller(Poller):
    """Counts how often it was asked."""

    looks = 0

    def wait(self, timeout_ms: int | None) -> set[Item]:
        assert timeout_ms == 0, "it never sleeps"
        self.looks += 1
        return super().wait(timeout_ms)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_after_one_answer_it_looks_on_once(pipe: tuple[int, int]) -> None:
    attention, poller = Attention(), CountingPoller()
    poller.register(pipe[0])
    attention.answered(1)
    assert attention.look_on(poller, 1_000) == set()
    assert poller.looks == LOOKS
    assert attention.look_on(poller, 1_000) == set()
    assert poller.looks == LOOKS, "nobody was answered since"


def test_what_comes_ends_it(pipe: tuple[int, int]) -> None:
    attention, poller = Attention(), CountingPoller()
    poller.register(pipe[0])
    os.write(pipe[1], b"x")
    attention.answered(1)
    assert attention.look_on(poller, 1_000) == {pipe[0]}
    assert poller.looks == 1


def test_nobody_looks_where_many_ask_or_something_starts() -> None:
    attention, poller = Attention(), CountingPoller()
    for number in (0, 2, 64):
        attention.answered(number)
        attention.look_on(poller, 1_000)
    attention.busy(1_000)
    attention.answered(1)
    attention.look_on(poller, 1_000 + REST_MS - 1)
    assert poller.looks == 0
    attention.answered(1)
    attention.look_on(poller, 1_000 + REST_MS)
    assert poller.looks == LOOKS
