"""What must hold of supply leases, said twice: of a state, and of a ledger's history.

Offers are hints, but their records are promises: one lease a peer, no more than there are slots, an
end once, and a consumed one together with its job or not at all. `check_leases` holds at every
record, also where a crash cut a batch; `check_leases_at_rest` between two turns of the broker. They
share no code with the machine that decides and change nothing. Source: seed 000 "Mature Evidence
And Idle Supply Feedback"; the reference of the original system, "Supply leases".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..protocol import events as ev
from .generation_invariants import GenerationHistory
from .lease_state import PRIORITIES, Lease, Tally
from .maturity import grown_peers, maturity
from .state import BrokerState, Generation, Job

# -- a state --------------------------------------------------------------------------------


def check_leases(state: BrokerState) -> Iterable[str]:
    """Every fault of the leases of a state, after any record."""
    leases = state.leases
    peers = Counter(lease.peer for lease in leases.live.values())
    yield from (f"{peer} has {times} live leases" for peer, times in peers.items() if times > 1)
    for name, lease in (*leases.live.items(), *leases.ended.items()):
        if name != lease.lease_id:
            yield f"{lease.lease_id} is filed as {name}"
        if lease.generation not in state.generations:
            yield f"{name} is of generation {lease.generation}, which is not there"
        if (lease.job is not None) != (lease.state == "consumed"):
            yield f"{name} is {lease.state} and its job is {lease.job}"
        if (lease.state == "consumed") != (name in leases.consumed):
            yield f"{name} is {lease.state}, the list of consumed ones says otherwise"
        if lease.job is not None and lease.job not in state.jobs:
            yield f"{name} was consumed by {lease.job}, which is not there"
    yield from _check_lives(leases.live, leases.ended)
    for priority in PRIORITIES:
        yield from _check_tally(state, priority, leases.tallies[priority])
    for found in state.generations.values():
        yield from _check_commitments(state, found)


def _check_lives(live: dict[str, Lease], ended: dict[str, Lease]) -> Iterable[str]:
    yield from (f"{name} is live and has ended" for name in live.keys() & ended.keys())
    yield from (f"{n} is live and {one.state}" for n, one in live.items() if one.state != "out")
    yield from (f"{name} ended as out" for name, one in ended.items() if one.state == "out")


def _check_tally(state: BrokerState, priority: str, tally: Tally) -> Iterable[str]:
    leases = state.leases
    out = sum(lease.priority == priority for lease in leases.live.values())
    over = tally.consumed + tally.declined + tally.expired + tally.revoked
    if tally.granted != over + out:
        yield f"{tally.granted} {priority} leases were granted, {over} ended, {out} are out"
    used = sum(kept == priority for kept in leases.consumed.values())
    if used != tally.consumed:
        yield f"{tally.consumed} {priority} leases count as consumed, {used} are known"


def _check_commitments(state: BrokerState, found: Generation) -> Iterable[str]:
    """Work on its way counts once an identity, or once a peer where peers are counted."""
    figures = maturity(found, state, state.leases.mature_peers(found.number))
    on_their_way = {job.identity: job for job in state.jobs.values() if _mature(job, found.number)}
    if figures.counted_in == "peers":
        done = grown_peers(found)
        count = len({job.peer for job in on_their_way.values()} - done)
    else:
        grown = {one.tag for one in found.results.values() if one.mature}
        count = sum(job.tag not in grown for job in on_their_way.values())
    if figures.inflight_jobs != count:
        yield (
            f"generation {found.number} counts {figures.inflight_jobs} mature on their way, "
            f"{count} are"
        )


def _mature(job: Job, number: int) -> bool:
    live = job.state in ("queued", "running")
    return live and job.work_class == "mature" and job.generation == number


def check_leases_at_rest(state: BrokerState) -> Iterable[str]:
    """Faults that may stand inside a turn, but not after it."""
    live = list(state.leases.live.values())
    slots = state.policy.max_concurrent_experiments
    if len(live) > slots:
        yield f"{len(live)} leases are out for {slots} slots"
    if live and state.closed_reason is not None:
        yield f"{len(live)} leases are out, admission is closed: {state.closed_reason}"
    for lease in live:
        phase = state.generations[lease.generation].phase
        if phase in ("frozen", "closed"):
            yield f"{lease.lease_id} is out, its generation is {phase}"
        if phase == "assessment" and lease.priority != "mature":
            yield f"{lease.lease_id} asks for {lease.priority} in an assessment"
    for found in state.generations.values():
        peers = state.leases.mature_peers(found.number)
        figures = maturity(found, state, peers)
        on_their_way = figures.inflight_jobs + figures.priority_leases
        if peers and on_their_way > figures.target_inflight:
            yield (
                f"generation {found.number} wants {figures.target_inflight} mature on their way, "
                f"{figures.inflight_jobs} jobs and {figures.priority_leases} leases are"
            )


# -- a history ------------------------------------------------------------------------------


class LeaseHistory:
    """Leases in a history; the slots that they share with attempts. Knows only the promises."""

    def __init__(self, generations: GenerationHistory, base: BrokerState | None) -> None:
        self._generations = generations
        self._live: dict[str, ev.LeaseGranted] = {}
        self._over: dict[str, str] = {}
        """How each that is not out ended."""
        self._before_epoch: set[str] = set()
        """Out since before the newest broker."""
        self._due: dict[str, str] = {}
        """Leases that a job was just to end -> that job."""
        self._last: Any = None
        self._cut_short: Any = None
        """The submission with which the broker before this one ended: the rest of its batch did
        not reach the disk, and the next broker makes it good."""
        self._peer_of: dict[str, str] = {}
        self._bounds: tuple[int, int, int] | None = None
        self._limit = 0
        if base is not None:
            self._take(base)

    def _take(self, base: BrokerState) -> None:
        leases = base.leases
        self._live = {name: _as_granted(lease) for name, lease in leases.live.items()}
        self._over = dict.fromkeys(leases.consumed, "consumed")
        self._over |= {name: lease.state for name, lease in leases.ended.items()}
        self._peer_of = {job.job: job.peer for job in base.jobs.values()}
        policy = base.policy
        self._bounds = _bounds(policy)
        self._limit = base.limit

    def see(self, event: Any, attempts: int) -> Iterable[str]:
        """Faults of one event; `attempts` hold an allocation before it."""
        yield from self._left_out(event)
        match event:
            case ev.BrokerStarted():
                self._before_epoch = set(self._live)
                self._cut_short = self._last
            case ev.PolicyAdopted():
                bounds = _bounds(event.policy)
                if bounds != self._bounds:
                    self._bounds, self._limit = bounds, bounds[1]
            case ev.LimitChanged():
                self._limit = event.limit
            case ev.JobQueued():
                self._peer_of[event.job] = event.peer
                self._answered(event.job)
            case ev.JobRetried():
                self._answered(event.job)
            case ev.LeaseGranted():
                yield from self._granted(event, attempts)
            case ev.LeaseEnded():
                yield from self._ended(event)
            case ev.LeaseCounted():
                used = self._over.get(event.lease_id) == "consumed"
                if used != (event.what == "reuse_ignored"):
                    yield f"{event.lease_id} counts as {event.what}"
        self._last = event

    def _answered(self, job: str) -> None:
        """A submission of a peer's ends the lease that the peer has, whatever it says of it."""
        peer = self._peer_of.get(job)
        self._due = {name: job for name, lease in self._live.items() if lease.peer == peer}

    def _left_out(self, event: Any) -> Iterable[str]:
        """A batch that a crash cut short is followed by the next broker."""
        if isinstance(event, ev.LeaseEnded | ev.LeaseCounted):
            return
        if not isinstance(event, ev.BrokerStarted):
            yield from (f"{name} outlived {job}" for name, job in self._due.items())
        self._due = {}

    def _granted(self, event: ev.LeaseGranted, attempts: int) -> Iterable[str]:
        name = event.lease_id
        if name in self._live or name in self._over:
            yield f"{name} was granted before"
        other = [one.lease_id for one in self._live.values() if one.peer == event.peer]
        if other:
            yield f"{name} was granted to {event.peer}, who has {other[0]}"
        if self._generations.closed:
            yield f"{name} was granted after admission was closed"
        phase = self._generations.phase(event.generation)
        if phase in ("frozen", "closed"):
            yield f"{name} was granted after its generation was frozen"
        if phase == "assessment" and event.priority != "mature":
            yield f"{name} was granted in an assessment and is not for mature work"
        if self._before_epoch:
            yield f"{name} was granted while {sorted(self._before_epoch)} of an old broker are out"
        self._live[name] = event
        if len(self._live) + attempts > self._limit:
            yield f"{name} was granted: {len(self._live)} out, {attempts} run, slots {self._limit}"

    def _ended(self, event: ev.LeaseEnded) -> Iterable[str]:
        name = event.lease_id
        lease = self._live.pop(name, None)
        if lease is None:
            yield f"{name} ended as {event.outcome}; it had {self._over.get(name, 'not begun')}"
        elif event.outcome == "consumed":
            yield from self._consumed(event, lease)
        elif event.job is not None:
            yield f"{name} is {event.outcome} and has the job {event.job}"
        self._over[name] = event.outcome
        self._due.pop(name, None)
        self._before_epoch.discard(name)

    def _consumed(self, event: ev.LeaseEnded, lease: ev.LeaseGranted) -> Iterable[str]:
        name, brought = event.lease_id, self._last
        cut = self._cut_short
        made_good = isinstance(cut, ev.JobQueued | ev.JobRetried) and cut.lease_id == name
        if made_good:
            brought = cut
        if not isinstance(brought, ev.JobQueued | ev.JobRetried) or brought.job != event.job:
            yield f"{name} was consumed apart from the submission of {event.job}"
            return
        if name in self._before_epoch and not made_good:
            yield f"{name} was consumed after its broker was gone"
        if brought.lease_id != name:
            yield f"{name} was consumed by {event.job}, which named {brought.lease_id}"
        if self._peer_of.get(brought.job) != lease.peer:
            yield f"{name} of {lease.peer} was consumed by another peer's {event.job}"
        if self._generations.of(brought.job) != lease.generation:
            yield f"{name} was consumed by {event.job} of another generation"
        if brought.profile not in lease.profiles:
            yield f"{name} was consumed by {event.job} of profile {brought.profile}"
        if lease.priority == "mature" and brought.work_class != "mature":
            yield f"{name} asked for mature work and was consumed by {event.job}"


def _bounds(policy: Any) -> tuple[int, int, int]:
    return (
        policy.min_concurrent_experiments,
        policy.initial_concurrent_experiments,
        policy.max_concurrent_experiments,
    )


def _as_granted(lease: Lease) -> ev.LeaseGranted:
    return ev.LeaseGranted(
        at_ms=lease.granted_at_ms,
        lease_id=lease.lease_id,
        peer=lease.peer,
        generation=lease.generation,
        priority=lease.priority,
        profiles=lease.profiles,
        window_ms=lease.window_ms,
        expires_at_ms=lease.expires_at_ms,
    )
