"""The pause of one job before it is tried again by itself, longer each time.

What made an attempt fail for a while (a licence server, a mount, a lack of the host's) needs time
to pass; an attempt that follows at once meets it again. A pause holds one job and its place in the
queue, no other. It starts anew when the scheduler does, less what has gone by.
Sources: seed 000 "Submission" (exit 75); design 5.
"""

from __future__ import annotations

from ..protocol.policy import SchedulerPolicy
from ..protocol.views import Blocker
from .soft import Pause, SoftState
from .state import BrokerState, Job

RETRY_PAUSE_MAX_MS = 600_000
WITHDRAWN_PAUSE_MS, WITHDRAWN_PAUSE_MAX_MS = 2_000, 60_000
DOUBLINGS_MAX = 20


def pause_of(job: Job, policy: SchedulerPolicy) -> tuple[int, str]:
    """For how many milliseconds, and why, a job that was put back in the queue pauses."""
    if job.requeue_reason == "exit_75":
        first_ms = round(policy.infrastructure_retry_pause_seconds * 1000)
        length_ms = _grown(first_ms, RETRY_PAUSE_MAX_MS, job.retries_used)
        return length_ms, "its last attempt ended with exit 75"
    if job.requeue_reason == "host_shortage":
        length_ms = _grown(WITHDRAWN_PAUSE_MS, WITHDRAWN_PAUSE_MAX_MS, job.shortages_in_a_row)
        return length_ms, "the host lacked what its last attempt needed to start"
    return 0, ""


def _grown(first_ms: int, most_ms: int, times: int) -> int:
    return min(most_ms, first_ms << min(DOUBLINGS_MAX, max(0, times - 1)))


def enter(job: Job, state: BrokerState, soft: SoftState, elapsed_ms: int = 0) -> None:
    """Let a job wait for its pause, or for admission when it needs none. `elapsed_ms`: how long it
    has been queued."""
    length_ms, why = pause_of(job, state.policy)
    left_ms = length_ms - max(0, elapsed_ms)
    if left_ms <= 0:
        soft.queue.put(job)
        return
    soft.pauses[job.job] = Pause(soft.now_ms + left_ms, why)
    soft.touched[job.job] = None


def advance(state: BrokerState, soft: SoftState) -> None:
    """Put back what has paused for long enough."""
    for name in [name for name, pause in soft.pauses.items() if soft.now_ms >= pause.until_ms]:
        del soft.pauses[name]
        soft.queue.put(state.jobs[name])
        soft.touched[name] = None


def due_ms(soft: SoftState) -> int | None:
    """When `advance` has something to do."""
    return min((pause.until_ms for pause in soft.pauses.values()), default=None)


def pause_blocker(pause: Pause, soft: SoftState) -> Blocker:
    """Why a job waits that pauses, with the time that is left."""
    left_s = max(0, pause.until_ms - soft.now_ms + 999) // 1000
    return Blocker(code="retry_pause", detail=f"{pause.why}; it is tried again in {left_s} s")
