"""Manifests: what is believed of them, and what lies in their place."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.host.protected import Manifest, ProtectedFolder, State, named, state_of
from tests.support.wait import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> ProtectedFolder:
    return ProtectedFolder(RunPaths.of(tmp_path))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads its own group."""
    process = subprocess.Popen(["sleep", "600"], process_group=0)
    yield process
    process.kill()
    process.wait()


def manifest_of(process: subprocess.Popen[bytes]) -> Manifest:
    identity = named(process.pid)
    assert identity is not None
    return Manifest(identity, process.pid, peer="p1", tag="t")


def test_what_was_written_is_read(
    folder: ProtectedFolder, sleeper: subprocess.Popen[bytes]
) -> None:
    made = replace(manifest_of(sleeper), command_hash="ab" * 32, eta_seconds=1.5)
    folder.write(made)
    folder.write(made)
    (found,) = folder.read().entries
    assert (found.manifest, found.state, found.file) == (made, "live", made.name)
    assert [path.name for path in folder.path.iterdir()] == [made.name]
    assert folder.remove(made.name)
    assert not folder.remove(made.name)
    assert folder.read().entries == ()


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "live"),
        ({"boot_id": "another"}, "stale"),
        ({"pid_namespace": 1}, "doubtful"),
        ({"start_ticks": 1}, "stale"),
    ],
)
def test_every_part_of_the_identity_counts(
    sleeper: subprocess.Popen[bytes], change: dict[str, object], state: State
) -> None:
    made = manifest_of(sleeper)
    assert state_of(replace(made, process=replace(made.process, **change))) == state  # type: ignore[arg-type]


def test_what_its_group_tells_when_it_is_gone() -> None:
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 600 & read go"], process_group=0, stdin=subprocess.PIPE
    )
    made = manifest_of(leader)
    own = named(os.getpid())
    assert leader.stdin is not None
    try:
        leader.stdin.close()
        leader.wait(20)
        assert state_of(made) == "doubtful"
        assert state_of(replace(made, launcher=own)) == "draining"
    finally:
        os.killpg(leader.pid, 9)
    wait_until(lambda: state_of(made) == "stale", "the group to be gone")


def test_a_zombie_is_gone() -> None:
    process = subprocess.Popen(["sleep", "600"], process_group=0)
    made = manifest_of(process)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert state_of(made) == "stale"
    process.wait()


def test_what_is_no_manifest_is_named(
    folder: ProtectedFolder, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    made = manifest_of(sleeper)
    folder.write(made)
    good = made.body()
    at = folder.path
    (tmp_path / "target").write_text(json.dumps(good))
    (at / "link.json").symlink_to(tmp_path / "target")
    os.mkfifo(at / "fifo.json")
    (at / "folder.json").mkdir()
    (at / "long.json").write_text(json.dumps(good) + " " * 9000)
    (at / "deep.json").write_text("[" * 8000)
    (at / "bytes.json").write_bytes(b"\xff\xfe")
    wrong: dict[str, object] = {
        "list": [], "none": None, "group-0": {**good, "pgid": 0}, "group-1": {**good, "pgid": 1},
        "init": {**good, "pid": 1}, "negative": {**good, "pid": -5}, "huge": {**good, "pid": 9**99},
        "true": {**good, "pgid": True}, "text": {**good, "pid": "12"}, "tag": {**good, "tag": 5},
        "hash": {**good, "command_hash": "x"}, "launcher": {**good, "launcher": 7},
        "unknown": {**good, "start_ticks": None}, "eta": {**good, "eta_seconds": "x"},
    }  # fmt: skip
    for name, value in wrong.items():
        (at / f"{name}.json").write_text(json.dumps(value))
    (at / "ignored.txt").write_text("x")
    (at / ".hidden.json").write_text("x")
    found = folder.read()
    assert [entry.file for entry in found.entries] == [made.name]
    places = {"link", "fifo", "folder", "long", "deep", "bytes"}
    assert {file for file, _ in found.unreadable} == {f"{n}.json" for n in places | set(wrong)}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a file to another user")
def test_another_user_s_manifest_is_not_believed(
    folder: ProtectedFolder, sleeper: subprocess.Popen[bytes]
) -> None:
    made = manifest_of(sleeper)
    folder.write(made)
    os.chown(folder.path / made.name, 12345, 12345)
    assert folder.read().unreadable == ((made.name, "belongs to user 12345"),)


@pytest.mark.parametrize("kind", ["link", "file", "fifo"])
def test_something_else_in_the_folder_s_place(
    folder: ProtectedFolder, tmp_path: Path, sleeper: subprocess.Popen[bytes], kind: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        folder.path.symlink_to(elsewhere)
    elif kind == "file":
        folder.path.write_text("kept")
    else:
        os.mkfifo(folder.path)
    for act in (folder.read, lambda: folder.write(manifest_of(sleeper))):
        with pytest.raises(PraxistError) as caught:
            act()
        assert caught.value.code == "unsafe_path"
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_the_lock_s_place(folder: ProtectedFolder, tmp_path: Path) -> None:
    folder.path.mkdir()
    (folder.path / ".lock").symlink_to(tmp_path / "made")
    with pytest.raises(PraxistError), folder.locked():
        pass
    assert not (tmp_path / "made").exists()
