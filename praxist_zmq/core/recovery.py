"""After the replay: each job that has not ended gets back its credentials and its place."""

from __future__ import annotations

from collections.abc import Mapping

from ..protocol.text import OsText
from . import on_disk, pauses
from .plan import set_aside_without_credentials
from .turn import Turn
from .withdraw import end_without_attempt, reject


def resume_jobs(turn: Turn, remembered: Mapping[str, OsText]) -> None:
    """`remembered` are the credential values that outlived the last broker, by their hash."""
    state, soft = turn.state, turn.soft
    on_disk.take_note(turn, soft.remnants)
    for job in list(state.jobs.values()):
        if job.state == "running" and state.live_attempt(job) is None:
            end_without_attempt(turn, job)
        if remembered and job.state in ("queued", "running"):
            stored = state.environments[job.environment_id].variables
            soft.vault.recall(job.job, stored, remembered)
        if job.state != "queued":
            continue
        if job.job in soft.unreadable:
            detail = f"a record of it is unreadable: {soft.unreadable[job.job]}"
            reject(turn, job, "unreadable_record", detail, frees_identity=False)
        elif not on_disk.take_up(turn, job, at_start=True) and not set_aside_without_credentials(
            turn, job
        ):
            pauses.enter(job, state, soft, turn.stamp.at_ms - job.queued_at_ms)
    soft.vault.forget_unused(remembered)
