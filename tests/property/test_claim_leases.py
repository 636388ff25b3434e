"""Leases beside real work, against a registry without any, and against sums made anew.

Several runs claim, reserve, give back, report, die and come back; windows end. The same real work
is asked of a twin that is never asked for a lease, and it must answer the same: no lease refuses
real work. What is granted fits exact sums over allocations and leases. A lease ends once, for one
of the reasons, and a lease that nothing is in conflict with stays.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.protocol.claims import (
    DeregisterRun,
    Envelope,
    Granted,
    HostView,
    LeaseRow,
    Release,
    ReportLoad,
    ViewHost,
    Want,
)
from tests.property.test_claim_packing import has_room
from tests.support.claim_desk import Desk
from tests.support.claims import (
    claim_lease,
    exclusive,
    facts,
    lease_name,
    release_lease,
    reserve,
    run_key,
)

RUNS = ("a", "b", "c")
DEVICES = ("gpu0", "gpu1", "gpu2")
SHAPES = [*((device,) for device in DEVICES), *combinations(DEVICES, 2)]
WINDOW_MS = 5_000
LeaseKey = tuple[str, str]

runs = st.sampled_from(RUNS)
envelopes = st.builds(
    Envelope,
    device_uuids=st.sampled_from([(), (), (), *SHAPES]),
    exclusive=st.sampled_from([False, False, True]),
    memory_mib=st.sampled_from([None, 0, 0, 20_000, 40_000]),
    utilization_pct=st.sampled_from([None, 0.0, 0.0, 30.0, 100 / 3, 70.0]),
)


class Offers(RuleBasedStateMachine):
    """The registry, its twin without leases, and what every run was granted."""

    @initialize(limits=st.tuples(*[st.integers(1, 3)] * len(RUNS)))
    def start(self, limits: tuple[int, ...]) -> None:
        self.desk, self.twin = Desk(), Desk()
        self.limits = dict(zip(RUNS, limits, strict=True))
        self.epochs = dict.fromkeys(RUNS, 0)
        self.foreign = dict.fromkeys(DEVICES, 0)
        self.now = self.number = 0
        self.held: dict[tuple[str, str], Envelope] = {}
        self.live: dict[LeaseKey, tuple[LeaseRow, int]] = {}
        self.granted = self.ended = 0
        for name in RUNS:
            self.broker_takes_over(name)

    def work(self, name: str, request: Any) -> Any:
        """Ask both, and hear the same, but for the view."""
        more: Any = {"address": name.encode(), "mono_ms": self.now}
        reply, other = self.desk.ask(request, **more), self.twin.ask(request, **more)
        assert reply.model_dump(exclude={"view"}) == other.model_dump(exclude={"view"})
        return reply

    def view(self) -> HostView:
        view: HostView = self.desk.ask(ViewHost(), mono_ms=self.now)
        return view

    def seen(self, envelope: Envelope) -> Any:
        return tuple(
            facts(device, foreign_mib=self.foreign[device])[0] for device in envelope.device_uuids
        )

    def gone(self) -> dict[LeaseKey, LeaseRow]:
        """What ended since the last look. What is left was granted, in that order."""
        left = [(row.run_key, row.lease_id) for row in self.view().leases]
        assert left == [key for key in self.live if key in left], "not granted, or out of order"
        ended = {key: self.live.pop(key)[0] for key in list(self.live) if key not in left}
        self.ended += len(ended)
        return ended

    # -- brokers ---------------------------------------------------------------------------

    @precondition(lambda self: self.number % 4 == 0)
    @rule(name=runs)
    def broker_takes_over(self, name: str) -> None:
        attempts = tuple(attempt for owner, attempt in self.held if owner == name)
        self.epochs[name] += 1
        for desk in (self.desk, self.twin):
            desk.register(name, self.epochs[name], attempts, self.limits[name])
        own = {key for key in self.live if key[0] == run_key(name)}
        assert set(self.gone()) == own

    @precondition(lambda self: self.number % 4 == 1)
    @rule(name=runs)
    def broker_ends_and_another_comes(self, name: str) -> None:
        self.work(
            name, DeregisterRun(registration=1, run_key=run_key(name), epoch=self.epochs[name])
        )
        own = {key for key in self.live if key[0] == run_key(name)}
        assert set(self.gone()) == own
        self.broker_takes_over(name)

    @rule(
        name=runs,
        limit=st.integers(1, 3),
        slot=st.booleans(),
        device=st.sampled_from([None, None, None, None, *DEVICES]),
    )
    def a_run_reports(self, name: str, limit: int, slot: bool, device: str | None) -> None:
        """A limit that falls and a job that waits end nothing."""
        self.limits[name] = limit
        want = Want(slot=slot, envelope=exclusive(device)) if device else None
        request = ReportLoad(registration=1,
            run_key=run_key(name), epoch=self.epochs[name], running=0, queued=0, limit=limit,
            want=want,
        )  # fmt: skip
        self.work(name, request)
        assert not self.gone()

    @rule(device=st.sampled_from(DEVICES), mib=st.sampled_from([0, 30_000]))
    def pressure_changes(self, device: str, mib: int) -> None:
        self.foreign[device] = mib

    # -- real work -------------------------------------------------------------------------

    @rule(name=runs, envelope=envelopes, own=st.booleans())
    def reserves(self, name: str, envelope: Envelope, own: bool) -> None:
        self.number += 1
        attempt = f"j-{self.number}.1"
        asked = reserve(name, attempt, envelope, self.epochs[name], self.seen(envelope))
        mine = [key for key in self.live if key[0] == run_key(name)]
        named = mine[-1] if own and mine else None
        if named is not None:
            asked = asked.model_copy(update={"lease_id": named[1]})
        reply = self.work(name, asked)
        ended = self.gone()
        if not isinstance(reply, Granted):
            assert not ended
            return
        self.held[name, attempt] = envelope
        assert named is None or named in ended
        self.nothing_is_promised_twice(set(envelope.device_uuids))
        rows = sum(owner == name for owner, _ in self.held)
        leases = sum(key[0] == run_key(name) for key in self.live)
        over_own = rows + leases + len(ended) > self.limits[name]
        over_host = len(self.held) + len(self.live) + len(ended) > max(self.limits.values())
        assert not leases or rows + leases <= self.limits[name]
        assert not self.live or len(self.held) + len(self.live) <= max(self.limits.values())
        for key, row in ended.items():
            shares = set(row.envelope.device_uuids) & set(envelope.device_uuids)
            crowded = over_host or (over_own and key[0] == run_key(name))
            assert key == named or shares or crowded, f"{key} was in nobody's way"

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def releases(self, data: st.DataObject) -> None:
        name, attempt = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[name, attempt]
        request = Release(
            registration=1, run_key=run_key(name), epoch=self.epochs[name], attempt=attempt
        )
        self.work(name, request)
        assert not self.gone()

    # -- leases ----------------------------------------------------------------------------

    @rule(name=runs, asked=st.lists(envelopes, min_size=1, max_size=4))
    def claims(self, name: str, asked: list[Envelope]) -> None:
        for envelope in asked:
            self.claim(name, envelope)

    @rule(
        name=runs,
        asked=st.lists(envelopes, min_size=1, max_size=4),
        other=runs,
        envelope=envelopes,
        own=st.booleans(),
    )
    def claims_and_then_there_is_work(
        self, name: str, asked: list[Envelope], other: str, envelope: Envelope, own: bool
    ) -> None:
        self.claims(name, asked)
        self.reserves(other, envelope, own)

    def claim(self, name: str, envelope: Envelope) -> None:
        """One, held against exact sums."""
        self.number += 1
        seen = self.seen(envelope)
        asked = claim_lease(
            name, self.number, envelope, self.epochs[name], seen, window_ms=WINDOW_MS
        )
        request_id = f"claim-{self.number}"
        reply = self.desk.ask(asked, request_id, name.encode(), mono_ms=self.now)
        key = (run_key(name), lease_name(self.number))
        on = {
            device: [e for e in self.envelopes() if device in e.device_uuids]
            for device in envelope.device_uuids
        }
        rooms = [has_room(on[fact.uuid], envelope, fact) for fact in seen]
        own = sum(k[0] == run_key(name) for k in self.live)
        own += sum(owner == name for owner, _ in self.held)
        slots = (
            own < self.limits[name]
            and len(self.held) + len(self.live) < max(self.limits.values())
        )  # fmt: skip
        if isinstance(reply, Granted):
            assert slots
            assert False not in rooms
            self.live[key] = (self.view().leases[-1], self.now + WINDOW_MS)
            self.granted += 1
        else:
            assert not slots or False in rooms or None in rooms or reply.code == "fair_share"
        assert not self.gone()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def gives_back(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.live)))
        name = next(name for name in RUNS if run_key(name) == key[0])
        number = int(key[1].split("-")[1])
        for _ in "12":
            self.desk.ask(release_lease(name, number, self.epochs[name]), mono_ms=self.now)
        assert set(self.gone()) == {key}

    @rule(milliseconds=st.sampled_from([1, WINDOW_MS // 2, WINDOW_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.desk.settle(self.now)
        self.twin.settle(self.now)
        over = {key for key, (_, until_ms) in self.live.items() if until_ms <= self.now}
        assert set(self.gone()) == over

    @precondition(lambda self: self.number % 8 == 2)
    @rule()
    def registry_starts_again(self) -> None:
        """It has none, and the same allocations."""
        for desk in (self.desk, self.twin):
            desk.machine = ClaimMachine(desk.machine.snapshot())
        gone = set(self.live)
        assert set(self.gone()) == gone

    # -- what must hold --------------------------------------------------------------------

    def envelopes(self) -> list[Envelope]:
        """Of all allocations and leases."""
        return [*self.held.values(), *(row.envelope for row, _ in self.live.values())]

    @invariant()
    def what_is_promised_has_room(self) -> None:
        if hasattr(self, "desk"):
            self.nothing_is_promised_twice(set(DEVICES))
            assert self.granted == self.ended + len(self.live)
            assert self.desk.machine.snapshot() == self.twin.machine.snapshot()

    def nothing_is_promised_twice(self, devices: set[str]) -> None:
        """Declared sums of all allocations and leases, whoever else is there."""
        for device in devices:
            on_it = [e for e in self.envelopes() if device in e.device_uuids]
            if len(on_it) > 1:
                assert has_room(on_it[:-1], on_it[-1], facts(device)[0]) is not False

    def teardown(self) -> None:
        """Nothing outlives its window."""
        if hasattr(self, "desk"):
            self.time_passes(WINDOW_MS)
            assert self.granted == self.ended
            self.desk.check()


Offers.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLeases = Offers.TestCase


@settings(max_examples=250, deadline=None)
@given(
    limits=st.tuples(*[st.integers(1, 4)] * len(RUNS)),
    steps=st.lists(
        st.tuples(runs, st.lists(envelopes, max_size=3), runs, envelopes, st.booleans()),
        min_size=2,
        max_size=8,
    ),
)
def test_work_among_offers(limits: tuple[int, ...], steps: list[Any]) -> None:
    offers = Offers()
    offers.start(limits)
    for name, asked, other, envelope, own in steps:
        offers.claims(name, asked)
        offers.reserves(other, envelope, own)
        offers.what_is_promised_has_room()
    offers.teardown()
