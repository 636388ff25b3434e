"""Identity: parsing, comparison, pidfds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from praxist_zmq.host import signals
from praxist_zmq.host.identity import (
    identity_of,
    is_alive,
    open_pidfd,
    parse_stat,
    visible,
)
from tests.support.wait import wait_until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "100"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_command_with_parentheses_and_spaces_does_not_confuse_the_fields() -> None:
    raw = b"7 (a) S 1 (b c) R 2 3 4 " + b" ".join(b"%d" % n for n in range(7, 60))
    stat = parse_stat(raw)
    assert stat is not None
    assert (stat.pid, stat.state, stat.parent, stat.group, stat.session) == (7, "R", 2, 3, 4)
    assert stat.start_ticks == 22
    assert parse_stat(b"") is None
    assert parse_stat(b"7 (x) R 1") is None


def test_the_same_process_and_another() -> None:
    own = identity_of(os.getpid())
    assert own is not None
    assert own == identity_of(os.getpid())
    assert is_alive(own)
    recycled = own.model_copy(update={"start_ticks": own.start_ticks + 1})
    assert not is_alive(recycled)
    assert open_pidfd(recycled) is None


def test_another_boot_or_namespace_is_never_looked_up() -> None:
    own = identity_of(os.getpid())
    assert own is not None
    for change in ({"boot_id": "other"}, {"pid_namespace": 1}):
        foreign = own.model_copy(update=change)
        assert not visible(foreign)
        assert not is_alive(foreign)
        assert open_pidfd(foreign) is None


def test_a_signal_reaches_only_the_identity_it_was_meant_for(
    sleeper: subprocess.Popen[bytes],
) -> None:
    identity = identity_of(sleeper.pid)
    assert identity is not None
    stranger = identity.model_copy(update={"start_ticks": identity.start_ticks + 1})
    assert not signals.send(stranger, signals.KILL)
    assert is_alive(identity)
    assert signals.send(identity, signals.KILL)
    wait_until(lambda: not is_alive(identity), "the signal to work")
    assert identity_of(sleeper.pid) is not None  # a zombie: there, and not alive
    sleeper.wait()
    assert identity_of(sleeper.pid) is None
