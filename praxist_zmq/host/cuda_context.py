"""The parent's side of `cuda_child`: starts it, hears its one line, and ends it whatever it does.

It hands the child an environment and decides nothing about it. A child is asked by the end of its
stdin, then by SIGTERM, then killed. Source: subprocess, poll(2).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import PraxistError
from . import cuda_child
from .device_driver import bounded_reason
from .spawn import Exit

ANSWER_BYTES_MAX = 4096
RELEASE_S = 1.0
TERM_S = 1.0
KILL_S = 2.0

AnswerState = Literal["held", "absent", "refused", "ended"]


@dataclass(frozen=True, slots=True)
class CudaAnswer:
    """What a child said: it holds a context, has no CUDA library, was refused, or ended silently.

    `uuid` is the driver's name of the device it got, `devices` how many it sees; None unless held.
    """

    state: AnswerState
    detail: str = ""
    uuid: str | None = None
    devices: int | None = None


class CudaContext:
    """One child and the context it holds. `answer` is None until it said something or ended."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Start the child. Raises PraxistError `start_failed`."""
        words = [sys.executable, "-I", "-S", cuda_child.__file__, str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                process_group=0,  # a Ctrl-C is the parent's: it ends its children in order
            )
        except OSError as error:
            raise PraxistError("start_failed", f"{words[0]}: {error.strerror}") from error
        self._heard = b""
        self.answer: CudaAnswer | None = None

    @property
    def pid(self) -> int:
        """Its process id in our pid namespace."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, and so still holds what it said it holds."""
        return self._process.poll() is None

    def fileno(self) -> int:
        """Readable when it says something or ends."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def hear(self) -> None:
        """Read what is there; call it when `fileno` is readable."""
        data = os.read(self.fileno(), ANSWER_BYTES_MAX)
        self._heard += data
        if b"\n" in self._heard:
            self.answer = _parsed(self._heard)
        elif not data or len(self._heard) > ANSWER_BYTES_MAX:
            self._process.terminate()
            self.answer = CudaAnswer("ended", f"the child ended: {self._wait_exit()}")

    def _wait_exit(self) -> str:
        if not self.has_ended(time.monotonic() + TERM_S):
            return "not yet"
        code = self._process.returncode
        return str(Exit(code, None) if code >= 0 else Exit(None, -code))

    def release(self) -> None:
        """Tell it to end: the end of its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def has_ended(self, deadline: float) -> bool:
        """Wait until the deadline of the monotonic clock; whether it ended."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self) -> None:
        """SIGTERM, unless it was reaped."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL, unless it was reaped."""
        self._process.kill()

    def close(self) -> None:
        """Let go of its stdout."""
        assert self._process.stdout is not None
        self._process.stdout.close()


def wait_answers(children: Sequence[CudaContext], timeout_ms: int) -> None:
    """Hear every child, for at most `timeout_ms` in all."""
    deadline = time.monotonic() + timeout_ms / 1000
    poll = select.poll()
    silent = {child.fileno(): child for child in children if child.answer is None}
    for descriptor in silent:
        poll.register(descriptor, select.POLLIN)
    while silent:
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0:
            return
        for descriptor, _events in poll.poll(left_ms):
            silent[descriptor].hear()
            if silent[descriptor].answer is not None:
                poll.unregister(descriptor)
                del silent[descriptor]


def end_all(children: Sequence[CudaContext]) -> None:
    """End all children: those that answered in order, those that hang at once.

    A process that even SIGKILL does not end, inside a broken driver, is left to the kernel, so that
    the check stays bounded.
    """
    for child in children:
        child.release()
    in_order = [child for child in children if child.answer is not None]
    _left(in_order, RELEASE_S)
    left = _left(children, 0.0)
    for child in left:
        child.terminate()
    left = _left(left, TERM_S)
    for child in left:
        child.kill()
    _left(left, KILL_S)
    for child in children:
        child.close()


def _left(children: Sequence[CudaContext], patience_s: float) -> list[CudaContext]:
    """Those that did not end in this time, shared by all."""
    deadline = time.monotonic() + patience_s
    return [child for child in children if not child.has_ended(deadline)]


def _parsed(line: bytes) -> CudaAnswer:
    """A child's line. It comes through a driver that may write there too, so it may be anything."""
    refused = CudaAnswer("refused", "the child said something that is no answer")
    try:
        told = json.loads(line.partition(b"\n")[0])
        state, detail = told["state"], bounded_reason(str(told.get("detail", "")))
        if state == "held":
            return CudaAnswer("held", detail, str(told["uuid"])[:96], int(told["count"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return refused
    return CudaAnswer(state, detail) if state in ("absent", "refused") else refused
