"""Start what may start: ask the registry to commit a placement for one waiting job after another.

Once a turn. The job that has waited longest for devices goes first when they are there; then every
lane in queue order. A lane whose head is blocked is passed over; the others go on. Source: design 3
("Plan and apply across runs"), design 5 ("No starvation"), seed 000 (queue order, exploration
reserve).
"""

from __future__ import annotations

from ..protocol.claims import DeviceFacts, Envelope, Reserve
from ..protocol.orders import SampleNow
from . import on_disk, pauses, start_gate
from .admission import ProfileGates, profile_gates, run_gates
from .credentials import missing_credentials
from .demand import demand_of
from .generation_gate import generation_refusal
from .last_look import expect_look, look_wanted
from .lease_grant import lease_of
from .next_number import next_attempt
from .queue import Lane, lane_of
from .reservation import kept_places, reservation_for, rests_on, still_holds
from .slots import at_cap, planned_by_peer
from .slots_kept import SlotsKept, keep_slots, keeps_for_pressure, kept_blocker, note_pressed
from .soft import Denial, Plan, SoftState
from .state import Job
from .storm import begin
from .storm_memory import Begun
from .turn import Turn
from .withdraw import drop_plan, reject

DENIED_PAUSE_MS = 2_000
DETAIL_CHARACTERS_MAX = 300
OF_ALL_JOBS = frozenset({"busy", "stale_epoch", "host_limit"})
"""Codes of the registry's that say nothing of the one job it was asked for."""
SAMPLE_PAUSE_MS = 100
BACKFILL_DEPTH = 32
"""How far behind a blocked head work is looked for that fits in before a kept place is needed."""

Chosen = tuple[Job, Envelope, tuple[DeviceFacts, ...]]
"""What may start, where, and the facts that this rests on."""


def plan(turn: Turn) -> None:
    """Reserve for every waiting job that passes all gates, in queue order."""
    _let_back(turn)
    start_gate.advance(turn.soft)
    pauses.advance(turn.state, turn.soft)
    blocked: dict[Lane, ProfileGates] = {}
    if turn.soft.queue:
        _admit(turn, blocked)
    elif turn.soft.reservation is not None:
        # Its job was the last that waited: other runs must not be told of it for ever.
        _keep_places(turn)
    _want_sample(turn, blocked)


def _admit(turn: Turn, blocked: dict[Lane, ProfileGates]) -> None:
    """Ask for all that may start. Notes what holds the lanes that were looked at."""
    soft, state = turn.soft, turn.state
    _keep_places(turn)
    if run_gates(state, soft).blockers:
        return
    while soft.queue and not run_gates(state, soft).blockers:
        kept = SlotsKept()
        chosen = _reserved_first(turn, kept) or _next(turn, blocked, kept)
        if chosen is None:
            break
        _ask(turn, *chosen)
    _reserve_for_oldest(turn, blocked)


def _want_sample(turn: Turn, blocked: dict[Lane, ProfileGates]) -> None:
    """Ask for a look at the host when what waits may wait only for that: attempts for the last one
    before GO; jobs, for devices that something has just left or because attempts have begun."""
    soft = turn.soft
    unseen = bool(soft.fleet.released_at_ms or soft.begun_ms)
    after_look = any(gates.starts_after_look(soft) for gates in blocked.values())
    heads = {soft.queue.head(lane): gates.only_pressed for lane, gates in blocked.items()}
    note_pressed({job: held for job, held in heads.items() if job is not None}, turn.state, soft)
    soft.slots_kept = after_look or any(keeps_for_pressure(job, soft) for job in soft.pressed)
    soft.sample_wanted = (
        look_wanted(soft)
        or after_look
        or (unseen and any(gates.may_wait_for_a_sample for gates in blocked.values()))
    )
    if soft.sample_wanted and soft.now_ms >= soft.sample_asked_at_ms + SAMPLE_PAUSE_MS:
        soft.sample_asked_at_ms = soft.now_ms
        turn.send("sampler", SampleNow())


