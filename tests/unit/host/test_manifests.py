"""Protected-process manifests: one file is used again and again, and never another's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from praxist_zmq.host.attempt_files import AttemptFiles
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.protocol.process import ProcessIdentity


def leader(pid: int) -> ProcessIdentity:
    return ProcessIdentity(boot_id="b" * 36, pid_namespace=1, pid=pid, start_ticks=7)


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    paths = RunPaths.of(tmp_path / "run")
    paths.protected_pids.mkdir(parents=True)
    return paths


def shown(run: RunPaths) -> dict[str, int]:
    return {path.name: json.loads(path.read_bytes())["pid"] for path in manifests(run)}


def manifests(run: RunPaths) -> list[Path]:
    return sorted(run.protected_pids.glob("*.json"))


def test_a_manifest_is_there_as_long_as_its_process_and_its_file_is_used_again(
    run: RunPaths,
) -> None:
    files = AttemptFiles(run)
    files.protect("j-1.1", leader(11))
    files.protect("j-2.1", leader(12))
    assert shown(run) == {"j-1.1.json": 11, "j-2.1.json": 12}
    inodes = {path.stat().st_ino for path in manifests(run)}
    files.unprotect("j-1.1")
    assert shown(run) == {"j-2.1.json": 12}
    files.unprotect("j-2.1")
    files.protect("j-3.1", leader(1_234_567))
    files.protect("j-4.1", leader(4))
    assert shown(run) == {"j-3.1.json": 1_234_567, "j-4.1.json": 4}
    assert {path.stat().st_ino for path in manifests(run)} == inodes


def test_a_manifest_is_replaced_and_its_absence_is_no_fault(run: RunPaths) -> None:
    files = AttemptFiles(run)
    files.protect("j-1.1", leader(11))
    files.protect("j-1.1", leader(12))
    assert shown(run) == {"j-1.1.json": 12}
    files.unprotect("j-1.1")
    files.unprotect("j-1.1")
    assert shown(run) == {}


@pytest.mark.parametrize("how", ["link", "hard link", "pipe", "other size", "gone"])
def test_what_was_put_in_the_place_of_a_spare_file_is_not_written(
    run: RunPaths, tmp_path: Path, how: str
) -> None:
    files = AttemptFiles(run)
    files.protect("j-1.1", leader(11))
    files.unprotect("j-1.1")
    (spare,) = run.protected_pids.iterdir()
    victim = tmp_path / "victim"
    victim.write_bytes(spare.read_bytes())
    spare.unlink()
    if how == "link":
        spare.symlink_to(victim)
    elif how == "hard link":
        os.link(victim, spare)
    elif how == "pipe":
        os.mkfifo(spare)
    elif how == "other size":
        spare.write_bytes(b"mine")
    before = victim.read_bytes()
    files.protect("j-2.1", leader(12))
    assert shown(run) == {"j-2.1.json": 12}
    assert victim.read_bytes() == before
    files.unprotect("j-2.1")
    files.protect("j-3.1", leader(13))
    assert shown(run) == {"j-3.1.json": 13}
    assert victim.read_bytes() == before


def test_the_spare_files_go_at_the_end(run: RunPaths) -> None:
    files = AttemptFiles(run)
    for name in ("j-1.1", "j-2.1"):
        files.protect(name, leader(11))
    files.unprotect("j-1.1")
    files.close()
    assert [path.name for path in run.protected_pids.iterdir()] == ["j-2.1.json"]
    files.unprotect("j-2.1")
    run.protected_pids.joinpath(".spare-0").unlink()
    files.close()
    assert not list(run.protected_pids.iterdir())
