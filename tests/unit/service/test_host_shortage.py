"""A launcher on a host that lacks something for a moment: nothing ran, and the errno is told."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from praxist_zmq.protocol.reports import AttemptEnded
from tests.support.launcher_harness import Bench
from tests.support.wait import wait_until

ONE_USER = 54_321
PROCESSES_MAX = 8
AS_ONE_USER = (
    f"set -- prlimit --nproc={PROCESSES_MAX} setpriv --reuid={ONE_USER} --regid={ONE_USER} "
    '--clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override "$@";'
)
"""It may read what root may, since the interpreter may lie in root's home, and is counted."""


@pytest.fixture
def small_run(bench: Bench) -> Iterator[Bench]:
    """A launcher whose run lies on a disk of 1 MiB and 40 inodes."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=40", "tmpfs", str(bench.run.run_dir)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("mounting is not permitted here")
    yield bench
    subprocess.run(["umount", "-l", str(bench.run.run_dir)], check=True)


@pytest.fixture
def bench_of_one_user() -> Iterator[Bench]:
    """A launcher of a user whose processes are counted, as root's are not."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to be another user")
    made = Bench(AS_ONE_USER)
    yield made
    made.close()


def _lacked(report: AttemptEnded) -> tuple[str, int | None, str | None]:
    return report.outcome, report.errno, report.lacked


def test_a_disk_without_inodes_costs_nothing_and_keeps_none(small_run: Bench) -> None:
    filler = small_run.run.run_dir / "filler"
    filler.mkdir()
    small_run.launch("j-1.1", ["true"])
    assert small_run.ended("j-1.1").exit_code == 0
    _fill_inodes(filler)
    for number in range(2, 5):
        small_run.spawn(f"j-{number}.1", ["true"])
        ended = small_run.ended(f"j-{number}.1")
        assert _lacked(ended) == ("never_ran", errno.ENOSPC, "run_files")
        assert "0 of 40 inodes are free" in ended.detail
    shutil.rmtree(filler)
    small_run.launch("j-5.1", ["true"])
    assert small_run.ended("j-5.1").exit_code == 0
    assert not small_run.seen("spawn_failed")


def _fill_inodes(place: Path) -> None:
    for number in range(100):
        try:
            (place / str(number)).touch()
        except OSError:
            return
    raise AssertionError("the disk takes more than it should")


def test_a_failure_on_a_full_disk_says_so(small_run: Bench) -> None:
    small_run.run.run_dir.joinpath("filler").touch()
    fill = f"dd if=/dev/zero of={small_run.run.run_dir}/filler bs=4k 2>/dev/null; exit 1"
    small_run.launch("j-1.1", ["sh", "-c", fill])
    ended = small_run.ended("j-1.1")
    assert (ended.exit_code, ended.hint) == (1, "disk full at its end: 0.0 MiB of 1.0 MiB are free")
    small_run.run.run_dir.joinpath("filler").unlink()
    small_run.launch("j-2.1", ["false"])
    assert small_run.ended("j-2.1").hint == ""


def test_a_run_directory_that_is_away_for_a_moment_fails_no_job(bench: Bench) -> None:
    away = bench.run.run_dir.with_name("away")
    bench.run.run_dir.rename(away)
    bench.spawn("j-1.1", ["true"])
    assert _lacked(bench.ended("j-1.1")) == ("never_ran", errno.ENOENT, "run_files")
    away.rename(bench.run.run_dir)
    bench.launch("j-2.1", ["true"])
    assert bench.ended("j-2.1").exit_code == 0


def test_a_program_that_is_being_written_never_ran(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    with program.open("r+b"):
        bench.ready("j-1.1", [str(program)])
        bench.go("j-1.1")
        assert _lacked(bench.ended("j-1.1")) == ("never_ran", errno.ETXTBSY, "process")
    bench.launch("j-2.1", [str(program)])
    assert bench.ended("j-2.1").exit_code == 0


def test_no_process_for_a_shim_or_for_an_evaluator_is_a_lack_of_the_hosts(
    bench_of_one_user: Bench,
) -> None:
    bench = bench_of_one_user
    with _hogs(PROCESSES_MAX):
        bench.spawn("j-1.1", ["true"])
        ended = bench.ended("j-1.1")
    assert _lacked(ended) == ("never_ran", errno.EAGAIN, "process")
    assert ended.detail.startswith("fork: Resource temporarily unavailable: ")
    assert f"{PROCESSES_MAX} processes of this user (ulimit -u)" in ended.detail
    assert not bench.run.attempt("j-1.1").exists(), "nothing is left of it"
    bench.ready("j-2.1", ["true"])
    with _hogs(PROCESSES_MAX):
        bench.go("j-2.1")
        ended = bench.ended("j-2.1")
        assert _lacked(ended) == ("never_ran", errno.EAGAIN, "process")
        assert f"{PROCESSES_MAX} processes of this user (ulimit -u)" in ended.detail
    bench.launch("j-3.1", ["true"])
    assert bench.ended("j-3.1").exit_code == 0


@contextmanager
def _hogs(count: int) -> Iterator[None]:
    """So many processes of that user."""
    me = ["setpriv", f"--reuid={ONE_USER}", f"--regid={ONE_USER}", "--clear-groups"]
    hogs = [subprocess.Popen([*me, "sleep", "100"]) for _ in range(count)]
    try:
        wait_until(lambda: all(_uid(hog.pid) == ONE_USER for hog in hogs), "them to be that user's")
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _uid(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid
