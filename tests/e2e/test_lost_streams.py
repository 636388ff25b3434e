"""Where words cannot be written: a full disk, a terminal that is gone. A job's code is kept, a
failed answer is one line and a code of the table, and nobody is shown a traceback."""

from __future__ import annotations

import os
import pty
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun

FAIL = ("--", "sh", "-c", "exit 7")


@contextmanager
def _full() -> Iterator[int]:
    full = os.open("/dev/full", os.O_WRONLY)
    yield full
    os.close(full)


@contextmanager
def _gone() -> Iterator[int]:
    """A terminal whose other side hung up."""
    master, terminal = pty.openpty()
    os.close(master)
    yield terminal
    os.close(terminal)


def _call(run: Run, *words: str, **streams: int) -> tuple[int, str, str]:
    made = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    process = subprocess.run(
        run.words(*words), env=run.environment, cwd=run.dir.parent, stdin=subprocess.DEVNULL,
        timeout=60, text=True, check=False, **made,
    )  # fmt: skip
    return process.returncode, process.stdout or "", process.stderr or ""


@pytest.mark.parametrize("lost", [_full, _gone])
def test_talk_and_answers_that_cannot_be_written(
    make_run: MakeRun, lost: Callable[[], Iterator[int]]
) -> None:
    run = make_run(slots=2, retries=0)
    run.environment["TMPDIR"] = str(run.dir.parent)
    run.up()
    with lost() as nowhere:  # type: ignore[attr-defined]
        tags = iter(f"t{number}" for number in range(20))
        launch = ["launch", "--peer", "p"]
        for more in ([], ["--json"]):
            for streams in ({"stderr": nowhere}, {"stdout": nowhere, "stderr": nowhere}):
                words = [*more, *launch, "--tag", next(tags), *FAIL]
                assert _call(run, *words, **streams)[0] == 7
            for end, code in ((FAIL, 7), (("--", "true"), 0)):
                words = [*more, *launch, "--tag", next(tags), *end]
                status, _, told = _call(run, *words, stdout=nowhere)
                assert status == code, "the job's, whatever could be told"
                assert "Traceback" not in told
        for words in (["status"], ["queue", "--json"], ["version"], ["--help"], ["events"]):
            status, _, told = _call(run, *words, stdout=nowhere)
            assert status == 73, words
            assert told.count("\n") == 1, words
            assert "could not be written" in told
            assert _call(run, *words, stdout=nowhere, stderr=nowhere)[0] == 73
        assert _call(run, "show-nothing", stderr=nowhere)[0] == 2
    assert not list(Path(run.dir.parent).glob("*fault*"))


def test_a_client_in_a_forked_child_says_so_at_once(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    with run.client() as client, tempfile.TemporaryFile() as said:
        client.ping()
        child = os.fork()
        if child == 0:
            try:
                client.ping()
            except PraxistError as error:
                os.write(said.fileno(), f"{error.code} {error.detail}".encode())
            client.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        said.seek(0)
        assert said.read().startswith(b"usage a Client is for one thread of one process")
        assert client.ping()
