"""Ends of processes, told once each, and never of a process that cannot be judged."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator

import pytest

from praxist_zmq.host.identity import identity_of
from praxist_zmq.host.process_watch import ProcessWatch
from praxist_zmq.protocol.process import ProcessIdentity


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


class Poll:
    """Stands for the poller's owner."""

    def __init__(self) -> None:
        self.descriptors: set[int] = set()
        self.watch: ProcessWatch[str] = ProcessWatch(self.descriptors.add, self.descriptors.remove)


def identity(pid: int) -> ProcessIdentity:
    found = identity_of(pid)
    assert found is not None
    return found


def test_an_end_is_told_once(sleeper: subprocess.Popen[bytes]) -> None:
    poll = Poll()
    wanted = {"one": identity(sleeper.pid), "self": identity(os.getpid())}
    assert poll.watch.update(wanted) == []
    assert len(poll.descriptors) == 2
    sleeper.kill()
    readable, _, _ = select.select(list(poll.descriptors), [], [], 10)
    assert poll.watch.ended(readable) == ["one"]
    assert poll.watch.ended(readable) == []
    assert poll.watch.update(wanted) == [], "told once, as long as it is wanted"
    poll.watch.close()
    assert poll.descriptors == set()


def test_what_is_gone_already_is_told_at_once(sleeper: subprocess.Popen[bytes]) -> None:
    poll = Poll()
    alive = identity(sleeper.pid)
    other_start = alive.model_copy(update={"start_ticks": alive.start_ticks + 1})
    other_boot = alive.model_copy(update={"boot_id": "11111111-1111-4111-8111-111111111111"})
    gone = poll.watch.update({"number taken anew": other_start, "other boot": other_boot})
    assert sorted(gone) == ["number taken anew", "other boot"]
    poll.watch.close()


def test_another_namespace_is_never_judged(sleeper: subprocess.Popen[bytes]) -> None:
    poll = Poll()
    elsewhere = identity(sleeper.pid).model_copy(update={"pid_namespace": 1})
    assert poll.watch.update({"elsewhere": elsewhere}) == []
    assert poll.watch.unjudged == {"elsewhere"}
    assert poll.descriptors == set()
    poll.watch.update({})
    assert poll.watch.unjudged == set()
