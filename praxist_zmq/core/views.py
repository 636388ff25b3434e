"""What readers are shown of a job. The command and the environment never are."""

from __future__ import annotations

import math

from ..protocol.job_states import JobState
from ..protocol.process import ProcessIdentity
from ..protocol.views import Blocker, JobView
from . import leftovers
from .activity import activity
from .admission import BlockerTable, coarse_reason, credential_blocker, registry_silence
from .credentials import missing_credentials
from .reservation import DEPARTURE_SHARE, expected_end_ms
from .sharing import shared_words
from .soft import SoftState
from .state import Attempt, BrokerState, Job
from .timestamps import rfc3339, timestamp
from .turn import Turn


def shown_state(soft: SoftState, job: Job) -> JobState:
    """The state readers see: a queued job whose secrets are gone waits for them."""
    if job.job in soft.lacking_credentials:
        return "waiting_for_credentials"
    state: JobState = job.state  # type: ignore[assignment]
    return state


class Viewer:
    """Views at one moment; the blockers of a lane are worked out once."""

    def __init__(self, state: BrokerState, soft: SoftState) -> None:
        self._state = state
        self._soft = soft
        self._table = BlockerTable(state, soft)
        self._shared: dict[str, str] | None = None

    def blockers(self, job: Job) -> tuple[Blocker, ...]:
        """Why a job waits; empty when it does not."""
        if job.state != "queued":
            return ()
        if job.job in self._soft.lacking_credentials:
            stored = self._state.environments[job.environment_id].variables
            names = missing_credentials(stored, self._soft.vault.of(job.job))
            return (credential_blocker(names),)
        return self._table.of(job)

    def job(self, job: Job) -> JobView:
        """The view of one job."""
        attempt = self._state.live_attempt(job)
        blockers = self.blockers(job)
        leader = attempt.leader if attempt is not None and attempt.phase == "running" else None
        number = None if leader is None or self._is_foreign(leader) else leader.pid
        shown_attempt = job.attempt
        return JobView.known(
            job=job.job,
            job_id=job.job_id,
            run_id=self._state.run_id,
            generation=job.generation,
            tag=job.tag,
            peer=job.peer,
            profile=job.profile,
            work_class=job.work_class,
            state=shown_state(self._soft, job),
            attempts=job.attempts_used,
            attempt=shown_attempt,
            pid=number,
            pgid=number,
            process=leader,
            gpu_uuids=job.device_uuids,
            exit_code=job.exit_code,
            signal=job.signal,
            submitted_at=timestamp(job.submitted_at_ms),
            queued_at=timestamp(job.queued_at_ms or job.submitted_at_ms),
            started_at=rfc3339(job.started_at_ms),
            ended_at=rfc3339(job.ended_at_ms),
            eta_seconds=None if job.eta_ms is None else job.eta_ms / 1000,
            lease_id=job.lease_id,
            blockers=blockers,
            queue_blocked_reason=coarse_reason(blockers),
            reject_code=job.reject_code,
            failure_category=job.failure_category,
            failure_signature=_why_ended(job),
            failure_hint=job.failure_hint,
            log_path=self.log_path(shown_attempt),
            binding_status=job.binding_status,
            depends_on=(),
            version=job.version,
            note=self._note(job, attempt),
            resource_activity=(
                None
                if attempt is None or job.state != "running"
                else activity(attempt, self._state, self._soft)
            ),
            left_s=self._left_s(attempt),
            progress=None if attempt is None else self._soft.progress.get(attempt.attempt),
        )

    def _is_foreign(self, process: ProcessIdentity) -> bool:
        """Whether its number means another process here: it is of another boot or namespace."""
        own = self._soft.broker
        return own is not None and (process.boot_id, process.pid_namespace) != (
            own.boot_id,
            own.pid_namespace,
        )

    def _left_s(self, attempt: Attempt | None) -> float | None:
        if attempt is None or attempt.phase != "running":
            return None
        end_ms = expected_end_ms(attempt, self._state, self._soft, DEPARTURE_SHARE)
        return None if math.isinf(end_ms) else max(0.0, end_ms - self._soft.now_ms) / 1000

    def _note(self, job: Job, attempt: Attempt | None) -> str | None:
        if attempt is None:
            return _note(job, attempt, self._soft)
        if self._shared is None:
            self._shared = shared_words(self._soft)
        shared = next((self._shared[u] for u in attempt.device_uuids if u in self._shared), None)
        return _note(job, attempt, self._soft) or shared or barrier_words(attempt, self._soft)

    def log_path(self, attempt: str | None) -> str | None:
        """The log of an attempt."""
        if attempt is None:
            return None
        return f"{self._soft.run_dir}/logs/experiments/{attempt}.log"


def cancelled_words(reason: str) -> str:
    """`cancelled: REASON`; a reason that says no more is not told twice."""
    return "cancelled" if reason in ("", "cancelled") else f"cancelled: {reason}"


def _why_ended(job: Job) -> str | None:
    """The reason of whoever ended or refused it, else the last telling line of its log."""
    asked = job.cancel_reason if job.state == "cancelled" else None
    return job.failure_signature or job.reject_detail or asked


REQUEUED = {
    "exit_75": "it ended with exit 75, which asks for another",
    "never_ran": "it never ran",
    "lost": "its end is not known, and its profile says `on_lost: requeue`",
    "spawn_failed": "it could not be prepared",
    "host_shortage": "the host lacked what it needed to start",
    "room_gone": "its devices were taken, or the host became too busy, before it began",
}
"""Why a job waits again, of its last attempt."""


def _note(job: Job, attempt: Attempt | None, soft: SoftState) -> str | None:
    unusual = None if attempt is None else leftovers.note(attempt, soft)
    if unusual is not None:
        return unusual
    if job.state == "running" and job.cancel_reason is not None:
        return f"ending: {job.cancel_reason}"
    if job.binding_status == "conflict":
        return f"binding conflict: {job.binding_detail}"
    if job.state == "failed" and job.cancel_reason and job.failure_category == "interrupted":
        # As earlier releases recorded a job that was ended.
        return cancelled_words(job.cancel_reason)
    if job.state == "queued" and job.requeue_reason is not None:
        return REQUEUED[job.requeue_reason]
    return None


def barrier_words(attempt: Attempt, soft: SoftState) -> str | None:
    """What a process that is prepared waits for before it may begin; None when for nothing long."""
    if attempt.phase not in ("allocated", "bound") or attempt.attempt in soft.released:
        return None
    silence = registry_silence(soft)
    if silence is None and not soft.registry_ready:
        silence = "the host's claim registry does not answer"
    if silence is not None:
        return f"not begun yet: {silence}"
    if attempt.attempt in soft.go_held:
        return "not begun yet: it waits for a fresh look at its devices"
    return None


def view(turn: Turn, job: Job) -> JobView:
    """A job as it is now, in the middle of a turn."""
    if turn.viewer is None:
        turn.viewer = Viewer(turn.state, turn.soft)
    return turn.viewer.job(job)
