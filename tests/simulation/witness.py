"""Who saw what: a run's durable history as it grows, against what others were told and do.

Shares no code with the broker. It reads events when they are on disk, replies when they leave and
when they arrive, orders when they leave; each is judged at that moment by the promises alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from praxist_zmq.core.invariants import check_history
from praxist_zmq.protocol import events as ev
from praxist_zmq.protocol import orders
from praxist_zmq.protocol import replies as rep
from praxist_zmq.protocol.ids import job_of
from praxist_zmq.protocol.job_states import TERMINAL_STATES
from praxist_zmq.protocol.requests import SubmitJob, SubmitJobs

if TYPE_CHECKING:
    from .brokers import SimBroker

FORWARD = {"open": 0, "assessment": 1, "frozen": 2, "closed": 3}


class RunWitness:
    """One run's."""

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self.history: list[Any] = []
        self.phases: dict[int, str] = {}
        self.ever_frozen: set[int] = set()
        self._frozen_before: set[int] = set()
        self.closed = False
        self.jobs: dict[str, ev.JobQueued] = {}
        self.state: dict[str, str] = {}
        self.live: dict[str, ev.LeaseGranted] = {}
        self._cut_short: Any = None
        """What the disk ended with before the newest broker."""
        self.ended: dict[str, str] = {}
        self.holding: dict[str, str] = {}
        """Attempt that holds an allocation -> its job."""
        self.allocated: set[str] = set()
        self.bound: set[str] = set()
        self.exits: dict[str, ev.AttemptExited] = {}
        self.results: set[tuple[int, str]] = set()
        self.grants = self.consumed = 0
        self._answers: dict[tuple[str | None, int], tuple[str, bool]] = {}
        self._requests: dict[tuple[str, int], str] = {}
        self._limit = 0

    def _fault(self, words: str) -> None:
        self._broker.world.fault(f"{self._broker.run.name}: {words}")

    def frozen(self, generation: int) -> bool:
        """Whether the disk says that nothing of it starts."""
        return self.phases.get(generation) in ("frozen", "closed")

    def turn_begins(self) -> None:
        """What is frozen from now on may meet a GO that was decided before, in the same turn."""
        self._frozen_before = {number for number in self.phases if self.frozen(number)}

    def generation_of(self, job: str) -> int:
        """Of a job."""
        return self.jobs[job].generation

    def restarted(self) -> None:
        """Another broker: an answer that is on no disk may have been lost, and is given anew."""
        self._answers = {key: told for key, told in self._answers.items() if told[1]}

    # -- the disk -----------------------------------------------------------------------------

    def durable(self, batch: list[Any], *, torn: bool) -> None:
        """A batch is on disk, or, torn, the beginning of one."""
        before: Any = None
        for event in batch:
            self._broker.world.note(f"{self._broker.run.name}'s disk", "has", event)
            self._see(event, before)
            before = event
        self.history += batch

    def _see(self, event: Any, before: Any) -> None:
        match event:
            case ev.JobQueued():
                self.jobs[event.job] = event
                self.state[event.job] = "queued"
                self._taken(event, "queued")
            case ev.JobRetried():
                self.state[event.job] = "queued"
                self._taken(event, "retried")
            case ev.JobRequeued():
                self.state[event.job] = "queued"
            case ev.JobRejected():
                self._ends(event.job, event.state, "queued")
            case ev.JobFinished():
                self._ends(event.job, event.state, "running")
                self._finished(event)
            case ev.AttemptAllocated():
                self._may_go_on(event.job, "given an allocation")
                self.state[event.job] = "running"
                self.holding[event.attempt] = event.job
                self.allocated.add(event.attempt)
                if len(self.holding) > self._limit:
                    self._fault(f"{len(self.holding)} allocations, the limit is {self._limit}")
            case ev.AttemptBound():
                self.bound.add(event.attempt)
            case ev.AttemptExited():
                self.exits[event.attempt] = event
            case ev.AllocationReleased():
                self.holding.pop(event.attempt, None)
                self._broker.run.freed(event.attempt)
            case ev.BrokerStarted():
                self._cut_short = self.history[-1] if self.history else None
            case ev.LeaseGranted() | ev.LeaseEnded():
                self._lease(event, before)
            case ev.PolicyAdopted():
                self.phases.setdefault(event.generation, "open")
                self._limit = event.policy.max_concurrent_experiments
            case ev.AdmissionClosed():
                self.closed = True
            case ev.AdmissionOpened():
                self.closed = False
            case ev.ResultPublished():
                self.results.add((event.generation, event.tag))
            case ev.GenerationOpened():
                self.phases[event.generation] = "open"
            case ev.GenerationAssessed():
                self._moves(event.generation, "assessment")
            case ev.GenerationFrozen():
                self._moves(event.generation, "frozen", again=event.signal)
            case ev.GenerationClosed():
                self._moves(event.generation, "closed")

    def _moves(self, generation: int, phase: str, *, again: bool = False) -> None:
        """Forward only; a freeze may come again to add its signal."""
        before = self.phases.get(generation, "open")
        if FORWARD[phase] <= FORWARD[before] and not again:
            self._fault(f"generation {generation} goes from {before} to {phase}")
        self.phases[generation] = phase
        if phase == "frozen":
            self.ever_frozen.add(generation)
        live = [j for j, s in self.state.items() if s in ("queued", "running")]
        if phase == "closed" and any(self.generation_of(job) == generation for job in live):
            self._fault(f"generation {generation} is closed and has live jobs")

    def _taken(self, event: Any, what: str) -> None:
        asked = (event.request_id, event.request_index)
        if asked in self._requests:
            self._fault(f"{event.job} is {what} by request {asked}, as was {self._requests[asked]}")
        self._requests[asked] = event.job
        self._may_go_on(event.job, what)

    def _may_go_on(self, job: str, what: str) -> None:
        number = self.generation_of(job)
        if self.frozen(number):
            self._fault(f"{job} is {what} after the freeze of generation {number}")
        if self.closed:
            self._fault(f"{job} is {what} after admission was closed")

    def _ends(self, job: str, state: str, expected: str) -> None:
        if self.state.get(job) != expected:
            self._fault(f"{job} becomes {state}, and was {self.state.get(job)}")
        self.state[job] = state

    def _finished(self, event: ev.JobFinished) -> None:
        found = self.exits.get(event.attempt)
        code = None if found is None else found.exit_code
        if event.state == "completed" and code != 0:
            self._fault(f"{event.job} completed with exit code {code}")

    def _lease(self, event: Any, before: Any) -> None:
        name = event.lease_id
        if getattr(self._cut_short, "lease_id", None) == name:
            before = self._cut_short  # of its batch only the job reached the disk
        if isinstance(event, ev.LeaseGranted):
            self.grants += 1
            if name in self.live or name in self.ended:
                self._fault(f"{name} is granted twice")
            if any(lease.peer == event.peer for lease in self.live.values()):
                self._fault(f"{event.peer} is granted a second lease")
            phase = self.phases.get(event.generation, "open")
            if phase not in ("open", "assessment") or self.closed:
                self._fault(f"{name} is granted while its generation is {phase}")
            if phase == "assessment" and event.priority != "mature":
                self._fault(f"{name} of {event.priority} is granted in assessment")
            self.live[name] = event
            if len(self.live) + len(self.holding) > self._limit:
                self._fault(f"{len(self.live)} leases and {len(self.holding)} allocations")
            return
        grant = self.live.pop(name, None)
        if grant is None:
            self._fault(f"{name} ends as {event.outcome}, and was {self.ended.get(name)}")
        self.ended[name] = event.outcome
        if event.outcome != "consumed":
            return
        self.consumed += 1
        queued = isinstance(before, ev.JobQueued | ev.JobRetried) and before.lease_id == name
        if not queued or before.job != event.job:
            self._fault(f"{name} is consumed without its job in the same batch")
        elif grant is not None and self.jobs[event.job].peer != grant.peer:
            self._fault(f"{name} of {grant.peer} is consumed by another's job")

    # -- what leaves --------------------------------------------------------------------------

    def ordered(self, order: Any) -> bool:
        """An order leaves. For GO: whether it comes after its freeze."""
        if not isinstance(order, orders.ReleaseAttempt):
            return False
        name = order.attempt
        if name not in self.bound:
            self._fault(f"{name} gets GO before its binding is on disk")
        if name not in self.allocated:
            self._fault(f"{name} gets GO without an allocation")
        if name not in self.holding:
            return False  # decided before its end, in the same turn; there is nobody to hear it
        job = job_of(name)
        world = self._broker.world
        registry, key = world.registry, (self._broker.run.key, name)
        if registry.up and key not in registry.machine.state.rows:
            self._fault(f"{name} gets GO and the registry holds nothing for it")
        world.judge_go(self._broker.run, name)
        return self.generation_of(job) in self._frozen_before

    def answered(self, request_id: str | None, reply: Any) -> None:
        """A reply leaves: what it says of jobs is on disk, and what it said before."""
        found = reply.results if isinstance(reply, rep.SubmittedJobs) else (reply,)
        for index, one in enumerate(found):
            if not isinstance(one, rep.Submitted):
                continue
            job = one.job.job
            if job not in self.jobs:
                self._fault(f"{job} is acknowledged and not on disk")
            before = self._answers.setdefault((request_id, index), (job, one.new))
            if before != (job, one.new):
                self._fault(f"{request_id} is answered with {(job, one.new)}, before {before}")

    # -- what arrives -------------------------------------------------------------------------

    def told(self, peer: str, request: Any, reply: Any) -> None:
        """A peer reads an answer: it was true, and stays true."""
        match reply:
            case rep.Submitted():
                self._told_job(request, reply)
            case rep.SubmittedJobs():
                for one, found in zip(request.jobs, reply.results, strict=True):
                    if isinstance(found, rep.Submitted):
                        self._told_job(one, found)
            case rep.JobReply():
                name, shown = reply.job.job, reply.job.state
                if name not in self.jobs:
                    self._fault(f"{peer} is told of {name}, which is not on disk")
                elif shown in TERMINAL_STATES and not self._was(name, shown):
                    self._fault(f"{peer} is told that {name} is {shown}; the disk says otherwise")
            case rep.CancelledJobs():
                for one in reply.results:
                    withdrawn = self._was(one.job, "cancelled") or self._was(one.job, "rejected")
                    if one.outcome == "cancelled" and not withdrawn:
                        self._fault(f"{one.job} is told to be cancelled, and is not")
            case rep.LeaseReply() if reply.lease is not None:
                name = reply.lease.lease_id
                if name not in self.live and name not in self.ended:
                    self._fault(f"{peer} is told of {name}, which is not on disk")
                if reply.lease.peer != peer:
                    self._fault(f"{peer} is told of a lease of {reply.lease.peer}")
            case rep.LeaseDeclined():
                if self.ended.get(reply.lease.lease_id) != reply.lease.state:
                    self._fault(f"{reply.lease.lease_id} is told to be {reply.lease.state}")
            case rep.ResultNoted():
                if (reply.result.generation, reply.result.tag) not in self.results:
                    self._fault(f"{reply.result.tag} is noted and not on disk")

    def _told_job(self, request: Any, reply: rep.Submitted) -> None:
        queued = self.jobs.get(reply.job.job)
        if queued is None:
            self._fault(f"{reply.job.job} is acknowledged, and the disk does not have it")
        elif isinstance(request, SubmitJob | SubmitJobs) and queued.tag != reply.job.tag:
            self._fault(f"{reply.job.job} is told to be {reply.job.tag}, and is {queued.tag}")

    def _was(self, job: str, state: str) -> bool:
        """Whether a job is, or was before a retry, in this state by the disk."""
        if self.state.get(job) == state:
            return True
        return any(
            (isinstance(e, ev.JobRejected) and e.job == job and e.state == state)
            or (isinstance(e, ev.JobFinished) and e.job == job and e.state == state)
            for e in self.history
        )

    # -- at the end ---------------------------------------------------------------------------

    def check_whole(self) -> None:
        """Over the whole history, by the product's own reading of it, and against what ran."""
        for words in check_history(self.history):
            self._fault(f"history: {words}")
        for name, exited in self.exits.items():
            self._check_exit(name, exited)

    def _check_exit(self, name: str, exited: ev.AttemptExited) -> None:
        run = self._broker.run
        ran = run.world.starts_of.get((run.name, name), 0)
        if exited.outcome == "never_ran" and ran:
            self._fault(f"{name} is told to never have run, and did")
        shim = run.shims.get(name)
        record = None if shim is None else shim.record
        if record is None or shim is None or shim.destroyed:
            return
        if exited.outcome == "exited" and exited.exit_code != record.exit_code:
            self._fault(f"{name} ended with {record.exit_code}, the disk says {exited.exit_code}")
        if exited.outcome == "unknown":
            self._fault(f"the exit status of {name} is lost")
