"""The claim registry's decisions: which run may hold which device, and when a hold ends.

It never reads a clock, a socket or /proc: the shell tells it that a process is proved gone, and
it never trusts a run that lost its epoch. Source of the rules: design 2 (promises 5, 6, 7) and
design 3 "plan and apply across runs".

**Idempotence.** `RegisterRun`, `Reserve`, `Bind`, `Release` and what is asked of leases say what
shall be, so sending one again gives the same answer. What a broken connection delivers late, after
the state moved on, changes nothing (`claim_memory`): a request id that was granted to the same
broker before is answered from the state as it is now, one to hold something that was denied is
denied again, and so is one whose broker has registered on another connection since.

**When a row ends.**
- `Release` by the run's registered broker: its ledger says that the tree is gone.
- A registered broker that does not list it in `RegisterRun`: at once when it is unbound, else when
  its whole tree is proved gone (`core.proof`; that the shim is gone proves nothing of the tree). A
  run directory that was deleted and made again lists nothing, and its experiments may still run;
  the new run can neither take over nor release an attempt that it did not list.
- Its run is not registered (broker proved gone, or ended in order), and has not been for
  `ORPHAN_GRACE_MS`: a bound row when its whole tree is proved gone, an unbound row at once. Proof
  for the unbound one: a broker sends GO only after its `Bind` was granted, and a run that is not
  registered can neither bind nor be granted anything; so nothing of that attempt has run, and
  nothing can without a new `Reserve`. The time is for a broker that is being restarted: where a
  shim was destroyed, it knows best how its tree ended.
- The host booted since: nothing survived.

**Whose it is.** A run belongs to the user whose broker registered it, by the kernel's word, for as
long as it is registered or holds anything; nobody else may speak for it. A run of a ledger that
names no user is the registry's own user's.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ..protocol.claims import (
    AllocationRow,
    Bind,
    ClaimBound,
    ClaimLease,
    ClaimReleased,
    ClaimReserved,
    ClaimSnapshot,
    Denied,
    DeregisterRun,
    Granted,
    RaiseLimit,
    Registered,
    RegisterRun,
    RegistryOpened,
    Release,
    ReleaseLease,
    ReportLoad,
    Reserve,
    RunDeregistered,
    RunRegistered,
    ViewHost,
    Want,
)
from .claim_admit import (
    deny,
    misfits,
    refuse_held,
    refuse_reserve,
    refuse_run,
    refuse_sender,
    refuse_user,
)
from .claim_commands import (
    BrokersGone,
    BrokerUnreachable,
    ClaimCommand,
    DevicesElsewhere,
    ProcessesProvedAbsent,
    RegistryStarted,
)
from .claim_fair import GUEST_REPORT_MS, Raises, Wants
from .claim_leases import EVERYBODY, LeaseHolds
from .claim_memory import DeniedRequests, GrantedRequests, Registrations
from .claim_state import ClaimState, RowKey, Watch
from .claim_view import Audience, HostViews
from .decision import Decision, Send, Stamp, Undecodable

ORPHAN_GRACE_MS = 5_000
"""How long a row that nobody holds waits for the next broker of its run."""


class ClaimMachine:
    """The registry as a pure machine (`core.decision.Machine`)."""

    def __init__(self, snapshot: ClaimSnapshot | None = None) -> None:
        self.state = ClaimState() if snapshot is None else ClaimState.restored(snapshot)
        self._wants = Wants()
        self._raises = Raises()
        self._leases = LeaseHolds(self.state, self._wants, lambda key: self._audience.changed(key))
        self._views = HostViews(self.state, self._wants, self._leases)
        self._recovered: dict[str, frozenset[str]] = {}
        self._audience = Audience(self._views)
        self._absent: set[RowKey] = set()
        self.disowned: set[RowKey] = set()
        self._orphan_due_ms: dict[str, int] = {}
        self._granted = GrantedRequests()
        self._denied = DeniedRequests()
        self._registrations = Registrations()
        self._orphans_may_exist = True
        self._recorded = 0
        self.refused: dict[str, int] = {}
        """How many requests were denied, by code."""

    # -- the machine's contract ------------------------------------------------------------

    def decide(self, command: Any, stamp: Stamp) -> Decision:
        """Decide one command or fact."""
        decision = Decision()
        match command:
            case ClaimCommand():
                reply = self._answer(command, stamp, decision)
                if isinstance(reply, Denied):
                    self.refused[reply.code] = self.refused.get(reply.code, 0) + 1
                    reply = reply.model_copy(update={"view": self._views.of(command.uid)})
                decision.outbox.append(
                    Send("broker", reply, address=command.address, request_id=command.request_id)
                )
            case Undecodable():
                denied = Denied(code=command.error.code, detail=command.error.detail)
                decision.outbox.append(
                    Send("broker", denied, address=command.address, request_id=command.request_id)
                )
            case RegistryStarted():
                self.state.own_uid = command.uid
                self._open(command.boot_id, stamp, decision)
            case ProcessesProvedAbsent():
                for watch in command.rows:
                    self._tree_absent(watch, stamp, decision)
            case BrokersGone():
                for watch in command.brokers:
                    self._broker_gone(watch, stamp, decision)
            case DevicesElsewhere():
                self.state.elsewhere = {device.uuid: device for device in command.devices}
                self._audience.changed(EVERYBODY)
            case BrokerUnreachable():
                for key in self._audience.runs_at(command.address):
                    self._want(key, None, stamp)
                    self._audience.missed(key, stamp.mono_ms)
            case _:
                raise TypeError(f"no rule for {type(command).__name__}")
        return decision

    def settle(self, stamp: Stamp) -> Decision:
        """End holds that waited long enough; push the view once to whom others' rows changed."""
        decision = Decision()
        self._release_orphans(stamp, decision)
        self._raises.expire(stamp.mono_ms)
        self._leases.expire(stamp.mono_ms)
        for run_key in self._wants.expire(stamp.mono_ms):
            self._audience.changed(run_key)
        decision.outbox.extend(self._audience.pushes(self.state.owner_of, stamp.mono_ms))
        return decision

    def apply(self, event: Any, sequence: int) -> None:
        """Fold one event. Raises `ledger_damaged` for one that cannot follow the state."""
        self.state.apply(event, sequence)
        self._views.changed()
        self._recorded += 1
        match event:
            case RunRegistered():
                self._audience.changed(event.run.run_key)
                self._leases.end_run(event.run.run_key)
                self._orphan_due_ms.pop(event.run.run_key, None)
            case RunDeregistered():
                self._audience.changed(event.run_key)
                self._audience.leave(event.run_key)
                self._registrations.forget(event.run_key)
                self._recovered.pop(event.run_key, None)
                self._wants.forget(event.run_key)
                self._leases.end_run(event.run_key)
                self._raises.forget(event.run_key)
                self._orphans_may_exist = True
            case ClaimReserved():
                # One that stands beside others is news to its own run too.
                crowded = event.row.overcommitted
                self._audience.changed(EVERYBODY if crowded else event.row.run_key)
            case ClaimBound():
                self._audience.changed(event.run_key)
            case ClaimReleased():
                self._audience.changed(event.run_key)
                if event.reason != "released":
                    self._audience.changed(EVERYBODY)
                self._absent.discard((event.run_key, event.attempt))
                self.disowned.discard((event.run_key, event.attempt))

    @property
    def recorded(self) -> int:
        """How many events were folded since this machine was made."""
        return self._recorded

    def wake_at_ms(self) -> int | None:
        """When the next unbound row of an unregistered run may end, or a want or lease is over."""
        dues = [*self._orphan_due_ms.values(), self._wants.due_ms(), self._leases.due_ms()]
        dues.append(self._audience.due_ms())
        return min((due_ms for due_ms in dues if due_ms is not None), default=None)

    # -- for the shell ---------------------------------------------------------------------

    def snapshot(self) -> ClaimSnapshot:
        """The durable state."""
        return self.state.snapshot()

    @property
    def idle(self) -> bool:
        """No run is registered and nothing is held: the registry may end."""
        return not self.state.runs and not self.state.rows

    # -- requests --------------------------------------------------------------------------

    def _answer(self, command: ClaimCommand, stamp: Stamp, decision: Decision) -> BaseModel:
        request, uid = command.request, command.uid
        if isinstance(request, ViewHost):
            return self._views.of(uid)
        key = request.run.run_key if isinstance(request, RegisterRun) else request.run_key
        refused = refuse_user(self.state, key, uid, command.forged)
        if refused is None and isinstance(request, RegisterRun):
            return self._register(command, request, stamp, decision)
        refused = refused or refuse_sender(self.state, request, command.pid, self._registrations)
        if refused is not None:
            return refused
        self._audience.at(request.run_key, command.address)
        broker = self.state.runs[request.run_key].broker
        seen = self._granted.has(broker, command.request_id)
        told = self._denied.get(broker, command.request_id)
        if told is not None:
            return told
        match request:
            case Reserve():
                reply = self._reserve(request, seen, stamp, decision)
            case Bind():
                reply = self._bind(request, seen, stamp, decision)
            case Release():
                reply = self._release(request, seen, stamp, decision)
            case ReportLoad():
                return self._report(request, stamp)
            case RaiseLimit():
                not_now = self._raises.ask(request.run_key, request.interval_ms, stamp.mono_ms)
                return deny("not_now", not_now) if not_now else self._grant()
            case ClaimLease() | ReleaseLease():
                reply = self._leases.answer(request, seen, stamp.mono_ms) or self._grant()
            case DeregisterRun():
                reply = self._deregister(request, seen, stamp, decision)
            case _:
                raise TypeError(f"no rule for {type(request).__name__}")
        if isinstance(reply, Granted):
            self._granted.add(broker, command.request_id)
        elif isinstance(request, Reserve | ClaimLease):
            self._denied.add(broker, command.request_id, reply)
        return reply

    def _register(
        self, command: ClaimCommand, request: RegisterRun, stamp: Stamp, decision: Decision
    ) -> BaseModel:
        run = request.run.model_copy(update={"uid": command.uid})
        old = self.state.runs.get(run.run_key)
        if old is not None and run.epoch < old.epoch:
            return deny("stale_epoch", f"epoch {run.epoch} is over; {old.epoch} serves it")
        number = (run.epoch, request.registration)
        refused = self._registrations.late(run.run_key, number)
        if refused is None and old is None:
            refused = refuse_run(self.state, run)
        if refused is not None:
            return refused
        if self._granted.has(run.broker, command.request_id):
            if old is None or old.broker != run.broker:
                return deny("stale_epoch", "this registration was replaced since")
        else:
            if not self.state.knows(run):
                self._emit(RunRegistered(at_ms=stamp.at_ms, run=run), decision)
            else:
                self._set_load(run.run_key, run.running, run.queued, run.limit)
            self._recovered[run.run_key] = frozenset(request.attempts)
            self._disown(run.run_key, frozenset(request.attempts), stamp, decision)
            self._granted.add(run.broker, command.request_id)
        self._audience.at(run.run_key, command.address)
        self._registrations.add(run.run_key, number)
        return Registered(registry_epoch=self.state.epoch, view=self._views.of(command.uid))

    def _report(self, request: ReportLoad, stamp: Stamp) -> Granted | Denied:
        if self._wants.too_soon(self.state, request.run_key, stamp.mono_ms):
            return deny("not_now", f"one report in {GUEST_REPORT_MS} ms is taken")
        self._set_load(request.run_key, request.running, request.queued, request.limit)
        self._want(request.run_key, request.want, stamp)
        return self._grant()

    def _set_load(self, run_key: str, running: int, queued: int, limit: int) -> None:
        before = self.state.limit()
        self.state.set_load(run_key, running, queued, limit)
        self._views.changed()
        if self.state.limit() != before:
            # The run that caused it has to see it too: its own gate goes by the view.
            self._audience.changed(EVERYBODY)

    def _want(self, run_key: str, want: Want | None, stamp: Stamp) -> None:
        if self._wants.report(self.state, run_key, want, stamp.mono_ms):
            self._audience.changed(run_key)

    def _disown(
        self, run_key: str, attempts: frozenset[str], stamp: Stamp, decision: Decision
    ) -> None:
        for row in self.state.of_run(run_key):
            key = (run_key, row.attempt)
            if row.attempt in attempts:
                self.disowned.discard(key)
            elif row.bound is None:
                self._end(key, "not_claimed_by_run", stamp, decision)
            elif key in self._absent:
                self._end(key, "proved_absent", stamp, decision)
            else:
                self.disowned.add(key)

    def _reserve(
        self, request: Reserve, seen: bool, stamp: Stamp, decision: Decision
    ) -> Granted | Denied:
        envelope, attempt = request.envelope, request.attempt
        key, recovered = (request.run_key, attempt), self._recovered.get(request.run_key, ())
        held = self.state.rows.get(key)
        if held is not None:
            # A registry that started again does not know whom its runs disowned.
            known = attempt in recovered or held.bound in (None, request.shim)
            ours = known and key not in self.disowned
            return refuse_held(held, envelope, ours=ours) or self._grant(attempt)
        if seen:
            return deny("conflict", "this request was granted and has ended since", attempt)
        again = request.shim is not None or (not request.facts and attempt in recovered)
        refusal = refuse_reserve(self.state, self._wants, request, stamp.mono_ms, again=again)
        if refusal is not None:
            return refusal
        row = AllocationRow(
            run_key=request.run_key,
            attempt=attempt,
            envelope=envelope,
            bound=None,
            device_memory_mib=tuple(fact.memory_total_mib for fact in request.facts),
            overcommitted=misfits(self.state, envelope, request.facts, again=again) is not None,
        )
        self._emit(ClaimReserved(at_ms=stamp.at_ms, row=row), decision)
        self._wants.served(request.run_key)
        self._leases.make_way(request)
        return self._grant(attempt)

    def _bind(
        self, request: Bind, seen: bool, stamp: Stamp, decision: Decision
    ) -> Granted | Denied:
        attempt = request.attempt
        row = self.state.rows.get((request.run_key, attempt))
        if row is None:
            return deny("conflict", f"{attempt} holds nothing; reserve first", attempt)
        if row.bound == request.shim:
            return self._grant(attempt)
        if row.bound is not None:
            return deny("conflict", f"{attempt} is bound to another process", attempt)
        if seen:
            return deny("conflict", "this request was granted and has ended since", attempt)
        self._emit(
            ClaimBound(
                at_ms=stamp.at_ms, run_key=request.run_key, attempt=attempt, shim=request.shim
            ),
            decision,
        )
        return self._grant(attempt)

    def _release(
        self, request: Release, seen: bool, stamp: Stamp, decision: Decision
    ) -> Granted | Denied:
        key = (request.run_key, request.attempt)
        if key in self.state.rows and key not in self.disowned and not seen:
            # Late on disk it is held too long, never too short; and its run makes it good.
            decision.lazy = True
            self._end(key, "released", stamp, decision)
        return self._grant(request.attempt)

    def _deregister(
        self, request: DeregisterRun, seen: bool, stamp: Stamp, decision: Decision
    ) -> Granted | Denied:
        if not seen:
            self._unregister(request.run_key, "ended", stamp, decision)
        return self._grant()

    # -- facts -----------------------------------------------------------------------------

    def _open(self, boot_id: str, stamp: Stamp, decision: Decision) -> None:
        if boot_id != self.state.boot_id:
            # Before the new boot is on disk: if only a part of this reaches it, the next start sees
            # once more that another boot is over.
            for run_key in list(self.state.runs):
                self._unregister(run_key, "broker_gone", stamp, decision)
            for key in list(self.state.rows):
                self._end(key, "other_boot", stamp, decision)
        opened = RegistryOpened(at_ms=stamp.at_ms, epoch=self.state.epoch + 1, boot_id=boot_id)
        self._emit(opened, decision)

    def _tree_absent(self, watch: Watch, stamp: Stamp, decision: Decision) -> None:
        if watch.attempt is None:
            return
        key = (watch.run_key, watch.attempt)
        row = self.state.rows.get(key)
        if row is None or row.bound != watch.identity:
            return
        self._absent.add(key)
        may_return = self._orphans_may_exist or watch.run_key in self._orphan_due_ms
        orphan = watch.run_key not in self.state.runs and not may_return
        if orphan or key in self.disowned:
            self._end(key, "proved_absent", stamp, decision)

    def _broker_gone(self, watch: Watch, stamp: Stamp, decision: Decision) -> None:
        run = self.state.runs.get(watch.run_key)
        if run is not None and run.broker == watch.identity:
            self._unregister(watch.run_key, "broker_gone", stamp, decision)

    def _unregister(self, run_key: str, reason: Any, stamp: Stamp, decision: Decision) -> None:
        self._emit(RunDeregistered(at_ms=stamp.at_ms, run_key=run_key, reason=reason), decision)

    def _release_orphans(self, stamp: Stamp, decision: Decision) -> None:
        if self._orphans_may_exist:
            self._orphans_may_exist = False
            for run_key in self.state.by_run:
                if run_key not in self.state.runs and run_key not in self._orphan_due_ms:
                    self._orphan_due_ms[run_key] = stamp.mono_ms + ORPHAN_GRACE_MS
        for run_key, due_ms in list(self._orphan_due_ms.items()):
            if due_ms > stamp.mono_ms:
                continue
            del self._orphan_due_ms[run_key]
            for row in self.state.of_run(run_key):
                if row.bound is None:
                    self._end((run_key, row.attempt), "not_claimed_by_run", stamp, decision)
                elif (run_key, row.attempt) in self._absent:
                    self._end((run_key, row.attempt), "proved_absent", stamp, decision)

    # -- small parts -----------------------------------------------------------------------

    def _end(self, key: RowKey, reason: Any, stamp: Stamp, decision: Decision) -> None:
        ended = ClaimReleased(at_ms=stamp.at_ms, run_key=key[0], attempt=key[1], reason=reason)
        self._emit(ended, decision)

    def _emit(self, event: BaseModel, decision: Decision) -> None:
        self.apply(event, 0)
        decision.events.append(event)

    def _grant(self, attempt: str | None = None) -> Granted:
        return Granted(attempt=attempt, view_version=self.state.version)
