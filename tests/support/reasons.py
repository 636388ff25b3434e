"""Whether what a host at rest says of its waiting jobs is true, by the oracle's own sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from praxist_zmq.protocol.replies import JobsReply
from praxist_zmq.protocol.reports import DeviceSample, HostSampled
from praxist_zmq.protocol.requests import ListJobs
from praxist_zmq.protocol.views import Blocker, JobView

from . import packing_oracle as oracle
from .host_world import Host, HostRun

DEVICE_CODES = frozenset(
    {
        "gpu_compute_short", "gpu_memory_short", "gpu_count_short", "gpu_needs_exclusive",
        "gpu_held_exclusive", "probe_unknown", "probe_unavailable",
    }
)  # fmt: skip
KEPT_CODES = frozenset({"gpu_reserved", "fair_share"})
PRESSURES = {"pressure_cpu": "cpu", "pressure_memory": "memory", "pressure_io": "io"}


@dataclass
class Case:
    """One waiting job and the facts."""

    host: Host
    run: HostRun
    job: JobView
    need: oracle.Need
    sample: HostSampled
    rows: list[oracle.Held]

    @property
    def placeable(self) -> list[str]:
        """Devices on which the oracle could place it."""
        return oracle.places(self.sample.devices, self.rows, self.need)

    def by_refusal(self, word: str) -> list[DeviceSample]:
        """Devices that refuse it for that reason."""
        return [
            device
            for device in self.sample.devices
            if word in oracle.refusals(device, self.rows, self.need)
        ]


def check_waits(host: Host) -> list[str]:
    """Every false, missing or wrong reason of a host at rest."""
    faults: list[str] = []
    for run in host.runs:
        reply = run.ask(ListJobs(states=("queued",)))
        assert isinstance(reply, JobsReply)
        for job in reply.jobs:
            case = Case(
                host,
                run,
                job,
                oracle.need_of(run.policy.profiles[job.profile]),
                run.broker.soft.sample or run.sample(),
                host.rows(),
            )
            faults += [f"{run.name} {job.job} ({job.profile}): {w}" for w in _faults_of(case)]
    return faults


def _faults_of(case: Case) -> list[str]:
    blockers = case.job.blockers
    if not blockers:
        return ["waits without a reason on a host at rest"]
    found = [f"false: {b.code}: {b.detail}" for b in blockers if not _true(case, b)]
    codes = {blocker.code for blocker in blockers}
    judged = case.need.devices and case.sample.probe_state == "available"
    if judged and codes <= DEVICE_CODES and len(case.placeable) >= case.need.devices:
        found.append(f"could be placed on {case.placeable}; {sorted(codes)}")
    return found


def _true(case: Case, blocker: Blocker) -> bool:
    check = CHECKS.get(blocker.code)
    return check is not None and bool(check(case, blocker))


def _retry_pause(case: Case, blocker: Blocker) -> bool:
    return case.job.job in case.run.broker.soft.pauses


def _run_limit(case: Case, blocker: Blocker) -> bool:
    state = case.run.broker.state
    return len(state.attempts) >= state.limit == blocker.limit


def _host_limit(case: Case, blocker: Blocker) -> bool:
    limit = max(run.limit for run in case.host.registry.state.runs.values())
    return len(case.rows) >= limit == blocker.limit


def _peer_cap(case: Case, blocker: Blocker) -> bool:
    state = case.run.broker.state
    running = [a for a in state.attempts.values() if state.jobs[a.job].peer == case.job.peer]
    return len(running) == state.policy.max_parallel_runs_per_peer == blocker.limit


def _pressure(case: Case, blocker: Blocker) -> bool:
    profile = case.run.policy.profiles[case.job.profile]
    name = PRESSURES[blocker.code]
    marks = {
        "cpu": case.run.policy.cpu_high_pct,
        "memory": case.run.policy.memory_high_pct,
        "io": case.run.policy.io_pressure_high_pct,
    }
    reading = case.host.pressure[name]
    return name in profile.pressure_domains and reading is not None and reading >= marks[name]


def _compute(case: Case, blocker: Blocker) -> bool:
    free = [oracle.load(d, case.rows).free_pct for d in case.by_refusal("compute")]
    best = max((float(pct) for pct in free if pct is not None), default=None)
    right = best is not None and abs(max(0.0, best) - (blocker.free or 0.0)) < 1e-3
    return right and blocker.need == case.need.utilization_pct


def _memory(case: Case, blocker: Blocker) -> bool:
    free = []
    for device in case.by_refusal("memory"):
        sums = oracle.load(device, case.rows)
        free.append(sums.limit_mib if sums.free_mib is None else sums.free_mib)
    best = max((int(mib) for mib in free if mib is not None), default=None)
    return (
        best is not None and max(0, best) == blocker.free and blocker.need == case.need.memory_mib
    )


def _count(case: Case, blocker: Blocker) -> bool:
    kept = {b.code for b in case.job.blockers} & KEPT_CODES
    placeable, told = len(case.placeable), int(blocker.free or 0)
    right = told <= placeable if kept else told == placeable
    return blocker.need == case.need.devices and right


def _needs_exclusive(case: Case, _: Blocker) -> bool:
    """Also where it would be alone for another of its devices' sake."""
    strict = replace(case, need=oracle.alone(case.need))
    return bool(case.by_refusal("not_quiet")) or (
        case.need.devices > 1
        and any(oracle.blind(device, case.rows) for device in case.sample.devices)
        and bool(strict.by_refusal("not_quiet"))
    )


