"""What running attempts tell of their progress: kept in memory, shown, and used for nothing.

The gateway lets in the run's own user alone. That the sender is of the attempt rests on its own
word when it names the evaluator's group: that catches an environment that was copied to another
process, not a liar of the same user, who could only make a number on a screen wrong. From any other
group the launcher looks whether the sender is inside (`core.nested`). A
number that would go back is passed over without an error, since workers that tell side by side
overtake each other. Source: seed 000 "Natural-Unit Parallelism" (monotonic, task-owned).
"""

from __future__ import annotations

from ..protocol import limits
from ..protocol import requests as req
from ..protocol.ids import job_of
from ..protocol.replies import ProgressNoted
from ..protocol.views import Progress
from .credentials import redact
from .state import Attempt
from .timestamps import timestamp
from .turn import Refused, Turn


def check(turn: Turn, request: req.ReportProgress) -> Attempt:
    """The attempt that it is about, as long as anything of it lives. Raises `malformed_request`,
    `too_large`, `unknown_job`."""
    if request.done > request.total:
        raise Refused("malformed_request", f"{request.done} of {request.total} steps are done")
    size = len(request.text.encode())
    if size > limits.PROGRESS_TEXT_BYTES_MAX:
        most = limits.PROGRESS_TEXT_BYTES_MAX
        raise Refused("too_large", f"the text has {size} bytes; {most} at most")
    attempt = turn.state.attempts.get(request.attempt)
    if attempt is None:
        raise Refused("unknown_job", f"attempt {request.attempt} does not run")
    return attempt


def not_inside(request: req.ReportProgress) -> Refused:
    """The refusal of news from a process that is not the attempt's."""
    return Refused(
        "not_yours",
        f"process group {request.pgid} is not of attempt {request.attempt}",
        [f"only the processes of {job_of(request.attempt)} may tell its progress"],
    )


def take(turn: Turn, attempt: Attempt, request: req.ReportProgress) -> ProgressNoted:
    """Keep it for the views."""
    state, kept = turn.state, turn.soft.progress
    known = kept.get(request.attempt)
    if known is not None and request.done < known.done:
        return ProgressNoted(taken=False, progress=known)
    progress = Progress(
        done=request.done,
        total=request.total,
        text=redact(request.text, turn.secrets_of(attempt.job)),
        at=timestamp(turn.stamp.at_ms),
    )
    kept[request.attempt] = progress
    if len(kept) > len(state.attempts):
        for name in [name for name in kept if name not in state.attempts]:
            del kept[name]
    return ProgressNoted(taken=True, progress=progress)