def sample_due_ms(soft: SoftState) -> int | None:
    """When a look at the host is to be asked for again."""
    return soft.sample_asked_at_ms + SAMPLE_PAUSE_MS if soft.sample_wanted else None


def _ask(turn: Turn, job: Job, envelope: Envelope, facts: tuple[DeviceFacts, ...]) -> None:
    """Ask the registry for this placement, and count it from now on."""
    soft, state = turn.soft, turn.state
    soft.queue.remove(job.job)
    late = generation_refusal(job.generation, job.profile, job.work_class, job.eta_ms, state, soft)
    if late is not None:
        reject(turn, job, late.code, late.detail, frees_identity=False)
    if (
        late is not None
        or on_disk.take_up(turn, job)
        or on_disk.hold(turn, job)
        or set_aside_without_credentials(turn, job)
    ):
        _keep_places(turn)
        return
    attempt = next_attempt(job, soft)
    request_id = turn.claim(
        Reserve(
            run_key=soft.run_key,
            epoch=state.epoch,
            registration=soft.registrations,
            attempt=attempt,
            envelope=envelope,
            facts=facts,
            lease_id=lease_of(job, soft),
        ),
        "reserve",
        attempt,
    )
    version = soft.host_view.version if soft.host_view is not None else 0
    soft.plans[attempt] = Plan(job.job, attempt, envelope, request_id, version, soft.now_ms)
    expect_look(state, soft, attempt, job.profile, envelope.device_uuids, soft.now_ms)
    soft.begun_ms[attempt] = soft.now_ms
    soft.fleet.plan(attempt, envelope)
    start_gate.begin(soft, attempt)
    begin(soft, attempt, Begun(job.job, job.profile, envelope.device_uuids, soft.now_ms))
    if soft.reservation is not None and soft.reservation.job == job.job:
        soft.reservation = None
        _keep_places(turn)


def _reserved_first(turn: Turn, kept: SlotsKept) -> Chosen | None:
    """The job for which devices are kept, if it can start."""
    reservation = turn.soft.reservation
    if reservation is None:
        return None
    job = turn.state.jobs[reservation.job]
    if _capped(turn, job.peer):
        return None
    gates = profile_gates(job.profile, job, turn.state, turn.soft)
    if gates.envelope is None:
        _keep_slots(turn, kept, lane_of(job), job.job, gates)
        return None
    return job, gates.envelope, gates.facts


def _next(turn: Turn, blocked: dict[Lane, ProfileGates], kept: SlotsKept) -> Chosen | None:
    state, soft = turn.state, turn.soft
    reserve_size = state.policy.exploration_reserve
    _park_capped(turn)
    for lane, name in soft.queue.heads(non_mature_first=reserve_size > soft.active_non_mature):
        if lane in blocked:
            _keep_slots(turn, kept, lane, name, blocked[lane])
            continue
        job = state.jobs[name]
        gates = profile_gates(lane[1], job, state, soft)
        if gates.envelope is None:
            blocked[lane] = gates
            _keep_slots(turn, kept, lane, name, gates)
            passing = _passing(turn, lane, gates)
            if passing is not None and kept_blocker(kept, passing[0], state, soft) is None:
                return passing
        elif kept_blocker(kept, job, state, soft) is not None:
            blocked[lane] = gates
        else:
            return job, gates.envelope, gates.facts
    return None


def _keep_slots(turn: Turn, kept: SlotsKept, lane: Lane, name: str, gates: ProfileGates) -> None:
    """Keep slots for those of a lane that wait for the next look at the host and nothing else."""
    keep_slots(kept, lane, name, gates.starts_after_look(turn.soft), turn.state, turn.soft)


