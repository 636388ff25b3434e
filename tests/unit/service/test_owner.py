"""Finding the supervisor of a run through its lock; a file that lies names nobody."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.identity import identity_of
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.host.spawn import ask_to_end_by, wait_ended
from praxist_zmq.service.owner import find_owner, find_without_lock
from praxist_zmq.service.run_directory import prepare
from tests.support.lock_holder import lock_holder


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    paths = RunPaths.of(tmp_path)
    prepare(paths)
    return paths


@pytest.fixture
def holder(run: RunPaths) -> Iterator[subprocess.Popen[bytes]]:
    with lock_holder(run) as process:
        yield process


def claim(run: RunPaths, pid: int, **changed: object) -> None:
    identity = identity_of(pid)
    assert identity is not None
    run.owner_lock.write_text(json.dumps({**identity.model_dump(), **changed}))


def test_no_lock_and_a_free_lock_have_no_owner(run: RunPaths) -> None:
    assert find_owner(run) is None
    claim(run, os.getpid())
    assert find_owner(run) is None


def test_the_holder_is_found_and_can_be_asked_to_end(
    run: RunPaths, holder: subprocess.Popen[bytes]
) -> None:
    claim(run, holder.pid)
    owner = find_owner(run)
    assert owner is not None
    assert owner.identity.pid == holder.pid
    assert ask_to_end_by(owner.pidfd)
    assert wait_ended(owner.pidfd, 60)
    holder.wait()
    assert not ask_to_end_by(owner.pidfd)
    os.close(owner.pidfd)
    assert find_owner(run) is None


def test_a_file_that_names_a_stranger_or_nothing_names_nobody(
    run: RunPaths, holder: subprocess.Popen[bytes]
) -> None:
    def code() -> str:
        with pytest.raises(PraxistError) as caught:
            find_owner(run)
        return caught.value.code

    claim(run, os.getpid())
    assert code() == "not_yours"
    claim(run, holder.pid, start_ticks=1)
    assert code() == "not_yours"
    claim(run, holder.pid, boot_id="another")
    assert code() == "not_yours"
    for text in ("", "1", "[]", '{"pid": 1}', "\x00" * 100):
        run.owner_lock.write_text(text)
        assert code() == "not_yours"
    assert holder.poll() is None


def test_a_link_in_the_place_of_the_lock_is_refused(run: RunPaths, tmp_path: Path) -> None:
    run.owner_lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PraxistError) as caught:
        find_owner(run)
    assert caught.value.code == "unsafe_path"


def test_a_supervisor_whose_lock_file_was_removed_is_found_while_it_lives(
    run: RunPaths, holder: subprocess.Popen[bytes]
) -> None:
    identity = identity_of(holder.pid)
    assert identity is not None
    run.endpoint.write_text(json.dumps({"supervisor": identity.model_dump()}))
    assert find_without_lock(run) is None, "it holds a lock that is there"
    run.owner_lock.unlink()
    assert_found(run, holder.pid)
    run.owner_lock.touch()
    assert_found(run, holder.pid)
    run.endpoint.write_text(json.dumps({"supervisor": {**identity.model_dump(), "pid": 1}}))
    assert find_owner(run) is None, "named is not held"


def assert_found(run: RunPaths, pid: int) -> None:
    owner = find_owner(run)
    assert owner is not None
    os.close(owner.pidfd)
    assert owner.identity.pid == pid
