"""The run as it would be if something had happened that has not: a copy to plan on.

Things happen to the copy (an attempt ends, foreign load falls, pressure ends, the limit rises), and
then the broker's own turn of admission plans on it, again after each fresh sample, until nothing
more starts. What it would start is what the broker would start: there is no second rule here.
Source: the reference of the commands (`explain` replays departures through admission itself).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..protocol.reports import DeviceSample
from .admission import peer_blocker, profile_gates, run_gates
from .decision import Stamp
from .device_load import Holding, load_of, owner_of
from .fleet import Fleet, of_attempt, of_row
from .plan import plan
from .slots import planned_by_peer
from .soft import Plan, SoftState
from .state import Attempt, BrokerState, Job
from .turn import Turn


class WhatIf:
    """One copy. Cheap until something is planned on it: the queue is copied only then."""

    def __init__(self, state: BrokerState, soft: SoftState, *, looked: bool = False) -> None:
        """`looked`: with a fresh sample, before anything happens."""
        self.state = replace(
            state,
            attempts=dict(state.attempts),
            device_holders={uuid: set(held) for uuid, held in state.device_holders.items()},
            peers_running=dict(state.peers_running),
        )
        self.soft = replace(
            soft,
            fleet=_copy_of_fleet(soft.fleet),
            plans=dict(soft.plans),
            begun_ms=dict(soft.begun_ms),
            unlooked=dict(soft.unlooked),
            pressed=dict(soft.pressed),
            reservation=None if soft.reservation is None else replace(soft.reservation),
            lacking_credentials=dict(soft.lacking_credentials),
            touched={},
            registry_requests=dict(soft.registry_requests),
            held_back=dict(soft.held_back),
            pauses=dict(soft.pauses),
            shortage=None if soft.shortage is None else replace(soft.shortage),
            surveys={key: survey.copy() for key, survey in soft.surveys.items()},
            storms=soft.storms.copy(),
        )
        self._queue_copied = False
        self._freed_peers: list[str] = []
        if looked:
            self.look_again()

    # -- what happens -----------------------------------------------------------------------

    def look_again(self) -> None:
        """The host is sampled: what has begun or left is in the sample."""
        self.soft.begun_ms.clear()
        fleet = self.soft.fleet
        left, fleet.released_at_ms = tuple(fleet.released_at_ms), {}
        fleet.changed(left)

    def end(self, job: str) -> bool:
        """A job of this run ends, one that runs or one that was started here. False: neither."""
        name = self.state.jobs[job].attempt
        attempt = self.state.attempts.get(name) if name is not None else None
        if attempt is not None:
            self._end_attempt(attempt)
            return True
        found = self.withdraw(job)
        if found is None:
            return False
        self.soft.active_non_mature -= self.state.jobs[job].work_class != "mature"
        for uuid in found.envelope.device_uuids:
            self.soft.fleet.released_at_ms[uuid] = self.soft.now_ms
        return True

    def withdraw(self, job: str) -> Plan | None:
        """There is no plan for a job. Returns the one that there was."""
        found = next((p for p in self.soft.plans.values() if p.job == job), None)
        if found is None:
            return None
        del self.soft.plans[found.attempt]
        self.soft.fleet.drop_plan(found.attempt, found.envelope)
        self.soft.begun_ms.pop(found.attempt, None)
        self._freed_peers.append(self.state.jobs[job].peer)
        return found

    def end_of_another_run(self, run_key: str, attempt: str) -> None:
        """An attempt of another run ends."""
        fleet = self.soft.fleet
        for uuid, held in list(fleet.rows_of_others.items()):
            for row in held:
                if (row.run_key, row.attempt) == (run_key, attempt) and uuid in fleet.devices:
                    fleet.devices[uuid] = left_by(fleet.devices[uuid], of_row(row))
                    fleet.released_at_ms[uuid] = self.soft.now_ms
            fleet.rows_of_others[uuid] = [
                row for row in held if (row.run_key, row.attempt) != (run_key, attempt)
            ]
            fleet.changed((uuid,))
        self.soft.others_hold -= 1

    def lower_external(self, uuid: str, memory_mib: int, utilization_pct: float) -> None:
        """Foreign use of a device falls by so much."""
        self._resample(uuid, _lowered(self.soft.fleet.devices[uuid], memory_mib, utilization_pct))

    def quiet_external(self, uuid: str) -> None:
        """Everything foreign leaves a device."""
        load = self.soft.fleet.load(uuid, self.state)
        processes = tuple(p for p in load.sample.processes or () if p not in load.external)
        lowered = _lowered(
            load.sample, load.external_memory_mib or 0, load.external_utilization_pct or 0.0
        )
        self._resample(uuid, lowered.model_copy(update={"processes": processes}))

    def end_pressure(self) -> None:
        """Every domain that is at its high mark falls below it."""
        sample, policy = self.soft.sample, self.state.policy
        if sample is None:
            return
        lower: dict[str, Any] = {}
        for field, reading, high in (
            ("cpu_pct", sample.cpu_pct, policy.cpu_high_pct),
            ("memory_pct", sample.memory_pct, policy.memory_high_pct),
            ("io_pct", sample.io_pct, policy.io_pressure_high_pct),
        ):
            if reading is not None and reading >= high:
                lower[field] = max(0.0, high - 1e-3)
        self.soft.sample = sample.model_copy(update=lower)

    def end_rests(self) -> None:
        """Every placement that rests for a storm may be used again."""
        resting, self.soft.storms.rests = self.soft.storms.rests, {}
        self.soft.fleet.changed(tuple(key.name for key in resting if key.kind == "device"))

    def raise_limit(self) -> None:
        """The limit rises by one step."""
        self.state.limit += 1

    # -- what follows -----------------------------------------------------------------------

    def might_start(self, job: Job) -> bool:
        """Whether the job passes its own gates, whoever goes before it. Cheap; when this is
        False, no order of the queue would let it start."""
        state, soft = self.state, self.soft
        if run_gates(state, soft).blockers:
            return False
        if peer_blocker(job, state, planned_by_peer(state, soft)) is not None:
            return False
        looked = replace(
            soft,
            begun_ms={},
            fleet=replace(soft.fleet, places={}, released_at_ms={}),
            surveys={},
        )
        return not profile_gates(job.profile, job, state, looked).blockers

    def started(self) -> list[str]:
        """Plan as the broker does, until nothing more starts: the jobs that start, in order."""
        soft = self.soft
        if not self._queue_copied:
            soft.queue = soft.queue.copy()
            self._queue_copied = True
        for peer in self._freed_peers:
            soft.queue.unpark(peer)
        self._freed_peers.clear()
        before = set(soft.plans)
        turn = Turn(self.state, soft, Stamp(at_ms=soft.now_at_ms, mono_ms=soft.now_ms))
        while True:
            known = len(soft.plans)
            # Once before the next sample: what leaves makes room before the driver is asked again.
            plan(turn)
            unseen = soft.begun_ms or soft.fleet.released_at_ms
            if len(soft.plans) == known and not unseen:
                break
            self.look_again()
        fresh = [plan_.job for name, plan_ in soft.plans.items() if name not in before]
        soft.active_non_mature += sum(self.state.jobs[job].work_class != "mature" for job in fresh)
        return fresh

    # -- parts ------------------------------------------------------------------------------

    def _end_attempt(self, attempt: Attempt) -> None:
        state, soft = self.state, self.soft
        job = state.jobs[attempt.job]
        del state.attempts[attempt.attempt]
        state.peers_running[job.peer] = state.peers_running.get(job.peer, 1) - 1
        soft.active_non_mature -= job.work_class != "mature"
        soft.begun_ms.pop(attempt.attempt, None)
        self._freed_peers.append(job.peer)
        for uuid in attempt.device_uuids:
            state.device_holders.get(uuid, set()).discard(attempt.attempt)
            if uuid in soft.fleet.devices:
                soft.fleet.released_at_ms[uuid] = soft.now_ms
                device = soft.fleet.devices[uuid]
                self._resample(uuid, left_by(device, of_attempt(soft.run_key, attempt)))

    def _resample(self, uuid: str, device: DeviceSample) -> None:
        self.soft.fleet.devices[uuid] = device
        self.soft.fleet.changed((uuid,))


def _copy_of_fleet(fleet: Fleet) -> Fleet:
    return replace(
        fleet,
        devices=dict(fleet.devices),
        rows_of_others=dict(fleet.rows_of_others),
        plans={uuid: dict(plans) for uuid, plans in fleet.plans.items()},
        released_at_ms=dict(fleet.released_at_ms),
        known=dict(fleet.known),
        changes=list(fleet.changes),
    )


def left_by(device: DeviceSample, holding: Holding) -> DeviceSample:
    """What the driver would tell once a holding's processes have ended: less by what it told of
    them. What it did not tell stays, and is then foreign."""
    processes = device.processes or ()
    gone = [process for process in processes if owner_of(process, (holding,)) is not None]
    if not gone:
        return device
    stay = tuple(process for process in processes if process not in gone)
    memory = sum(process.memory_mib or 0 for process in gone)
    busy = sum(process.utilization_pct or 0.0 for process in gone)
    if not stay and load_of(device, (holding,)).external_utilization_pct == 0:
        busy = device.utilization_pct or 0.0  # nobody else was on it: all of it was its own
    return _lowered(device, memory, busy).model_copy(update={"processes": stay})


def _lowered(device: DeviceSample, memory_mib: int, utilization_pct: float) -> DeviceSample:
    memory, busy = device.memory_used_mib, device.utilization_pct
    return device.model_copy(
        update={
            "memory_used_mib": None if memory is None else max(0, memory - memory_mib),
            "utilization_pct": None if busy is None else max(0.0, busy - utilization_pct),
        }
    )