def _passing(turn: Turn, lane: Lane, gates: ProfileGates) -> Chosen | None:
    """A job behind a blocked head that ends before a kept place is needed: it takes nothing from
    anybody."""
    state, soft = turn.state, turn.soft
    if gates.held or not gates.placement.may_be_passed:
        return None
    head, *behind = (state.jobs[name] for name in soft.queue.first(lane, BACKFILL_DEPTH))
    shortest_ms = head.eta_ms
    for job in behind:
        # Of one profile, only who takes less time than all before it can pass where they could not.
        if job.eta_ms is None or (shortest_ms is not None and job.eta_ms >= shortest_ms):
            continue
        if _capped(turn, job.peer):
            continue
        shortest_ms = job.eta_ms
        found = profile_gates(lane[1], job, state, soft)
        if found.envelope is not None:
            return job, found.envelope, found.facts
    return None


def _park_capped(turn: Turn) -> None:
    """Set heads aside whose peer runs as many as it may: others of their lane pass."""
    soft, state = turn.soft, turn.state
    if state.policy.max_parallel_runs_per_peer is None:
        return
    planned = planned_by_peer(state, soft)
    for lane in list(soft.queue.lanes):
        while (name := soft.queue.head(lane)) is not None:
            if not at_cap(state.jobs[name].peer, state, planned):
                break
            soft.queue.park(lane)


def _capped(turn: Turn, peer: str) -> bool:
    """Whether a peer runs, or is about to run, as many as it may."""
    return at_cap(peer, turn.state, planned_by_peer(turn.state, turn.soft))


def _keep_places(turn: Turn) -> None:
    """Bring up to date what is kept for the oldest job, and for runs that hold less."""
    soft, state = turn.soft, turn.state
    kept = soft.reservation
    if kept is not None and (
        not still_holds(kept, state, soft) or _capped(turn, state.jobs[kept.job].peer)
    ):
        soft.reservation = None
    soft.fleet.keep(kept_places(soft.reservation, soft.host_view, state, soft))
    if soft.reservation is not None:
        soft.reservation.checked = rests_on(state, soft)


def _reserve_for_oldest(turn: Turn, blocked: dict[Lane, ProfileGates]) -> None:
    """Keep devices for the job that has waited longest among those that wait only for devices."""
    soft, state = turn.soft, turn.state
    held = soft.reservation
    waiting = []
    for lane, gates in blocked.items():
        name = soft.queue.head(lane)
        if name is not None and gates.waits_only_for_devices:
            waiting.append(state.jobs[name])
    for job in sorted(waiting, key=lambda job: job.queue_sequence):
        if held is not None and state.jobs[held.job].queue_sequence <= job.queue_sequence:
            return
        # What foreign load keeps out is passed over: it must not cost the next its place.
        demand = demand_of(state.policy.profiles[job.profile])
        found = reservation_for(job, demand, state, soft)
        if found is not None:
            soft.reservation = found
            _keep_places(turn)
            return


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
    denial = Denial(
        code, detail[:DETAIL_CHARACTERS_MAX], soft.host_view, soft.now_ms + DENIED_PAUSE_MS
    )
    of_slots = code == "fair_share" and found is not None and not found.envelope.device_uuids
    if code in OF_ALL_JOBS or of_slots:
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
    """Set a job aside if its secrets are not in memory: its sender has to bring them again."""
    stored = turn.state.environments[job.environment_id].variables
    if not missing_credentials(stored, turn.secrets_of(job.job)):
        return False
    turn.soft.lacking_credentials[job.job] = None
    turn.soft.touched[job.job] = None
    return True


def kept_envelope(soft: SoftState) -> Envelope | None:
    """The place that is kept for our oldest job, as other runs are told of it."""
    reservation = soft.reservation
    if reservation is None:
        return None
    demand = reservation.demand
    return Envelope(
        device_uuids=reservation.uuids,
        exclusive=demand.exclusive,
        memory_mib=demand.memory_mib,
        utilization_pct=demand.utilization_pct,
    )
