"""Whether the registry commits a plan: bounds of its tables, the host limit, fit, fairness.

Each check is a refusal with a code and a reason in words, the first that holds. A claim again of
what runs already is held only to what protects others (bounds, exclusivity, declared sums): the
host limit and fairness are about what starts. It changes nothing. Source of the rules: design 2
(promise 5), design 3 "plan and apply across runs", design 5.
"""

from __future__ import annotations

from ..protocol.claims import (
    AllocationRow,
    Bind,
    Denied,
    DeviceFacts,
    Envelope,
    OfRun,
    Reserve,
    RunRow,
)
from .claim_fair import Wants
from .claim_fit import DeviceSums, misfit
from .claim_memory import Registrations
from .claim_state import ClaimState
from .elsewhere import elsewhere_words

RUNS_MAX = 128
ROWS_MAX = 4_096
DEVICES_HELD_MAX = 8_192
"""Bounds that keep a host view within one frame."""
USER_SHARE = 2
"""A user other than the registry's own has 1/2 of each bound, so that none takes it all."""


def deny(code: str, detail: str, attempt: str | None = None) -> Denied:
    """A refusal; the machine adds the fresh view."""
    return Denied(attempt=attempt, code=code, detail=detail)


def refuse_reserve(
    state: ClaimState, wants: Wants, request: Reserve, now_ms: int, *, again: bool
) -> Denied | None:
    """Why the plan is not committed, or None.

    `again`: a claim of what holds something already, without facts. One that has a process is taken
    wherever it runs: to deny it would free nothing, and leave its device to the next.
    """
    envelope, facts, attempt = request.envelope, request.facts, request.attempt
    refused = refuse_malformed(envelope, facts, attempt) or _full(state, request)
    if refused is None and not again:
        refused = refuse_elsewhere(state, envelope.device_uuids, attempt)
    if refused is not None:
        return refused
    if not again and len(state.rows) >= state.limit():
        return deny(
            "host_limit",
            f"{len(state.rows)} allocations on this host; its limit, the largest of a run, is "
            f"{state.limit()}",
            attempt,
        )
    short = misfits(state, envelope, facts, again=again)
    if short is not None and request.shim is None:
        return deny("conflict", short, attempt)
    if not again:
        unfair = wants.against(state, request.run_key, now_ms).unfair(state, envelope, facts)
        if unfair is not None:
            return deny("fair_share", unfair, attempt)
    return None


def misfits(
    state: ClaimState, envelope: Envelope, facts: tuple[DeviceFacts, ...], *, again: bool
) -> str | None:
    """In words, why an envelope cannot join what is held on its devices; None when it can."""
    devices = envelope.device_uuids
    known = dict(zip(devices, facts, strict=True)) if facts else {}
    for device in devices:
        load = state.loads.get(device, DeviceSums())
        short = misfit(device, load, envelope, known.get(device), again=again)
        if short is not None:
            return short
    return None


def refuse_held(held: AllocationRow, envelope: Envelope, *, ours: bool) -> Denied | None:
    """Why what is held under an attempt's name is not what it asks for, or None."""
    if not ours:
        return deny("conflict", f"an earlier {held.attempt} still runs", held.attempt)
    if held.envelope != envelope:
        return deny("conflict", f"{held.attempt} holds another envelope", held.attempt)
    return None


def refuse_elsewhere(
    state: ClaimState,
    devices: tuple[str, ...],
    attempt: str | None = None,
    *,
    reserved: bool = False,
) -> Denied | None:
    """Why nothing may start on these devices that another host scope may use, or None.

    What is `reserved` already passes an experiment that no run has claimed yet: nothing new is
    reserved beside one, so both were there before this registry, and fitted.
    """
    for device in devices:
        other = state.elsewhere.get(device)
        if other is not None and not (reserved and other.unclaimed):
            return deny("conflict", f"device {device} is {elsewhere_words(other)}", attempt)
    return None


def refuse_malformed(
    envelope: Envelope, facts: tuple[DeviceFacts, ...], attempt: str | None = None
) -> Denied | None:
    """Why the plan says nothing, or None."""
    devices = envelope.device_uuids
    if len(set(devices)) != len(devices):
        return deny("malformed_request", "a device is named twice", attempt)
    if facts and tuple(fact.uuid for fact in facts) != devices:
        return deny(
            "malformed_request", "the facts are not of the envelope's devices, in order", attempt
        )
    return None


def refuse_sender(
    state: ClaimState, request: OfRun, pid: int, registrations: Registrations
) -> Denied | None:
    """Why this epoch, or what it says here, does not speak for the run that is named, or None.

    `pid`: of the process that sent it, by the kernel's word.
    """
    attempt = getattr(request, "attempt", None)
    run = state.runs.get(request.run_key)
    if run is None or request.epoch > run.epoch:
        told = "not registered" if run is None else f"registered with epoch {run.epoch}"
        return deny("unknown_run", f"the run is {told}; register it first", attempt)
    if request.epoch < run.epoch:
        return deny(
            "stale_epoch", f"epoch {request.epoch} is over; {run.epoch} serves the run", attempt
        )
    if pid != run.broker.pid:
        told = f"process {pid} sent this, and process {run.broker.pid} is the run's broker"
        return deny("not_yours", told, attempt)
    late = registrations.late(request.run_key, (request.epoch, request.registration))
    return late or _refuse_bind(state, request)


def _refuse_bind(state: ClaimState, request: OfRun) -> Denied | None:
    """Why what was reserved may not start, or None: GO follows the grant, and while no registry
    was there another scope may have taken the device."""
    if not isinstance(request, Bind):
        return None
    row = state.rows.get((request.run_key, request.attempt))
    if row is None or row.bound is not None:
        return None
    return refuse_elsewhere(state, row.envelope.device_uuids, request.attempt, reserved=True)


def _full(state: ClaimState, request: Reserve) -> Denied | None:
    devices, attempt = len(request.envelope.device_uuids), request.attempt
    if len(state.rows) >= ROWS_MAX or state.devices_held + devices > DEVICES_HELD_MAX:
        return deny("busy", f"the registry holds {len(state.rows)} rows", attempt)
    owner = state.owner_of(request.run_key)
    if owner is None or not state.is_guest(owner):
        return None
    rows, held = state.held_by_user(owner)
    if rows >= ROWS_MAX // USER_SHARE or held + devices > DEVICES_HELD_MAX // USER_SHARE:
        return deny("busy", f"{rows} rows are this user's; that is its limit", attempt)
    return None


def refuse_run(state: ClaimState, run: RunRow) -> Denied | None:
    """Why a run that is not registered cannot be, or None."""
    if len(state.runs) >= RUNS_MAX:
        return deny("busy", f"{RUNS_MAX} runs are registered; that is the limit")
    if state.is_guest(run.uid):
        theirs = sum(other.uid == run.uid for other in state.runs.values())
        if theirs >= RUNS_MAX // USER_SHARE:
            return deny("busy", f"{theirs} runs are this user's; that is the limit of one user")
    return None


def refuse_user(state: ClaimState, run_key: str, uid: int, forged: str | None) -> Denied | None:
    """Why this user may not speak for that run, or None.

    `forged`: what was proved to be false of the processes that the request names.
    """
    owner = state.owner_of(run_key)
    if owner is not None and owner != uid:
        return deny("not_yours", "the run belongs to another user")
    return deny("not_yours", forged) if forged is not None else None
