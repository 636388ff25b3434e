"""Several runs on one host, in one thread: one registry, one clock, devices that they share.

Every run is a `World` with its own broker, launcher and samples. The devices show what runs on
them: foreign processes, and those of every attempt, by what each is made to use. Whatever the
registry grants and whatever is let go is judged at that moment by `packing_oracle`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_commands import ClaimCommand, RegistryStarted
from praxist_zmq.core.commands import (
    LauncherSaid,
    RegistryConnected,
    RegistryLost,
    RegistrySaid,
)
from praxist_zmq.core.decision import Decision, Stamp
from praxist_zmq.protocol import claims, orders, reports
from praxist_zmq.protocol.policy import SchedulerPolicy
from praxist_zmq.protocol.requests import SubmitJob

from . import packing_oracle as oracle
from .broker_world import BOOT, FakeAttempt, World

RUN_PIDS = 100_000
FRESH_MS = 5_000


ROUND_MS = 700
QUIET_ROUNDS = 8


@dataclass
class Foreigner:
    """A process of nobody's on a device. None: the driver does not tell of it."""

    pid: int
    memory_mib: int
    utilization_pct: float
    listed: bool = True
    mapped: bool = True
    figures: bool = True


@dataclass
class Device:
    """A device as it is, and what its driver tells of it."""

    index: int
    total_mib: int
    state: str = "available"
    tells_total: bool = True
    tells_memory: bool = True
    tells_utilization: bool = True
    tells_processes: bool = True
    tells_figures: bool = True
    """Of each process."""
    foreigners: list[Foreigner] = field(default_factory=list)
    lagging: list[tuple[int, int]] = field(default_factory=list)
    """(until when, MiB) of memory that stays for a while after its process."""

    @property
    def uuid(self) -> str:
        """Its name."""
        return f"GPU-{self.index}"


@dataclass
class Use:
    """What one attempt really takes of each device, as shares of what it declared."""

    memory: float = 0.0
    utilization: float = 0.0
    astray: str | None = None
    """A device that it was not given and uses all the same."""


class HostRun(World):
    """One run on a host with others."""

    def __init__(self, host: Host, name: str, contract: SchedulerPolicy) -> None:
        self.host = host
        self.samples_of: dict[str, reports.HostSampled | None] = {}
        """Plan that the registry is asked for -> the sample that it was made with."""
        number = len(host.runs) + 1
        super().__init__(
            contract=contract, name=name, registry=host.registry, first_pid=number * RUN_PIDS
        )

    @property
    def now_ms(self) -> int:
        """The host's clock."""
        return self.host.now_ms

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self.host.now_ms = max(self.host.now_ms, value)

    def sample(self) -> reports.HostSampled:
        """What this run's sampler tells now."""
        return self.host.sample()

    def registry_step(self) -> None:
        """The registry answers one request of this run's."""
        if self.to_registry:
            request_id, request = self.to_registry.popleft()
            sender = self.senders.get(request_id, self.broker_pid)
            command = ClaimCommand(self.name, request_id, request, 0, sender)
            planned = request_id in self.samples_of
            self.host.registry_turn(command, planned, self.samples_of.pop(request_id, None))

    def submit(
        self,
        tag: str,
        profile: str,
        peer: str = "p",
        work_class: Any = "ordinary",
        eta_seconds: float | None = None,
    ) -> Any:
        """One more job; its reply."""
        return self.ask(
            SubmitJob(
                peer=peer, tag=tag, command=("true",), cwd="/", environment={}, profile=profile,
                work_class=work_class, eta_seconds=eta_seconds,
            )
        )  # fmt: skip

    def running(self) -> list[FakeAttempt]:
        """Its attempts whose evaluators run, oldest first."""
        return [a for a in self.launcher.attempts.values() if a.phase == "running"]

    def finish(self, which: int = 0, exit_code: int = 0, lag_ms: int = 0) -> bool:
        """One of its evaluators exits; what it used of its devices may stay for a while."""
        running = self.running()
        if not running:
            return False
        attempt = running[which % len(running)]
        if lag_ms:
            self.host.lag(self, attempt.name, lag_ms)
        report = self.launcher.end(attempt, "exited", exit_code=exit_code)
        if attempt.name in self.launcher.in_hand:
            self.to_broker.append(LauncherSaid("launcher", report))
        return True

    @property
    def most_allowed(self) -> int:
        """The most it may ever have at once."""
        return self.policy.max_concurrent_experiments

    def _commit(self, decision: Decision) -> None:
        for send in decision.outbox:
            if send.to == "registry" and (send.request_id or "").endswith(".reserve"):
                self.samples_of[send.request_id or ""] = self.broker.soft.sample
            if send.to == "launcher" and isinstance(send.message, orders.ReleaseAttempt):
                self.host.judge_go(self, send.message.attempt)
        super()._commit(decision)
        state = self.broker.state
        cap = state.policy.max_parallel_runs_per_peer
        if cap is not None:
            running: dict[str, int] = {}
            for attempt in state.attempts.values():
                peer = state.jobs[attempt.job].peer
                running[peer] = running.get(peer, 0) + 1
            self.host.faults += [
                f"{peer} of {self.name} runs {count} of {cap}"
                for peer, count in running.items()
                if count > cap
            ]


