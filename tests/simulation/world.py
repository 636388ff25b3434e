"""The fake host of one seed: two runs, one registry, their processes, and what goes wrong.

Two phases. With faults on, every step is judged by what must always hold. Then the faults end, and
what must come about is waited for: every job ends, idle peers with planned room get a lease,
nothing is held for nobody.
"""

from __future__ import annotations

import hashlib
from collections import deque
from random import Random
from typing import Any

from praxist_zmq.core import broker_snapshot
from praxist_zmq.protocol import orders, reports
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.process import ProcessIdentity

from . import calamities, endings
from .brokers import SimBroker
from .devices import FOREIGN_PID, SAMPLE_MS, TOTAL_MIB, SimDevice, SimSampler, sample_of
from .faults import Faults
from .gateways import SimGateway, SimSupply
from .launchers import SimLauncher
from .peers import SimPeer
from .registries import SimRegistry
from .scripts import operator_life, peer_life
from .shell import SimProcess
from .shims import SimShim
from .timeline import Timeline

FAULTS_MS = 18_000
STEPS_SHOWN = 60
PROFILES = {
    "cpu": Profile(pressure_domains=()),
    "gpu": Profile(accelerator="gpu", gpu_count=1, pressure_domains=()),
    "half": Profile(
        accelerator="gpu", gpu_count=1, gpu_memory_gb=30, gpu_utilization_pct=45,
        pressure_domains=(),
    ),
    "twin": Profile(
        accelerator="gpu", gpu_count=2, gpu_memory_gb=10, gpu_utilization_pct=20,
        pressure_domains=(),
    ),
}  # fmt: skip


class BrokenPromise(AssertionError):
    """A simulation found a fault."""


class SimRun:
    """One run and its processes."""

    def __init__(self, world: SimWorld, name: str, policy: SchedulerPolicy, peers: int) -> None:
        self.world, self.name, self.policy = world, name, policy
        self.key = hashlib.sha256(name.encode()).hexdigest()
        self.shims: dict[str, SimShim] = {}
        self.tags: list[str] = []
        self.stopped = False
        self.events_audience = world.rng.random() < 0.2
        self._close_files: dict[tuple[int, str], bool] = {}
        self.broker = SimBroker(world, self)
        self.launcher = SimLauncher(world, self)
        self.gateway = SimGateway(world, self)
        self.supply = SimSupply(world, self)
        self.sampler = SimSampler(world, self)
        self.peers = [SimPeer(world, self, f"p{n}") for n in range(1, peers + 1)]
        self.operator = SimPeer(world, self, "operator")

    def up(self, *, reopen: bool = False) -> None:
        """As the supervisor starts them."""
        self.stopped = False
        self.broker.start(reopen=reopen)
        for process in (self.gateway, self.launcher, self.supply, self.sampler):
            if not process.up:
                process.start()

    def down(self) -> None:
        """The stop is complete: the supervisor ends what it started."""
        self.stopped = True
        for process in (self.gateway, self.launcher, self.supply, self.sampler):
            process.kill()

    def give(self, shim: SimShim, order: orders.SpawnAttempt) -> None:
        """A shim is there: what its evaluator will use follows from what it was given."""
        values = order.environment
        profile = self.policy.profiles[str(values["PRAXIST_RESOURCE_PROFILE"])]
        uuids = str(values["PRAXIST_ASSIGNED_GPU_UUIDS"])
        shim.devices = tuple(uuids.split(",")) if uuids else ()
        memory = int((profile.gpu_memory_gb or 0) * 1024)
        busy = profile.gpu_utilization_pct or 0.0
        shim.declared = (profile.gpu_memory_gb is None, memory, busy)
        share = self.world.rng.choice((0.2, 0.9))
        shim.uses_mib = int((memory or 20_000) * share)
        shim.uses_pct = (busy or 80.0) * share
        self.shims[shim.attempt] = shim

    def freed(self, attempt: str) -> None:
        """Its allocation is released on disk: nothing of it may live."""
        shim = self.shims.get(attempt)
        if shim is not None and shim.tree:
            self.world.fault(f"{attempt} of {self.name} is freed and {shim.tree} live")

    # -- close files --------------------------------------------------------------------------

    def write_close_file(self, order: orders.WriteClosingSignal) -> None:
        """What the broker's files do."""
        if order.present:
            self._close_files[order.generation, "CLOSING_SIGNAL"] = True
            if order.generation not in self.broker.witness.ever_frozen:
                self.world.fault(f"{self.name}: CLOSING_SIGNAL before the freeze is on disk")
        else:
            for key in [key for key in self._close_files if key[0] == order.generation]:
                del self._close_files[key]

    def somebody_writes(self, generation: int) -> None:
        """A person's stop file."""
        self._close_files[generation, "STOP_SIGNAL"] = False

    def close_files(self) -> list[tuple[int, str]]:
        """Those of generations that take work, but for our own of a close before."""
        found = []
        phases = self.broker.machine.state.generations
        for key, own in list(self._close_files.items()):
            generation = phases.get(key[0])
            if generation is None or generation.phase not in ("open", "assessment"):
                continue
            if own:
                del self._close_files[key]
            else:
                found.append(key)
        return found


