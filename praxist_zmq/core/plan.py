"""Start what may start: ask the registry to commit a placement for one waiting job after another.

Once a turn. A lane whose head is blocked is passed over; the others go on. Source: design 3 ("Plan
and apply across runs"), seed 000 (queue order, exploration reserve).
"""

from __future__ import annotations

from ..protocol.claims import Envelope, Reserve
from ..protocol.ids import attempt_id
from .admission import lane_gates, run_gates
from .credentials import missing_credentials
from .queue import Lane
from .soft import Denial, Plan, SoftState
from .state import Job
from .turn import Turn

DENIED_PAUSE_MS = 2_000
DETAIL_CHARACTERS_MAX = 300
OF_ALL_JOBS = frozenset({"busy", "stale_epoch"})
"""Codes of the registry's that say nothing of the one job it was asked for."""


def plan(turn: Turn) -> None:
    """Reserve for every waiting job that passes all gates, in queue order."""
    soft, state = turn.soft, turn.state
    _let_back(turn)
    blocked: set[Lane] = set()
    while soft.queue and not run_gates(state, soft).blockers:
        chosen = _next(turn, blocked)
        if chosen is None:
            return
        job, envelope = chosen
        soft.queue.remove(job.job)
        if set_aside_without_credentials(turn, job):
            continue
        attempt = attempt_id(job.job, job.attempt_counter + 1)
        request_id = turn.claim(
            Reserve(run_key=soft.run_key, epoch=state.epoch, attempt=attempt, envelope=envelope),
            "reserve",
            attempt,
        )
        version = soft.host_view.version if soft.host_view is not None else 0
        soft.plans[attempt] = Plan(job.job, attempt, envelope, request_id, version)
        for uuid in envelope.device_uuids:
            soft.planned_devices[uuid] = attempt


def _next(turn: Turn, blocked: set[Lane]) -> tuple[Job, Envelope] | None:
    state, soft = turn.state, turn.soft
    reserve = state.policy.exploration_reserve
    for lane, name in soft.queue.heads(non_mature_first=reserve > soft.active_non_mature):
        if lane in blocked:
            continue
        gates = lane_gates(state.policy.profiles.get(lane[1]), state, soft)
        if gates.envelope is None:
            blocked.add(lane)
            continue
        return state.jobs[name], gates.envelope
    return None


def _let_back(turn: Turn) -> None:
    """Ask again for what the registry denied, once the answer may be another."""
    soft = turn.soft
    if soft.registry_denial is not None and not soft.registry_denial.holds(soft):
        soft.registry_denial = None
    for name in [name for name, denial in soft.held_back.items() if not denial.holds(soft)]:
        del soft.held_back[name]
        soft.queue.put(turn.state.jobs[name])


def denied(turn: Turn, attempt: str, code: str, detail: str) -> None:
    """The registry did not commit a plan.

    When the plan was made with a view that is old now, the job is planned again with the new one.
    Else it would be denied again: it is held back until the view changes or some time passes. What
    is no matter of the one job holds all of them back.
    """
    soft = turn.soft
    found = drop_plan(turn, attempt, put_back=True)
    version = soft.host_view.version if soft.host_view is not None else 0
    denial = Denial(code, detail[:DETAIL_CHARACTERS_MAX], version, soft.now_ms + DENIED_PAUSE_MS)
    if code in OF_ALL_JOBS:
        soft.registry_denial = denial
        return
    if found is None or code == "unknown_run" or found.view_version != version:
        return
    if soft.queue.remove(found.job):
        soft.held_back[found.job] = denial
        soft.touched[found.job] = None


def denial_due_ms(soft: SoftState) -> int | None:
    """When something that was denied is asked again without a change of the view."""
    denials = [*soft.held_back.values()]
    if soft.registry_denial is not None:
        denials.append(soft.registry_denial)
    return min((denial.until_ms for denial in denials), default=None)


def set_aside_without_credentials(turn: Turn, job: Job) -> bool:
    """Set a job aside if its secrets are not in memory: they do not survive a restart."""
    stored = turn.state.environments[job.environment_id].variables
    if not missing_credentials(stored, turn.soft.vault.get(job.job)):
        return False
    turn.soft.lacking_credentials[job.job] = None
    turn.soft.touched[job.job] = None
    return True


def drop_plan(turn: Turn, attempt: str, put_back: bool) -> Plan | None:
    """A plan is over. Put its job back in its place, if asked and if it still waits."""
    soft = turn.soft
    found = soft.plans.pop(attempt, None)
    if found is None:
        return None
    for uuid in found.envelope.device_uuids:
        soft.planned_devices.pop(uuid, None)
    job = turn.state.jobs.get(found.job)
    if put_back and job is not None and job.state == "queued":
        soft.queue.put(job)
    return found
