"""Faults at exact points, without hooks in the product: strace(1) attached to a process of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from .wait import wait_until


@cache
def works() -> str | None:
    """None, or why strace can't be used here."""
    try:
        done = subprocess.run(
            ["strace", "-qq", "-e", "trace=none", "true"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return "strace is not installed"
    return None if done.returncode == 0 else "strace is not permitted to trace here"


@contextmanager
def injected(pid: int, calls: str, what: str, when: int, *, follow: bool = False) -> Iterator[None]:
    """While it lasts, the `when`-th of `calls` of process `pid` gets `what` (`signal=SIGKILL`)."""
    words = ["strace", "-qq", "-o", "/dev/null", *(["-f"] if follow else []), "-p", str(pid)]
    words += ["-e", f"trace={calls}", "-e", f"inject={calls}:{what}:when={when}"]
    tracer = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _traced(pid) or tracer.poll() is not None, "strace to attach")
        yield
    finally:
        tracer.terminate()
        try:
            tracer.wait(timeout=5)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()


def _traced(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status") as stream:
            return any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in stream)
    except OSError:
        return False
