"""The broker's machine: which rule decides which command, and the one order of a turn.

Decides nothing itself. Commands go to the module that owns the rule; once a turn, after all of
them, waiting work is planned, watchers are answered, and what happened is published.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import PraxistError
from ..protocol import events as ev
from ..protocol import requests as req
from ..protocol.ids import job_number
from ..protocol.policy import SchedulerPolicy
from ..protocol.replies import EventsReply, PolicyReply, Pong, SubmittedJobs
from ..protocol.reports import HostSampled, ProcessesSeen, StoreRead
from ..protocol.text import OsText
from . import (
    activity,
    admission,
    attempts,
    concurrency,
    control,
    devices,
    evidence,
    explain,
    generations,
    holds,
    launcher_side,
    lease_grant,
    leases,
    narrate,
    nested,
    on_disk,
    pauses,
    probe_grace,
    queries,
    recall,
    registry_side,
    start_gate,
    storm,
    watching,
)
from .alarms import note_use
from .commands import (
    AudienceChanged,
    ClientRequest,
    FenceSeen,
    LauncherLost,
    LauncherSaid,
    LedgerMeasured,
    RegistryConnected,
    RegistryLost,
    RegistrySaid,
    RemnantsSeen,
    SignalSeen,
    SupplyLost,
    SupplySaid,
)
from .decision import Decision, Stamp, Undecodable
from .evolve import apply
from .last_look import expect_look, take_look
from .placement import stale_due_ms
from .plan import denial_due_ms, plan, sample_due_ms
from .pressure import note_sample
from .recovery import resume_jobs
from .soft import SoftState
from .state import BrokerState
from .submit import submissions, submit
from .turn import Turn, refusal_of
from .views import Viewer

KEEPALIVE_MS = 2_000
PUBLISH_PAUSE_MS = 20
"""Between publications: what happens meanwhile goes out together. They are hints, and a message
through the gateway for each event cost more than the decision it told of."""
_JOB = re.compile(r"j-[1-9][0-9]{0,11}")


class Broker:
    """`core.decision.Machine` over `BrokerState` and `SoftState`."""

    def __init__(self, state: BrokerState | None = None, soft: SoftState | None = None) -> None:
        self.state = state if state is not None else BrokerState()
        self.soft = soft if soft is not None else SoftState()
        self._viewer: Viewer | None = None

    # -- replay ---------------------------------------------------------------------------

    def apply(self, event: Any, sequence: int) -> None:
        """Change the state by one event read back from the ledger."""
        apply(event, self.state, sequence)
        self.soft.history.append((sequence, event))

    def pass_over(self, sequence: int, job: str | None, reason: str) -> None:
        """A record that cannot be read or applied: the rest of the ledger must not suffer.

        Its job, if it can be told, is set aside: it is not run until somebody has looked. What it
        may hold stays held until its processes are seen to be gone.
        """
        self.state.last_sequence = sequence
        self.soft.unreadable[job or f"record {sequence}"] = reason
        if job is not None and _JOB.fullmatch(job):
            # The number was given: another job under it would meet the files of this one.
            self.state.last_job_number = max(self.state.last_job_number, job_number(job))

    def _adopt(
        self,
        turn: Turn,
        policy: SchedulerPolicy,
        generation: int,
        cohort_size: int | None,
        deadline_at_ms: int | None,
    ) -> None:
        state = self.state
        kept = state.generations.get(generation)
        if kept is not None:
            cohort_size = kept.cohort_size if cohort_size is None else cohort_size
            deadline_at_ms = kept.deadline_at_ms if deadline_at_ms is None else deadline_at_ms
        now = (policy, generation, cohort_size, deadline_at_ms)
        known = kept and (state.policy, state.generation, kept.cohort_size, kept.deadline_at_ms)
        if now != known:
            turn.record(
                ev.PolicyAdopted(
                    at_ms=turn.stamp.at_ms,
                    policy=policy,
                    generation=generation,
                    cohort_size=cohort_size,
                    deadline_at_ms=deadline_at_ms,
                    deadline_mono_ms=generations.mono_deadline(turn, generation, deadline_at_ms),
                )
            )

    def begin(
        self,
        stamp: Stamp,
        *,
        run_id: str,
        boot_id: str,
        version: str,
        policy: SchedulerPolicy,
        generation: int,
        reopen: bool,
        cohort_size: int | None = None,
        deadline_at_ms: int | None = None,
        open_generation: bool = False,
        remembered: dict[str, OsText] | None = None,
    ) -> Decision:
        """After the replay: a new epoch, the contract, and every waiting job back in its place.

        What is not told of the generation stays as it was, or is unknown of a new one. With
        `open_generation` (`up` named it) one that had ended is run again. `remembered` are
        credential values that outlived an earlier broker, by their hash.
        """
        self.soft.fleet.run_key = self.soft.run_key
        self.soft.probe_known_ms = self.soft.launcher_away_ms = stamp.mono_ms
        self.soft.used_at_ms = stamp.mono_ms
        self.soft.launcher_talk.restart_at_ms = stamp.mono_ms + launcher_side.RESTART_AFTER_MS
        turn = self._turn(stamp)
        stopped = self.state.closed_reason not in (None, admission.ALL_FROZEN)
        known = generation in self.state.generations
        turn.record(
            ev.BrokerStarted(
                at_ms=stamp.at_ms,
                run_id=run_id,
                epoch=self.state.epoch + 1,
                boot_id=boot_id,
                version=version,
                reopened=reopen and stopped,
            )
        )
        self._adopt(turn, policy, generation, cohort_size, deadline_at_ms)
        generations.resume_deadlines(turn)
        if reopen and stopped:
            turn.record(ev.AdmissionOpened(at_ms=stamp.at_ms, reason="started again"))
        if open_generation:
            generations.open_at_start(turn, generation, known=known)
        # A broker that takes over in the middle of a stop goes on with it, below.
        self.soft.stopping = stopped and not reopen
        resume_jobs(turn, remembered or {})
        self.soft.active_non_mature = sum(
            1
            for attempt in self.state.attempts.values()
            if self.state.jobs[attempt.job].work_class != "mature"
        )
        generations.resume(turn)
        if self.soft.stopping:
            control.resume_stop(turn)
        for attempt in self.state.attempts.values():
            # While nothing was decided here, others may have taken the room.
            if attempt.phase in ("allocated", "bound"):
                profile = self.state.jobs[attempt.job].profile
                uuids = attempt.device_uuids
                expect_look(self.state, self.soft, attempt.attempt, profile, uuids, stamp.mono_ms)
        leases.recover(turn)
        self.soft.touched.clear()
        return turn.decision

    # -- a turn ---------------------------------------------------------------------------

    def decide(self, command: Any, stamp: Stamp) -> Decision:
        """Decide one command; its events are applied when this returns."""
        turn = self._turn(stamp)
        # One submission after another: what the views of one needed serves the next.
        turn.viewer, self._viewer = self._viewer, None
        if isinstance(command, ClientRequest):
            self._client(turn, command)
            if isinstance(command.request, req.SubmitJob):
                self._viewer = turn.viewer
        elif isinstance(command, Undecodable):
            self.soft.count(f"refused_{command.error.code}")
            turn.send("client", refusal_of(command.error), command.address, command.request_id)
        elif isinstance(command, LauncherSaid):
            launcher_side.said(turn, command)
        elif isinstance(command, RegistrySaid):
            registry_side.said(turn, command)
        elif isinstance(command, RegistryConnected):
            registry_side.connected(turn)
        elif isinstance(command, RegistryLost):
            registry_side.lost(turn)
        elif isinstance(command, LauncherLost):
            launcher_side.lost(turn, command.address)
        elif isinstance(command, HostSampled):
            self._sampled(turn, command)
        elif isinstance(command, ProcessesSeen):
            self.soft.processes = command
        elif isinstance(command, AudienceChanged):
            self._audience(turn, command)
        elif isinstance(command, SupplySaid):
            lease_grant.said(turn, command)
        elif isinstance(command, SupplyLost):
            lease_grant.supply_lost(turn, command.address)
        elif isinstance(command, RemnantsSeen):
            on_disk.take_note(turn, command.remnants)
        elif isinstance(command, SignalSeen):
            generations.signal_seen(turn, command.generation, command.name)
        elif isinstance(command, StoreRead):
            evidence.store_read(turn, command)
        elif isinstance(command, FenceSeen):
            self.soft.fenced = command.present
            recall.call_back(turn)
        elif isinstance(command, LedgerMeasured):
            self.soft.low_space = command.low_space
            self.soft.ledger_bytes = command.bytes_on_disk
            self.soft.disk = command.disk
        else:
            raise TypeError(f"not a command of the broker's: {type(command).__name__}")
        return turn.decision

    def settle(self, stamp: Stamp) -> Decision:
        """Once a turn: plan what waits, answer who waits, publish what happened."""
        self._viewer = None
        turn = self._turn(stamp)
        launcher_side.look_after(turn)
        attempts.tell_stuck(turn)
        nested.ask(turn)
        registry_side.register_again(turn)
        holds.ask_again(turn)
        generations.advance(turn)
        registry_side.let_go(turn)
        lease_grant.compare_with_host(turn)
        leases.upkeep(turn)
        probe_grace.give_up(turn)
        storm.advance(self.state, self.soft)
        concurrency.adjust(turn)
        plan(turn)
        note_use(self.state, self.soft)
        lease_grant.send_facts(turn)
        watching.answer_watchers(turn)
        registry_side.report_load(turn)
        lease_grant.tell_alive(turn)
        self._publish(turn)
        return turn.decision

    def end(self, stamp: Stamp) -> Decision:
        """The last of all turns, in an orderly end."""
        turn = self._turn(stamp)
        leases.leave(turn)
        registry_side.leave(turn)
        return turn.decision

    def wake_at_ms(self) -> int | None:
        """The next publication, report of our load, or question that was denied before."""
        soft = self.soft
        due = [
            registry_side.load_due_ms(self.state, soft),
            denial_due_ms(soft),
            sample_due_ms(soft),
            generations.deadline_due_ms(self.state, soft),
            stale_due_ms(soft),
            leases.due_ms(self.state, soft),
            lease_grant.alive_due_ms(soft),
            attempts.stuck_due_ms(soft),
            nested.due_ms(soft),
            storm.due_ms(self.state, soft),
            pauses.due_ms(soft),
            start_gate.due_ms(soft),
            probe_grace.due_ms(self.state, soft),
            soft.register_again_at_ms,
            holds.again_due_ms(soft),
            launcher_side.due_ms(self.state, soft),
        ]
        if soft.audience:
            pause = PUBLISH_PAUSE_MS if soft.unpublished else KEEPALIVE_MS
            due.append(soft.published_at_ms + pause)
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    @property
    def recorded(self) -> int:
        """The last sequence that was recorded."""
        return self.state.last_sequence

    @property
    def stopped(self) -> bool:
        """Whether a stop was asked for and nothing is left."""
        return self.soft.stopping and not self.state.attempts and not self.soft.plans

    # -- parts ----------------------------------------------------------------------------

    def _turn(self, stamp: Stamp) -> Turn:
        return Turn(self.state, self.soft, stamp)

    def _client(self, turn: Turn, command: ClientRequest) -> None:
        try:
            reply = self._answer(turn, command)
        except PraxistError as error:
            self.soft.count(f"refused_{error.code}")
            reply = refusal_of(error)
        if reply is not None:
            turn.reply(command, reply)

    def _answer(self, turn: Turn, command: ClientRequest) -> Any:
        request = command.request
        match request:
            case req.SubmitJob():
                return submit(turn, command, request)
            case req.SubmitJobs():
                results = (
                    submit(turn, command, job, index)
                    for index, job in enumerate(submissions(request))
                )
                return SubmittedJobs(results=tuple(results))
            case req.WatchJob():
                return watching.watch(turn, command, request)
            case req.ShowJob():
                return queries.show(turn, request)
            case req.ExplainJob():
                return explain.explain(turn, request)
            case req.ListJobs():
                return queries.jobs(turn, request)
            case req.GetStatus():
                return queries.status(turn)
            case req.GetPolicy():
                return self._policy()
            case req.GetDevices():
                return devices.devices(turn)
            case req.ReadEvents():
                return queries.events(turn, request)
            case req.CancelJobs():
                return control.cancel(turn, request, command.uid)
            case req.RetryJob():
                return control.retry(turn, command, request)
            case req.StopRun():
                return control.stop(turn, request)
            case req.HoldAdmission():
                return control.hold(turn, request)
            case req.ReportProgress():
                return nested.progress(turn, command, request)
            case req.OpenGeneration():
                return generations.open_generation(turn, request)
            case req.AssessGeneration():
                return generations.assess(turn, request)
            case req.FreezeGeneration():
                return generations.freeze(turn, request)
            case req.ShowGeneration():
                return generations.show(turn, request)
            case req.PublishResult():
                return evidence.publish(turn, request)
            case req.ListResults():
                return evidence.results(turn, request)
            case req.ValidateAttempt():
                return nested.validate(turn, command, request)
            case req.RegisterIdle():
                return leases.register(turn, request)
            case req.UnregisterIdle():
                return leases.unregister(turn, request)
            case req.GetLease():
                return leases.get(turn, request)
            case req.DeclineLease():
                return leases.decline(turn, request)
            case req.ListLeases():
                return leases.listed(turn, request)
            case req.Ping():
                return Pong(run_id=self.state.run_id, epoch=self.state.epoch)
        raise TypeError(f"no rule for {type(request).__name__}")

    def _policy(self) -> PolicyReply:
        """The contract in force."""
        now = self.state.policy
        return PolicyReply(
            policy=now, generation=self.state.generation, is_default=now == SchedulerPolicy()
        )

    def _sampled(self, turn: Turn, sample: HostSampled) -> None:
        self.soft.sample, self.soft.simulated = sample, sample.simulated
        if sample.probe_state != "unknown":
            self.soft.probe_known_ms = sample.sampled_at_mono_ms
        probe_grace.note_probe(self.soft, sample.probe_state)
        self.soft.fleet.take_sample(sample.devices, sample.sampled_at_mono_ms)
        note_sample(self.soft, sample)
        take_look(self.soft)
        activity.observe_bindings(turn)

    def _audience(self, turn: Turn, command: AudienceChanged) -> None:
        """The first listener hears at once where the history stands, and so sees what it missed."""
        soft = self.soft
        lease_grant.audience(turn, command.leases)
        if command.present == soft.audience:
            return
        soft.unpublished.clear()
        if command.present:
            soft.published_at_ms = 0
        soft.audience = command.present

    def _publish(self, turn: Turn) -> None:
        soft, state = self.soft, self.state
        if not soft.audience:
            return
        pause = PUBLISH_PAUSE_MS if soft.unpublished else KEEPALIVE_MS
        if turn.stamp.mono_ms < soft.published_at_ms + pause:
            return
        lines = tuple(narrate.line(sequence, event) for sequence, event in soft.unpublished)
        soft.unpublished.clear()
        soft.published_at_ms = turn.stamp.mono_ms
        turn.send(
            "events",
            EventsReply(
                events=lines,
                epoch=state.epoch,
                last_sequence=state.last_sequence,
                first_sequence=soft.history[0][0] if soft.history else 0,
            ),
        )
