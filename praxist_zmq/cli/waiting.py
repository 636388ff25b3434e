"""Wait for one job: every change once, a sign of life now and then, never past the limit.

Asks the broker to answer on the next change; never polls. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import PraxistError
from ..host.clock import SystemClock
from ..protocol.envelope import Json
from .connect import Caller, ask
from .verdict import is_terminal_state

HEARTBEAT_S = 300.0
_CLOCK = SystemClock()


def now_s() -> float:
    """The wall clock, for words only; seconds since 1970."""
    return _CLOCK.wall_ms() / 1000


def mono_s() -> float:
    """The clock that durations are measured by; seconds."""
    return _CLOCK.mono_ms() / 1000


def next_change(client: Caller, job: Json, wait_s: float) -> Json | None:
    """The job once it has changed; None when it did not within `wait_s` seconds."""
    request = {
        "kind": "watch_job",
        "job": job["job"],
        "after_version": job["version"],
        "known_state": job["state"],
        "until": "change",
    }
    began = mono_s()
    try:
        reply = ask(client, request, max(wait_s, 0.05))
    except PraxistError as error:
        over = mono_s() - began >= wait_s - 0.05
        if error.code == "wait_timeout" or (error.code == "no_answer" and over):
            return None
        raise
    job_now: Json = reply["job"]
    return job_now


def changes(client: Caller, job: Json, until_s: float | None) -> Iterator[Json]:
    """The job's views as they change, up to and with the terminal one.

    The same view again is a heartbeat. `until_s` is a reading of `mono_s`. Raises `wait_timeout`
    when it passes.
    """
    known = job
    while not is_terminal_state(known):
        wait_s = HEARTBEAT_S
        if until_s is not None:
            wait_s = min(wait_s, until_s - mono_s())
            if wait_s <= 0:
                raise PraxistError(
                    "wait_timeout", f"{known['job']} is {known['state']} and goes on"
                )
        changed = next_change(client, known, wait_s)
        if changed is None and until_s is not None and mono_s() >= until_s - 0.05:
            raise PraxistError("wait_timeout", f"{known['job']} is {known['state']} and goes on")
        known = known if changed is None else changed
        yield known
