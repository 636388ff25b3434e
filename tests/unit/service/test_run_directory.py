"""What stands in the way of the scheduler's directories, and that none of it is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.service.run_directory import prepare


def refused(run: RunPaths) -> PraxistError:
    with pytest.raises(PraxistError) as caught:
        prepare(run)
    return caught.value


def test_makes_private_directories_in_a_deep_place(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 40] * 5)
    run = RunPaths.of(deep)
    prepare(run)
    prepare(run)
    for directory in (run.scheduler, run.attempts, run.service_logs, run.experiment_logs):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert run.protected_pids.is_dir()


def test_any_spelling_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    spellings = ["real", "link", "./real/", str(tmp_path / "link" / ".." / "real")]
    assert {RunPaths.of(name).run_key for name in spellings} == {RunPaths.of("real").run_key}


def test_our_readable_directory_is_made_private(tmp_path: Path) -> None:
    run = RunPaths.of(tmp_path)
    run.scheduler.mkdir(mode=0o755)
    prepare(run)
    assert stat.S_IMODE(run.scheduler.stat().st_mode) == 0o700


@pytest.mark.parametrize("where", ["scheduler", "service_logs", "attempts", "experiment_logs"])
@pytest.mark.parametrize("what", ["link", "dangling link", "fifo", "file"])
def test_something_else_in_the_way_is_refused_by_name(
    tmp_path: Path, where: str, what: str
) -> None:
    run = RunPaths.of(tmp_path / "run")
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o755)
    path: Path = getattr(run, where)
    path.parent.mkdir(parents=True, mode=0o700)
    if what == "link":
        path.symlink_to(target)
    elif what == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("precious")
    error = refused(run)
    assert error.code == "unsafe_path"
    assert str(path) in error.detail
    assert not list(target.iterdir())
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert not (tmp_path / "nowhere").exists()
    if what == "file":
        assert path.read_text() == "precious"


def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    run = RunPaths.of(tmp_path)
    run.scheduler.mkdir()
    run.scheduler.chmod(0o770)
    error = refused(run)
    assert error.code == "unsafe_path"
    assert "0770" in error.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_strangers_directory_is_refused(tmp_path: Path) -> None:
    run = RunPaths.of(tmp_path)
    run.scheduler.mkdir(mode=0o700)
    os.chown(run.scheduler, 12345, 12345)
    assert refused(run).code == "unsafe_path"


def test_a_read_only_place_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        # Root writes through permissions; /proc takes no directory from anybody.
        error = refused(RunPaths.of("/proc/self"))
    else:
        tmp_path.chmod(0o500)
        error = refused(RunPaths.of(tmp_path))
        tmp_path.chmod(0o700)
    assert error.code == "path_unusable"
    assert "resource_scheduler" in error.detail


def test_a_file_as_run_directory_and_a_name_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for name in ("file", "file/below", "file/far/below"):
        error = refused(RunPaths.of(tmp_path / name))
        assert error.code == "path_unusable"
        assert error.detail.startswith(f"{file} is a file;")
    os.mkfifo(tmp_path / "pipe")
    assert "is no directory" in refused(RunPaths.of(tmp_path / "pipe")).detail
    assert refused(RunPaths.of(os.fsdecode(bytes(tmp_path) + b"/\xff"))).code == "path_unusable"