class Host:
    """The machine."""

    def __init__(self, devices: list[Device]) -> None:
        self.devices = devices
        self.now_ms = 1_000
        self.runs: list[HostRun] = []
        self.uses: dict[tuple[str, str], Use] = {}
        self.faults: list[str] = []
        """What the oracle found wrong."""
        self.grants = 0
        self.probe = "available"
        self.pressure: dict[str, float | None] = {"cpu": 1.0, "memory": 1.0, "io": 0.0}
        self.cpus: float | None = 64.0
        self.on_grant: Callable[[claims.AllocationRow], None] | None = None
        self.registry = ClaimMachine()
        self.registry.decide(RegistryStarted(BOOT), self.stamp())

    def add(self, name: str, contract: SchedulerPolicy) -> HostRun:
        """One more run comes up."""
        run = HostRun(self, name, contract)
        self.runs.append(run)
        return run

    def stamp(self) -> Stamp:
        """Time moves by a millisecond with every look."""
        self.now_ms += 1
        return Stamp(at_ms=1_700_000_000_000 + self.now_ms, mono_ms=self.now_ms)

    # -- what the driver tells ------------------------------------------------------------

    def sample(self) -> reports.HostSampled:
        """A look at everything."""
        known = self.probe == "available"
        return reports.HostSampled(
            sampled_at_mono_ms=self.now_ms,
            cpu_pct=self.pressure["cpu"],
            memory_pct=self.pressure["memory"],
            io_pct=self.pressure["io"],
            cpus=self.cpus,
            probe_state=self.probe,  # type: ignore[arg-type]
            probe_reason=None if known else "the driver is away",
            devices=tuple(self._device(device) for device in self.devices) if known else (),
            simulated=True,
        )

    def _device(self, device: Device) -> reports.DeviceSample:
        if device.state != "available":
            return reports.DeviceSample(
                index=device.index,
                uuid=device.uuid,
                state=device.state,  # type: ignore[arg-type]
                reason="so the driver says",
            )
        found = [self._foreign(device, f) for f in device.foreigners if f.listed]
        memory = sum(f.memory_mib for f in device.foreigners)
        busy = sum(f.utilization_pct for f in device.foreigners)
        for process, mib, pct in self._ours(device):
            found.append(process)
            memory, busy = memory + mib, busy + pct
        device.lagging = [(until, mib) for until, mib in device.lagging if until > self.now_ms]
        memory += sum(mib for _, mib in device.lagging)
        return reports.DeviceSample(
            index=device.index,
            uuid=device.uuid,
            state="available",
            memory_total_mib=device.total_mib if device.tells_total else None,
            memory_used_mib=min(memory, device.total_mib) if device.tells_memory else None,
            utilization_pct=min(busy, 100.0) if device.tells_utilization else None,
            processes=tuple(found) if device.tells_processes else None,
            read_at_mono_ms=self.now_ms,
        )

    @staticmethod
    def _foreign(device: Device, foreign: Foreigner) -> reports.DeviceProcess:
        told = foreign.figures and device.tells_figures
        line = (reports.ProcessStamp(pid=foreign.pid, start_ticks=foreign.pid),)
        return reports.DeviceProcess(
            pid=foreign.pid,
            memory_mib=foreign.memory_mib if told else None,
            utilization_pct=foreign.utilization_pct if told else None,
            lineage=line if foreign.mapped else (),
        )

    def lag(self, run: HostRun, name: str, milliseconds: int) -> None:
        """What an attempt uses stays for so long after its end."""
        use = self.uses.get((run.name, name), Use())
        row = self.registry.state.rows.get((run.run_key, name))
        for device in self.devices if row is not None else ():
            if row is not None and device.uuid in row.envelope.device_uuids:
                memory = int((row.envelope.memory_mib or 4_096) * use.memory)
                device.lagging.append((self.now_ms + milliseconds, memory))

    def _ours(self, device: Device) -> list[tuple[reports.DeviceProcess, int, float]]:
        found = []
        for run in self.runs:
            for name, attempt in run.launcher.attempts.items():
                row = self.registry.state.rows.get((run.run_key, name))
                use = self.uses.get((run.name, name), Use())
                if attempt.phase != "running" or attempt.leader is None or row is None:
                    continue
                if device.uuid not in row.envelope.device_uuids and use.astray != device.uuid:
                    continue
                memory = int((row.envelope.memory_mib or 4_096) * use.memory)
                busy = (row.envelope.utilization_pct or 30.0) * use.utilization
                if not memory and not busy:
                    continue
                line = tuple(
                    reports.ProcessStamp(pid=one.pid, start_ticks=one.start_ticks)
                    for one in (attempt.leader, attempt.shim)
                )
                process = reports.DeviceProcess(
                    pid=attempt.leader.pid,
                    memory_mib=memory if device.tells_figures else None,
                    utilization_pct=busy if device.tells_figures else None,
                    lineage=line,
                )
                found.append((process, memory, busy))
        return found

    # -- the registry ---------------------------------------------------------------------

    def registry_turn(
        self, command: Any, planned: bool = False, sample: reports.HostSampled | None = None
    ) -> None:
        """One turn of the registry; what it says goes to whom it is meant for."""
        stamp = self.stamp()
        decision, settled = self.registry.decide(command, stamp), self.registry.settle(stamp)
        for event in decision.events + settled.events:
            if isinstance(event, claims.ClaimReserved) and planned:
                self._judge_grant(event.row, sample)
        by_name = {run.name: run for run in self.runs}
        for send in decision.outbox + settled.outbox:
            by_name[send.address].to_broker.append(RegistrySaid(send.request_id, send.message))

    def restart_registry(self) -> None:
        """SIGKILL and a new one from its ledger; every broker finds its link gone and back."""
        self.registry = ClaimMachine(self.registry.snapshot())
        self.registry.decide(RegistryStarted(BOOT), self.stamp())
        for run in self.runs:
            run.registry = self.registry
            run.to_registry.clear()
            run.samples_of.clear()
            run.turn(RegistryLost(), RegistryConnected())

    def rows(self) -> list[oracle.Held]:
        """Everything that is held now."""
        leaders = {
            (run.run_key, name): attempt.leader
            for run in self.runs
            for name, attempt in run.launcher.attempts.items()
        }
        found = []
        for key, row in self.registry.state.rows.items():
            leader = leaders.get(key)
            more = () if leader is None else ((leader.pid, leader.start_ticks),)
            found.append(oracle.held(row, more))
        return found

    # -- judging --------------------------------------------------------------------------

    def _judge_grant(self, row: claims.AllocationRow, sample: reports.HostSampled | None) -> None:
        self.grants += 1
        if self.on_grant is not None:
            self.on_grant(row)
        limit = max((run.limit for run in self.registry.state.runs.values()), default=0)
        held = self.rows()
        if len(held) > limit:
            self.faults.append(f"{len(held)} allocations on a host that takes {limit}")
        if sample is None:
            if row.envelope.device_uuids:
                self.faults.append(f"{row.attempt} is given devices that nobody has seen")
            return
        newest = oracle.held(row)
        for device in sample.devices:
            if device.uuid in newest.devices:
                self.faults += oracle.overpromised(device, held, newest)
        if missing := set(newest.devices) - {device.uuid for device in sample.devices}:
            self.faults.append(f"{newest.name} is given {missing}, which nobody saw")

    def judge_go(self, run: HostRun, name: str) -> None:
        """The last look: by the newest sample of the run, if it has one that can be believed."""
        soft, key = run.broker.soft, (run.run_key, name)
        sample, row = soft.sample, self.registry.state.rows.get(key)
        attempt = run.launcher.attempts.get(name)
        if attempt is None or attempt.phase != "waiting" or attempt.go_told:
            return
        attempt.go_told = True
        if row is None:
            self.faults.append(f"{name} of {run.name} is let go and holds nothing")
            return
        if sample is None or self.now_ms - sample.sampled_at_mono_ms > FRESH_MS:
            return
        view = soft.host_view
        if sample.probe_state != "available" or view is None:
            return
        told = {(other.run_key, other.attempt) for other in view.allocations}
        held = [r for r in self.rows() if r.name in told or r.name[0] == run.run_key]
        mine = oracle.held(row)
        for device in sample.devices:
            if device.uuid in mine.devices:
                self.faults += [
                    f"at the last look: {words}"
                    for words in oracle.overpromised(device, held, mine)
                ]

    # -- time -----------------------------------------------------------------------------

    def settle(self) -> None:
        """Deliver until nothing waits anywhere."""
        for _ in range(20_000):
            # One message each in turn: nobody's are all handled before another's.
            moved = [run.deliver() for run in self.runs]
            if not any(moved):
                return
        raise AssertionError("the host does not come to rest")

    def round(self, milliseconds: int = ROUND_MS) -> None:
        """Time passes, everybody samples, everything is delivered."""
        self.now_ms += milliseconds
        for run in self.runs:
            run.turn(run.sample())
        self.settle()

    def rest(self, rounds: int = 60) -> None:
        """Until nothing happens any more: a denial is asked again after 2 s, and a slot is kept for
        a look for 5 s."""
        still = 0
        for _ in range(rounds):
            before = [len(run.disk) for run in self.runs]
            self.round()
            still = still + 1 if before == [len(run.disk) for run in self.runs] else 0
            if still == QUIET_ROUNDS:
                return
        raise AssertionError("the host does not come to rest")