class SimWorld:
    """All of it, from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.time = Timeline()
        self.faults = Faults(self.rng)
        self.boot_id = "boot-1"
        self.healing = False
        self.patient = self.rng.random() < 0.1
        """Whether leases that nobody answers are waited for to the end of their window."""
        self.broken: list[str] = []
        self.reserved = 0
        self.starts_of: dict[tuple[str, str], int] = {}
        self.pressure = 1.0
        self.sample_ms = SAMPLE_MS
        self._notes: deque[tuple[int, str, tuple[Any, ...]]] = deque(maxlen=STEPS_SHOWN)
        self._processes: dict[int, ProcessIdentity] = {}
        self._last_pid = 100
        self._sample: reports.HostSampled | None = None
        self.devices = [SimDevice(n) for n in range(self.rng.choice((2, 2, 3)))]
        self.registry = SimRegistry(self)
        self.registry.start()
        self.runs: list[SimRun] = []
        for name in ("red", "blue"):
            self.runs.append(SimRun(self, name, self._policy(), self.rng.choice((2, 3))))
        for run in self.runs:
            run.up()
            for peer in run.peers:
                peer.start(peer_life(peer))
            run.operator.start(operator_life(run.operator))
        calamities.plan(self, FAULTS_MS)

    def _policy(self) -> SchedulerPolicy:
        rng = self.rng
        most = rng.choice((1, 2, 3, 4))
        least = rng.choice((most, 1))
        return SchedulerPolicy(
            max_concurrent_experiments=most,
            min_concurrent_experiments=least,
            initial_concurrent_experiments=least,
            adjustment_interval_seconds=2,
            infrastructure_retries=rng.choice((0, 1)),
            infrastructure_retry_pause_seconds=2,
            max_parallel_runs_per_peer=rng.choice((None, None, 2)),
            supply_idle_samples=2,
            supply_lease_seconds=180,
            default_profile="cpu",
            profiles=PROFILES,
        )

    # -- processes of the host ----------------------------------------------------------------

    def new_process(self, name: str) -> ProcessIdentity:
        """A process of this boot; `name` is for people."""
        self._last_pid += 1
        found = ProcessIdentity(
            boot_id=self.boot_id, pid_namespace=1, pid=self._last_pid, start_ticks=self._last_pid
        )
        self._processes[found.pid] = found
        return found

    def end_process(self, identity: ProcessIdentity) -> None:
        """It is gone; whoever watches it hears of it."""
        if self._processes.pop(identity.pid, None) is not None:
            self.registry.look()

    def alive(self, identity: ProcessIdentity) -> bool:
        """Whether this very process lives."""
        return self._processes.get(identity.pid) == identity

    def restart(self, process: Any) -> None:
        """Who is killed is started again after a while, as its supervisor does."""
        life = process.life

        def act() -> None:
            if process.up or process.life != life or getattr(process, "run", process) is None:
                return
            run = getattr(process, "run", None)
            if run is not None and run.stopped:
                return
            process.start()

        self.time.after(self.rng.choice((50, 300, 1_500)), act)

    def everybody(self) -> list[SimProcess]:
        """Every process that can be killed."""
        found: list[SimProcess] = [self.registry]
        for run in self.runs:
            found += (run.broker, run.launcher, run.gateway, run.supply)
        return found

    # -- what is seen -------------------------------------------------------------------------

    def sample(self) -> reports.HostSampled:
        """A look at the host; two looks in the same millisecond see the same."""
        if self._sample is None or self._sample.sampled_at_mono_ms != self.time.now_ms:
            self._sample = sample_of(self)
        return self._sample

    def on_device(self, uuid: str) -> list[SimShim]:
        """Whose experiments live on a device."""
        return [
            shim
            for run in self.runs
            for shim in run.shims.values()
            if uuid in shim.devices and shim.tree
        ]

    def starts(self, shim: SimShim, *, late: bool) -> None:
        """An evaluator's first instruction: once an attempt, never after a freeze, and alone or
        within what its devices have."""
        key = (shim.run.name, shim.attempt)
        self.starts_of[key] = self.starts_of.get(key, 0) + 1
        self.note(f"{shim.attempt} of {shim.run.name}", "starts")
        if self.starts_of[key] > 1:
            self.fault(f"{shim.attempt} of {shim.run.name} starts twice")
        if late:
            self.fault(f"{shim.attempt} of {shim.run.name} starts by a GO after its freeze")
        for uuid in shim.devices:
            on_it = self.on_device(uuid)
            alone = [one for one in on_it if one.declared[0]]
            memory = sum(one.declared[1] for one in on_it)
            busy = sum(one.declared[2] for one in on_it)
            if (alone and len(on_it) > 1) or memory > TOTAL_MIB * 0.95 or busy > 100.001:
                names = [f"{one.attempt} of {one.run.name}" for one in on_it]
                self.fault(f"{uuid} is promised too often: {names}")

    def judge_go(self, run: SimRun, attempt: str) -> None:
        """At GO: declared and foreign together fit, by the newest sample of the run or by the one
        before, where both came in one turn."""
        found = run.broker.machine.state.attempts.get(attempt)
        samples = (run.broker.sample_before, run.broker.machine.soft.sample)
        if found is None or any(sample is None for sample in samples):
            return
        if self.time.now_ms - samples[0].sampled_at_mono_ms > 5_000:
            return
        told = [self._overloaded(found, sample) for sample in samples]
        if all(told):
            self.fault(f"{attempt} of {run.name} gets GO on {told[-1]}")

    @staticmethod
    def _overloaded(found: Any, sample: reports.HostSampled) -> str | None:
        """A device that has no room for an attempt beside what is foreign on it."""
        for seen in sample.devices:
            if seen.uuid not in found.device_uuids or seen.processes is None:
                continue
            foreign = [one for one in seen.processes if one.pid == FOREIGN_PID]
            memory = sum(one.memory_mib or 0 for one in foreign)
            busy = sum(one.utilization_pct or 0.0 for one in foreign)
            alone = found.exclusive and (memory > 256 or busy > 5)
            full = (found.memory_mib or 0) + memory > TOTAL_MIB * 0.95
            if alone or full or (found.utilization_pct or 0) + busy > 100.001:
                return f"{seen.uuid} beside {memory} MiB and {busy} %"
        return None

    # -- telling ------------------------------------------------------------------------------

    def note(self, who: str, *what: Any) -> None:
        """A step, for who reads a failure."""
        self._notes.append((self.time.now_ms, who, what))

    def fault(self, words: str) -> None:
        """A broken promise."""
        self.note("FAULT", words)
        self.broken.append(f"at {self.time.now_ms} ms: {words}")

    def last_steps(self) -> str:
        """The newest notes, one a line."""
        return "\n".join(
            f"  {at_ms:>7} {who}: {' '.join(_words(one) for one in what)}"
            for at_ms, who, what in self._notes
        )

    def told(self) -> str:
        """What is broken, what came before it, and how to see it again."""
        faults = "\n".join(f"  {words}" for words in self.broken[:10])
        return (
            f"seed {self.seed} breaks a promise:\n{faults}\nthe last steps:\n{self.last_steps()}\n"
            f"again: bin/simulate --seed {self.seed}"
        )

    def digest(self) -> str:
        """Of everything that happened, as far as it left a trace."""
        mark = hashlib.sha256()
        for disk in (self.registry.disk, *(run.broker.disk for run in self.runs)):
            for record in disk.records:
                mark.update(record)
        mark.update(f"{self.time.now_ms} {self.time.steps} {sorted(self.starts_of)}".encode())
        return mark.hexdigest()

    # -- the two phases -----------------------------------------------------------------------

    def play(self) -> None:
        """Everything; stops at the first broken promise."""
        self._until(FAULTS_MS)
        if not self.broken:
            endings.play(self)
        if not self.broken:
            self._check_whole()

    def _until(self, at_ms: int) -> None:
        while not self.broken and (self.time.next_ms or at_ms) < at_ms and self.time.step():
            pass
        if not self.broken:
            self.time.now_ms = max(self.time.now_ms, at_ms)

    def run_until(self, done: Any, bound_ms: int) -> bool:
        """Let things happen until `done()`, looked at now and then; False after `bound_ms`."""
        until_ms = self.time.now_ms + bound_ms
        while not self.broken:
            if done():
                return True
            if self.time.now_ms >= until_ms:
                return False
            self._until(self.time.now_ms + 250)
        return True

    def _check_whole(self) -> None:
        self.registry.check_history()
        for run in self.runs:
            run.broker.witness.check_whole()
            if run.broker.up:
                again = run.broker.replayed().state
                for words in broker_snapshot.differences(again, run.broker.machine.state):
                    self.fault(f"{run.name}: its replay differs: {words}")


def _words(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else value
    return text if len(text) <= 300 else text[:300] + "..."


def play(seed: int) -> SimWorld:
    """Play one seed; the world as it ended. Raises BrokenPromise with all that helps."""
    world = SimWorld(seed)
    try:
        world.play()
    except Exception as error:
        world.fault(repr(error))
        raise BrokenPromise(world.told()) from error
    if world.broken:
        raise BrokenPromise(world.told())
    return world
