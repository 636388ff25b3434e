"""`queue -w`: a view that is drawn again, and leaves the terminal as it was."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator

import pytest

from praxist_zmq.host.clock import SystemClock
from tests.support.run import Run
from tests.support.wait import wait_until

OPENED, CLOSED = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"


class OnTerminal:
    """A command on a pseudo-terminal of its own."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.out = b""
        self.process = subprocess.Popen(
            words, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)

    def read(self) -> bytes:
        """All that it wrote until now."""
        with contextlib.suppress(OSError):  # EIO: the command is gone
            while select.select([self._ours], [], [], 0.05)[0]:
                piece = os.read(self._ours, 65_536)
                if not piece:
                    break
                self.out += piece
        return self.out

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def watched(run: Run) -> Iterator[OnTerminal]:
    with run.client() as client:
        run.submit(client, "first", f"wait:{run.gate('go')}")
    run.until_started("j-1.1")
    environment = {**run.environment, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    shown = OnTerminal(run.words("queue", "-w", "0.2"), environment)
    yield shown
    shown.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_follows_the_queue_and_leaves_no_mess(
    run: Run, watched: OnTerminal, number: signal.Signals
) -> None:
    wait_until(lambda: watched.read().count(b"\x1b[H") >= 2, "two frames")
    assert watched.out.startswith(OPENED)
    assert b"first" in watched.out
    with run.client() as client:
        run.submit(client, "second", f"wait:{run.gate('go')}")
    wait_until(lambda: b"second" in watched.read(), "the new job")
    watched.process.send_signal(number)
    began = SystemClock().mono_ms()
    assert watched.process.wait(20) == 130
    assert SystemClock().mono_ms() - began < 15_000
    assert watched.read().endswith(CLOSED), "the last thing: the screen is as it was"
    assert watched.out.count(OPENED) == watched.out.count(CLOSED) == 1


def test_it_waits_for_a_scheduler_that_is_away(run: Run, watched: OnTerminal) -> None:
    wait_until(lambda: b"first" in watched.read(), "the first frame")
    run.down()
    wait_until(lambda: b"unavailable" in watched.read(), "that it is away")
    assert watched.process.poll() is None
    seen = len(watched.out)
    run.up()
    wait_until(lambda: b"first" in watched.read()[seen:], "the queue again")


def test_in_a_pipe_it_writes_one_after_another(run: Run) -> None:
    process = run.start("queue", "-w", "0.2", "--json")
    assert process.stdout is not None
    assert [process.stdout.readline()[:40] for _ in range(2)] == [
        '{"format_version":"1.0","kind":"queue","'
    ] * 2
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