def _held_alone(case: Case, _: Blocker) -> bool:
    return bool(case.by_refusal("held_alone"))


def _reserved(case: Case, _: Blocker) -> bool:
    """Kept for an older job that waits only for devices, and not for one that cannot use them."""
    state, kept = case.run.broker.state, case.run.broker.soft.reservation
    if kept is None or kept.job == case.job.job or state.jobs[kept.job].state != "queued":
        return False
    other = next(j for j in _queued(case.run) if j.job == kept.job)
    # A place is kept through limits and pressure that pass: to drain anew each time is to starve.
    of_all = {"run_limit", "host_limit", *PRESSURES}
    return all(b.code in DEVICE_CODES | KEPT_CODES | of_all for b in other.blockers)


def _queued(run: HostRun) -> list[JobView]:
    reply = run.ask(ListJobs(states=("queued",)))
    assert isinstance(reply, JobsReply)
    return list(reply.jobs)


def _fair(case: Case, _: Blocker) -> bool:
    """Another run holds less, or as much, and waits."""
    mine = sum(row.name[0] == case.run.run_key for row in case.rows)
    mine_gpu = sum(row.name[0] == case.run.run_key and bool(row.devices) for row in case.rows)
    for run in case.host.runs:
        theirs = sum(row.name[0] == run.run_key for row in case.rows)
        gpu = sum(row.name[0] == run.run_key and bool(row.devices) for row in case.rows)
        if run is not case.run and (theirs <= mine or gpu <= mine_gpu) and _queued(run):
            return True
    return False


def _order(case: Case, _: Blocker) -> bool:
    """An older job of its kind waits, that could go first: its peer is not at its cap."""
    jobs = case.run.broker.state.jobs
    mine = jobs[case.job.job]
    older = [
        view
        for view in _queued(case.run)
        if (view.profile, view.work_class) == (case.job.profile, case.job.work_class)
        and jobs[view.job].queue_sequence < mine.queue_sequence
        and not any(b.code in ("peer_cap", "queue_order") for b in view.blockers)
    ]
    return bool(older)


def _probe_unknown(case: Case, _: Blocker) -> bool:
    if case.sample.probe_state == "unknown":
        return True
    return any(device.state == "unknown" for device in case.sample.devices)


def _probe_unavailable(case: Case, _: Blocker) -> bool:
    return any(d.state in ("lost", "unsupported", "unavailable") for d in case.sample.devices)


CHECKS: dict[str, Callable[[Case, Any], bool]] = {
    "retry_pause": _retry_pause,
    "run_limit": _run_limit,
    "host_limit": _host_limit,
    "peer_cap": _peer_cap,
    **dict.fromkeys(PRESSURES, _pressure),
    "gpu_compute_short": _compute,
    "gpu_memory_short": _memory,
    "gpu_count_short": _count,
    "gpu_needs_exclusive": _needs_exclusive,
    "gpu_held_exclusive": _held_alone,
    "gpu_reserved": _reserved,
    "fair_share": _fair,
    "queue_order": _order,
    "probe_unknown": _probe_unknown,
    "probe_unavailable": _probe_unavailable,
}
