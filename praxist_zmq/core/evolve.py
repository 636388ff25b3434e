"""`apply(event, state)`: the only code that changes the broker's durable state.

The same for a live event and for one read back from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol import events as ev
from ..protocol import limits
from ..protocol.ids import attempt_number, job_number
from ..protocol.policy import SchedulerPolicy
from . import lease_evolve
from .attempt_evolve import OF_ATTEMPTS, advance
from .recorded_environments import drop_environment, use_environment
from .state import (
    Attempt,
    BrokerState,
    Generation,
    Job,
    Published,
    RecordedEnvironment,
    RequestRecord,
)
from .transitions import START, IllegalTransition, next_attempt_phase, next_job_state

FREED_BY_RERUN = frozenset({"generation_closing", "generation_assessment", "admission_closed"})
"""Jobs rejected with these by an old close, assessment or stop give their tag back when their
generation is run again. Source: the reference of the original system, "Freed identities"."""


def apply(event: Any, state: BrokerState, sequence: int) -> None:
    """Change `state` by one event. Raises IllegalTransition and changes nothing."""
    if sequence != state.last_sequence + 1:
        raise IllegalTransition("ledger", f"at {state.last_sequence}", f"sequence {sequence}")
    _APPLY[type(event)](event, state, sequence)
    state.last_sequence = sequence


def _broker_started(event: ev.BrokerStarted, state: BrokerState, sequence: int) -> None:
    state.run_id = event.run_id
    state.epoch = event.epoch
    state.boot_id = event.boot_id


def _policy_adopted(event: ev.PolicyAdopted, state: BrokerState, sequence: int) -> None:
    before, after = state.policy, event.policy
    if not state.generations or _bounds(before) != _bounds(after):
        state.limit = after.initial_concurrent_experiments
        state.limit_reason, state.limit_changed_at_ms, state.limit_before = "", None, None
    state.policy = after
    state.generation = event.generation
    current = _generation(event.generation, state, event.at_ms)
    current.cohort_size = event.cohort_size
    _set_deadline(current, event, state)


def _set_deadline(
    found: Generation, event: ev.PolicyAdopted | ev.GenerationOpened, state: BrokerState
) -> None:
    found.deadline_at_ms = event.deadline_at_ms
    found.deadline_mono_ms, found.deadline_boot_id = event.deadline_mono_ms, state.boot_id


def _generation(number: int, state: BrokerState, at_ms: int) -> Generation:
    """A generation; one that nobody opened by name is open from the first that is heard of it."""
    found = state.generations.get(number)
    if found is None:
        found = state.generations[number] = Generation(number, at_ms)
    return found


def _generation_opened(event: ev.GenerationOpened, state: BrokerState, sequence: int) -> None:
    found = _generation(event.generation, state, event.at_ms)
    found.phase, found.reason, found.signal = "open", None, False
    found.opened_at_ms = event.at_ms
    found.cohort_size = event.cohort_size
    _set_deadline(found, event, state)
    found.mature_quorum = event.mature_quorum
    found.peers = event.peers
    found.publish_completed = event.publish_completed
    found.attempts = 0
    state.generation = event.generation
    lease_evolve.forget_declines(state.leases, generation=event.generation)
    if event.rerun:
        for job in state.jobs.values():
            refused = job.generation == event.generation and job.reject_code in FREED_BY_RERUN
            # Freed once already, the identity may be another job's by now: that one keeps it.
            if refused and state.identities.get(job.identity) == job.job:
                del state.identities[job.identity]


def _generation_assessed(event: ev.GenerationAssessed, state: BrokerState, sequence: int) -> None:
    found = _generation(event.generation, state, event.at_ms)
    found.phase, found.reason = "assessment", event.reason


def _generation_frozen(event: ev.GenerationFrozen, state: BrokerState, sequence: int) -> None:
    found = _generation(event.generation, state, event.at_ms)
    if found.phase != "closed":  # closed already, it is only asked for its signal
        found.phase = "frozen"
    found.reason = event.reason
    found.signal = found.signal or event.signal


def _generation_closed(event: ev.GenerationClosed, state: BrokerState, sequence: int) -> None:
    _generation(event.generation, state, event.at_ms).phase = "closed"


def _result_published(event: ev.ResultPublished, state: BrokerState, sequence: int) -> None:
    found = _generation(event.generation, state, event.at_ms)
    known = found.results.get(event.tag)
    mature = event.mature or (known is not None and known.mature)
    peer = event.peer if known is None or known.peer is None else known.peer
    found.results[event.tag] = Published(event.tag, peer, mature, event.source, event.at_ms)


def _bounds(policy: SchedulerPolicy) -> tuple[int, int, int]:
    return (
        policy.min_concurrent_experiments,
        policy.initial_concurrent_experiments,
        policy.max_concurrent_experiments,
    )


def _limit_changed(event: ev.LimitChanged, state: BrokerState, sequence: int) -> None:
    state.limit_before = state.limit
    state.limit = event.limit
    state.limit_reason = event.reason
    state.limit_changed_at_ms = event.at_ms


def _environment_recorded(event: ev.EnvironmentRecorded, state: BrokerState, sequence: int) -> None:
    if event.environment_id not in state.environments:
        state.environments[event.environment_id] = RecordedEnvironment(event.variables)
        state.idle_environments += 1


def _job_queued(event: ev.JobQueued, state: BrokerState, sequence: int) -> None:
    if event.job in state.jobs:
        raise IllegalTransition(event.job, state.jobs[event.job].state, event.kind)
    use_environment(state, event.environment_id)
    job = Job(
        job=event.job,
        number=job_number(event.job),
        job_id=event.job_id,
        identity=event.identity,
        tag=event.tag,
        peer=event.peer,
        generation=event.generation,
        profile=event.profile,
        work_class=event.work_class,
        eta_ms=event.eta_ms,
        command=event.command,
        cwd=event.cwd,
        environment_id=event.environment_id,
        lease_id=event.lease_id,
        uid=event.uid,
        state=next_job_state(event.job, START, event.kind),
        submitted_at_ms=event.at_ms,
        queue_sequence=sequence,
        version=sequence,
        queued_at_ms=event.at_ms,
        not_secret=event.not_secret,
    )
    state.jobs[job.job] = job
    _generation(job.generation, state, event.at_ms).counts["queued"] += 1
    state.identities[job.identity] = job.job
    state.tags[job.tag] = job.job
    state.last_job_number = max(state.last_job_number, job.number)
    state.counts["queued"] += 1
    note_mature(job, state)
    lease_evolve.forget_declines(state.leases, peer=job.peer)
    _remember_request(event, state)


def _job_retried(event: ev.JobRetried, state: BrokerState, sequence: int) -> None:
    job = _job(event.job, state)
    new_state = next_job_state(job.job, job.state, event.kind)
    use_environment(state, event.environment_id)
    _move(job, new_state, state, sequence)
    job.profile = event.profile
    job.work_class = event.work_class
    job.eta_ms = event.eta_ms
    job.command = event.command
    job.not_secret = event.not_secret
    job.cwd = event.cwd
    job.environment_id = event.environment_id
    job.lease_id = event.lease_id
    job.queue_sequence = sequence
    job.queued_at_ms = event.at_ms
    # An explicit retry starts a fresh allowance of automatic ones.
    job.retries_used = 0
    job.withdrawn_in_a_row = job.shortages_in_a_row = 0
    _clear_outcome(job)
    state.identities[job.identity] = job.job
    note_mature(job, state)
    lease_evolve.forget_declines(state.leases, peer=job.peer)
    _remember_request(event, state)


def _job_requeued(event: ev.JobRequeued, state: BrokerState, sequence: int) -> None:
    job = _job(event.job, state)
    _move(job, next_job_state(job.job, job.state, event.kind), state, sequence)
    job.queued_at_ms = event.at_ms
    job.retries_used += event.consumed
    if event.reason == "host_shortage":
        job.shortages_in_a_row += 1
    else:
        job.shortages_in_a_row = 0
    if event.reason in ("never_ran", "host_shortage", "room_gone"):
        job.attempts_used -= 1
        job.withdrawn_in_a_row += event.reason == "never_ran"
    else:
        job.withdrawn_in_a_row = 0
    job.attempt = None
    job.device_uuids = ()
    job.started_at_ms = None
    job.requeue_reason = event.reason


def _job_rejected(event: ev.JobRejected, state: BrokerState, sequence: int) -> None:
    job = _job(event.job, state)
    _move(job, next_job_state(job.job, job.state, event.kind, event.state), state, sequence)
    job.ended_at_ms = event.at_ms
    job.reject_code = event.code
    job.reject_detail = event.detail
    drop_environment(state, job.environment_id)
    if event.frees_identity:
        state.identities.pop(job.identity, None)


def _job_cancel_requested(event: ev.JobCancelRequested, state: BrokerState, sequence: int) -> None:
    job = _job(event.job, state)
    _move(job, next_job_state(job.job, job.state, event.kind), state, sequence)
    job.cancel_reason = event.reason
    job.cancel_grace_ms = event.grace_ms
    job.cancel_at_ms = event.at_ms


def _attempt_allocated(event: ev.AttemptAllocated, state: BrokerState, sequence: int) -> None:
    job = _job(event.job, state)
    new_state = next_job_state(job.job, job.state, event.kind)
    if event.attempt in state.attempts:
        raise IllegalTransition(event.attempt, "present", event.kind)
    phase = next_attempt_phase(event.attempt, START, event.kind)
    _move(job, new_state, state, sequence)
    # Numbers of attempts that were found on disk are passed over.
    job.attempt_counter = max(job.attempt_counter + 1, attempt_number(event.attempt))
    job.attempts_used += 1
    job.attempt = event.attempt
    job.device_uuids = event.device_uuids
    _clear_outcome(job)
    state.attempts[event.attempt] = Attempt(
        attempt=event.attempt,
        job=event.job,
        device_uuids=event.device_uuids,
        exclusive=event.exclusive,
        memory_mib=event.memory_mib,
        utilization_pct=event.utilization_pct,
        phase=phase,
        allocated_at_ms=event.at_ms,
    )
    state.generations[job.generation].attempts += 1
    state.peers_running[job.peer] = state.peers_running.get(job.peer, 0) + 1
    for uuid in event.device_uuids:
        state.device_holders.setdefault(uuid, set()).add(event.attempt)


def _allocation_released(event: ev.AllocationReleased, state: BrokerState, sequence: int) -> None:
    attempt = advance(event.attempt, event.kind, state, sequence)
    for uuid in attempt.device_uuids:
        holders = state.device_holders[uuid]
        holders.discard(event.attempt)
        if not holders:
            del state.device_holders[uuid]
    peer = state.jobs[attempt.job].peer
    state.peers_running[peer] -= 1
    if not state.peers_running[peer]:
        del state.peers_running[peer]
    del state.attempts[event.attempt]


def _binding_observed(event: ev.BindingObserved, state: BrokerState, sequence: int) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is None:
        raise IllegalTransition(event.attempt, START, event.kind)
    job = state.jobs[attempt.job]
    job.binding_status = event.status
    job.binding_detail = event.detail
    job.version = sequence


def _job_finished(event: ev.JobFinished, state: BrokerState, sequence: int) -> None:
    job = _job(event.job, state)
    _move(job, next_job_state(job.job, job.state, event.kind, event.state), state, sequence)
    job.ended_at_ms = event.at_ms
    attempt = state.attempts.get(event.attempt)
    if event.state == "completed" and attempt is not None:
        wall_ms = event.at_ms - attempt.allocated_at_ms
        state.calibration.observe(job.profile, job.eta_ms, wall_ms)
    job.exit_code = event.exit_code
    job.signal = event.signal
    job.failure_category = event.failure_category
    job.failure_signature = event.failure_signature
    job.failure_hint = event.failure_hint
    drop_environment(state, job.environment_id)


def _admission_closed(event: ev.AdmissionClosed, state: BrokerState, sequence: int) -> None:
    state.closed_reason = event.reason


def _admission_opened(event: ev.AdmissionOpened, state: BrokerState, sequence: int) -> None:
    state.closed_reason = None


def _job(name: str, state: BrokerState) -> Job:
    job = state.jobs.get(name)
    if job is None:
        raise IllegalTransition(name, START, "any event but job_queued")
    return job


def _move(job: Job, new_state: str, state: BrokerState, sequence: int) -> None:
    counts = state.generations[job.generation].counts
    for kept in (state.counts, counts):
        kept[job.state] -= 1
        kept[new_state] += 1
    job.state = new_state
    job.version = sequence
    note_mature(job, state)


def note_mature(job: Job, state: BrokerState) -> None:
    """Keep the index of mature work that is queued or running."""
    found = state.mature_open.setdefault(job.generation, {})
    if job.work_class == "mature" and job.state in ("queued", "running"):
        found[job.job] = job
    else:
        found.pop(job.job, None)


def _clear_outcome(job: Job) -> None:
    job.started_at_ms = None
    job.ended_at_ms = None
    job.exit_code = None
    job.signal = None
    job.failure_category = None
    job.failure_signature = None
    job.failure_hint = None
    job.cancel_reason = None
    job.cancel_at_ms = None
    job.requeue_reason = None
    job.binding_status = None
    job.binding_detail = ""
    job.reject_code = None
    job.reject_detail = None


def _remember_request(event: ev.JobQueued | ev.JobRetried, state: BrokerState) -> None:
    if event.request_id is None or event.request_digest is None:
        return
    record = state.requests.get(event.request_id)
    if record is None:
        record = state.requests[event.request_id] = RequestRecord(event.request_digest)
        if len(state.requests) > limits.REQUEST_IDS_KEPT:
            state.requests.popitem(last=False)
    record.jobs[event.request_index] = event.job


_APPLY: dict[type, Callable[[Any, BrokerState, int], None]] = {
    ev.BrokerStarted: _broker_started,
    ev.PolicyAdopted: _policy_adopted,
    ev.EnvironmentRecorded: _environment_recorded,
    ev.JobQueued: _job_queued,
    ev.JobRetried: _job_retried,
    ev.JobRequeued: _job_requeued,
    ev.JobRejected: _job_rejected,
    ev.JobCancelRequested: _job_cancel_requested,
    ev.AttemptAllocated: _attempt_allocated,
    **OF_ATTEMPTS,
    ev.AllocationReleased: _allocation_released,
    ev.JobFinished: _job_finished,
    ev.GenerationOpened: _generation_opened,
    ev.GenerationAssessed: _generation_assessed,
    ev.GenerationFrozen: _generation_frozen,
    ev.GenerationClosed: _generation_closed,
    ev.ResultPublished: _result_published,
    ev.LeaseGranted: lambda event, state, _: lease_evolve.granted(event, state.leases),
    ev.LeaseEnded: lambda event, state, _: lease_evolve.ended(event, state.leases),
    ev.LeaseCounted: lambda event, state, _: lease_evolve.counted(event, state.leases),
    ev.LimitChanged: _limit_changed,
    ev.BindingObserved: _binding_observed,
    ev.AdmissionClosed: _admission_closed,
    ev.AdmissionOpened: _admission_opened,
}
