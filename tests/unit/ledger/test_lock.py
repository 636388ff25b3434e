"""One owner at a time; the lock ends with its holder and with nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger.lock import OwnerLock

HOLD = (
    "import sys\nfrom pathlib import Path\n"
    "from praxist_zmq.errors import PraxistError\n"
    "from praxist_zmq.ledger.lock import OwnerLock\n"
    "try: lock = OwnerLock.acquire(Path(sys.argv[1]), {'pid': 'holder'})\n"
    "except PraxistError as e: print(e.code, flush=True); sys.exit(1)\n"
    "if len(sys.argv) > 2:\n"
    "    import subprocess\n"
    "    child = subprocess.Popen(['sleep', '600'], close_fds=False, stdout=subprocess.DEVNULL)\n"
    "    print(child.pid, flush=True)\n"
    "print('held', flush=True)\nsys.stdin.read()\n"
)


def hold(path: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    lock = OwnerLock.acquire(path, {"pid": 17, "role": "broker"})
    inode = path.stat().st_ino
    with pytest.raises(PraxistError) as caught:
        OwnerLock.acquire(path, {"pid": 18})
    assert caught.value.code == "already_running"
    assert '"pid": 17' in caught.value.detail
    lock.release()
    lock.release()
    assert path.stat().st_ino == inode
    OwnerLock.acquire(path, {}).release()


def test_the_holders_words_are_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    path.write_bytes(b"\x1b[2J\xff" + b"1" * 10_000)
    OwnerLock.acquire(path, {"pid": 1}).release()
    lock = OwnerLock.acquire(path, {"pid": 1})
    path.write_bytes(b"\x1b[2J\xff" + b"1" * 10_000)
    with pytest.raises(PraxistError) as caught:
        OwnerLock.acquire(path, {})
    assert "\x1b" not in caught.value.detail
    assert len(caught.value.detail) < 700
    lock.release()


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "owner.lock"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
    with pytest.raises(PraxistError) as caught:
        OwnerLock.acquire(path, {})
    assert caught.value.code == "unsafe_path"
    assert not (tmp_path / "elsewhere").exists()


def test_of_many_that_start_together_one_wins(tmp_path: Path) -> None:
    processes = [hold(tmp_path / "owner.lock") for _ in range(6)]
    try:
        outcomes = sorted(line_of(process) for process in processes)
    finally:
        for process in processes:
            process.communicate(input="")
    assert outcomes == ["already_running"] * 5 + ["held"]


def test_a_child_that_outlives_the_holder_keeps_nothing(tmp_path: Path) -> None:
    process = hold(tmp_path / "owner.lock", "with a child")
    child = int(line_of(process))
    try:
        assert line_of(process) == "held"
        process.kill()
        process.communicate()
        os.kill(child, 0)
        OwnerLock.acquire(tmp_path / "owner.lock", {}).release()
    finally:
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()
