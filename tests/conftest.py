"""What every test gets: its own runtime and host scope directories, and a guard against leaks.

A test may not leave a process behind. The guard compares the processes before and after; new ones
that descend from this process, or that carry this test's PRAXIST_ZMQ_HOST_DIR in their
environment, or that name its directories in their arguments, fail the test and are killed. The
claim registry outlives runs by design, so it is asked to end first and doesn't count.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.leaks import Process, leaked, pids
from tests.support.wait import wait_until

LEAK_GRACE_S = 15.0

# A shell that runs the tests in the background has SIGINT ignored, nohup(1) SIGHUP, and whoever we
# start would inherit that: these signals would then end nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Told to end, the tests take down what they started, as after Ctrl-C.
signal.signal(signal.SIGTERM, signal.default_int_handler)

hypothesis.settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, max_examples=60, print_blob=True
)
hypothesis.settings.register_profile("dev", deadline=None, max_examples=60)
hypothesis.settings.register_profile("long", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def runtime_directory() -> Iterator[Path]:
    """This test worker's PRAXIST_ZMQ_RUNTIME_DIR: short, private, removed at the end."""
    saved = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("PRAXIST_")]:
        if name != "PRAXIST_ZMQ_VENV":
            del os.environ[name]
    directory = Path(tempfile.mkdtemp(prefix="pz-", dir="/tmp"))
    os.environ["PRAXIST_ZMQ_RUNTIME_DIR"] = str(directory / "r")
    os.environ["PRAXIST_ZMQ_HOST_DIR"] = str(directory / "h0")
    yield directory
    os.environ.clear()
    os.environ.update(saved)
    shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def host_directory(
    runtime_directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """A fresh PRAXIST_ZMQ_HOST_DIR for each test; fails the test if it leaves a process."""
    directory = runtime_directory / f"h{next(_numbers)}"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("PRAXIST_ZMQ_HOST_DIR", str(directory))
    marks = (str(directory), str(tmp_path_factory.getbasetemp()))
    before = pids()
    yield directory
    survivors = end_of_test(before, marks)
    shutil.rmtree(directory)
    if survivors:
        pytest.fail("the test left processes behind: " + "; ".join(map(str, survivors)))


def end_of_test(before: frozenset[int], marks: tuple[str, str]) -> list[Process]:
    """The processes that the test left and that do not end by themselves; they are killed."""
    found = leaked(before, marks)
    if not found:
        return []
    for process in found:
        if process.is_registry:
            process.signal(signal.SIGTERM)
    try:
        wait_until(lambda: not leaked(before, marks), "processes to end", LEAK_GRACE_S)
    except AssertionError:
        survivors = leaked(before, marks)
        for process in survivors:
            process.signal(signal.SIGKILL)
        wait_until(lambda: not leaked(before, marks), "killed processes to be gone")
        return survivors
    return []
