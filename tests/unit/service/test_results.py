"""The reader of a task's result store: what it understands, what it tells, what bounds it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.bounded_run import CommandOutput, run_bounded
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.protocol.reports import StoreResult
from praxist_zmq.service.child_config import ResultsCommand
from praxist_zmq.service.results import understand
from praxist_zmq.service.results_choice import NO_READER, choose_reader, remember_reader
from tests.support.run import ROOT
from tests.support.wait import wait_until

COMMAND = ResultsCommand(command=("cat", "results.jsonl"), cwd="/")


def test_lines_are_results_and_the_first_that_is_none_is_named() -> None:
    lines = (
        b'{"tag": "a", "peer": "p1", "mature": true, "generation": 3}\n\n'
        b'{"tag": "b"}\nnonsense\n{"tag": "c", "score": 1}\n{"tag": ""}\n{"tag": "d"}'
    )
    found, problem = understand(lines)
    assert found == [
        StoreResult(tag="a", peer="p1", mature=True, generation=3),
        StoreResult(tag="b"),
        StoreResult(tag="d"),
    ]
    assert problem is not None
    assert problem.startswith("line 4 of what it printed: ")


@pytest.fixture
def until() -> Iterator[int]:
    """A descriptor that is readable once its other end is closed, as stdin of a child is."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


def bounded(until: int, *words: str, time_ms: int = 5_000) -> CommandOutput | None:
    return run_bounded(
        words, cwd="/", environment={"PATH": os.environ["PATH"]}, time_ms=time_ms,
        out_bytes_max=1_000, until=until, clock=SystemClock(),
    )  # fmt: skip


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", text)


def test_what_a_command_prints(until: int) -> None:
    assert bounded(until, *python("print('x')")) == CommandOutput(b"x\n", None)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("/nowhere/at/all",), "/nowhere/at/all cannot be executed: No such file or directory"),
        (python("import sys; sys.exit('the store is away')"), "it ended with exit 1: the store"),
        (python("import os; os.kill(os.getpid(), 9)"), "it ended with signal 9"),
        (python("print('x' * 5000)"), "it printed more than 1000 bytes"),
    ],
)
def test_what_can_go_wrong(until: int, words: tuple[str, ...], problem: str) -> None:
    done = bounded(until, *words)
    assert done is not None
    assert done.problem is not None
    assert done.problem.startswith(problem)
    assert len(done.out) <= 1_000


def test_one_that_hangs_is_ended_with_its_children(until: int, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = (
        "import os, time; os.fork(); "
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    )
    done = bounded(until, *python(text), time_ms=700)
    assert done == CommandOutput(b"", "it had not ended after 0.7 s")
    wait_until(
        lambda: not any(alive(int(pid)) for pid in pids.read_text().split()), "both to be gone"
    )


def test_one_whose_reader_is_killed_ends_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = (
        "import os, time; os.fork(); "
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    )
    reader = (
        "import sys; from praxist_zmq.host.bounded_run import run_bounded; "
        "from praxist_zmq.host.clock import SystemClock; "
        f"run_bounded({python(text)!r}, cwd='/', environment={{}}, time_ms=60_000, "
        "out_bytes_max=1000, until=0, clock=SystemClock())"
    )
    process = subprocess.Popen([sys.executable, "-c", reader], cwd=ROOT, stdin=subprocess.PIPE)
    try:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "both to run")
    finally:
        process.kill()
        process.communicate()
    wait_until(
        lambda: not any(alive(int(pid)) for pid in pids.read_text().split()), "both to be gone"
    )


def test_the_command_inherits_what_it_would_without_a_guard(until: int) -> None:
    done = bounded(until, "cat", "/proc/self/environ")
    assert done == CommandOutput(f"PATH={os.environ['PATH']}\0".encode(), None)
    words = ("grep", "SigIgn", "/proc/self/status")
    plain = subprocess.run(words, capture_output=True, check=True).stdout
    told = bounded(until, *words)
    assert told is not None
    # posix_spawn(3) of glibc leaves its own two, 32 and 33, ignored.
    ignored = [int(out.split()[1], 16) & 0x7FFF_FFFF for out in (plain, told.out)]
    assert ignored[0] == ignored[1]
    done = bounded(until, "ls", "/proc/self/fd")
    assert done == CommandOutput(b"0\n1\n2\n3\n", None), "3 is the listing itself"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def test_it_is_left_when_the_supervisor_goes() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert bounded(reading, *python("import time; time.sleep(60)")) is None
    os.close(reading)


def test_the_command_is_kept_for_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "results_command.json"
    assert choose_reader(path, None) is None
    remember_reader(path, choose_reader(path, COMMAND))
    assert choose_reader(path, None) == COMMAND
    assert choose_reader(path, NO_READER) is None
    remember_reader(path, None)
    assert choose_reader(path, None) is None
    path.write_text('{"command": []}')
    with pytest.raises(PraxistError) as error:
        choose_reader(path, None)
    assert error.value.code == "path_unusable"


@pytest.mark.parametrize("word", ["--key=0123456789abcdef0", "ghp_" + "a" * 36])
def test_a_command_with_a_credential_in_its_words_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("MY_STORE_TOKEN", "0123456789abcdef0")
    with pytest.raises(PraxistError) as caught:
        choose_reader(tmp_path / "r.json", ResultsCommand(command=("list", word), cwd="/"))
    assert caught.value.code == "literal_secret"
    assert "0123456789" not in str(caught.value)
