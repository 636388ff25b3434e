"""A plain child begins only at the word, and only under a manifest. In processes of their own,
because a fork belongs in a process with one thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[3]


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_it_never_begins_when_its_parent_dies_before_the_word(tmp_path: Path, end: str) -> None:
    program = f"""
import os, sys
from praxist_zmq.host.plain_child import PlainChild
child = PlainChild([b"touch", os.fsencode(sys.argv[1])], None, to_stderr=False)
print(child.pid, flush=True)
{end}
"""
    pid = python(program, str(tmp_path / "began")).stdout.strip()

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(gone, "the child's end")
    assert not (tmp_path / "began").exists()


def test_it_never_begins_when_it_is_abandoned(tmp_path: Path) -> None:
    program = """
import os, sys
from praxist_zmq.host.plain_child import PlainChild
child = PlainChild([b"touch", os.fsencode(sys.argv[1])], None, to_stderr=False)
child.abandon()
assert not os.path.exists(f"/proc/{child.pid}")
"""
    done = python(program, str(tmp_path / "began"))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "began").exists()


def test_a_signal_before_the_word_is_how_it_ended(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from praxist_zmq.host.plain_child import PlainChild
child = PlainChild([b"touch", os.fsencode(sys.argv[1])], None, to_stderr=False)
os.kill(os.getpid(), signal.SIGTERM)
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
child.release()
print(child.wait())
"""
    done = python(program, str(tmp_path / "began"))
    assert done.stdout.strip() == "killed by SIGTERM", done.stderr
    assert not (tmp_path / "began").exists()


def test_a_fence_between_the_manifest_and_the_word(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from praxist_zmq.errors import PraxistError
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.host.protected import ProtectedFolder
from praxist_zmq.service.peer_start import PeerStart, Slot, start_as_peer
run = RunPaths.of(sys.argv[1])
plain = ProtectedFolder.write
def write(self, manifest):
    plain(self, manifest)
    run.shutdown_fence.touch()
ProtectedFolder.write = write
start = PeerStart(Slot("p1", "t"), (b"touch", str(run.run_dir / "began").encode()))
try:
    start_as_peer(run, start, print, print)
except PraxistError as error:
    print(error.code)
"""
    done = python(program, str(tmp_path))
    assert done.stdout.strip() == "admission_closed", done.stderr
    assert not (tmp_path / "began").exists()
    assert [path.name for path in (tmp_path / "protected_pids").iterdir()] == [".lock"]
