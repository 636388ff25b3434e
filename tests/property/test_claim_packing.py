"""Packing against an oracle that adds everything up anew, and fairness over endless jobs.

Packing: whatever several runs ask of devices with foreign load, a grant never passes a limit, and
what an exact sum has room for is granted. Fairness: runs with endless exclusive jobs share the
devices; the richest one always asks first, with its release still on the way to the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from praxist_zmq.protocol.claims import DeviceFacts, Envelope, Granted, Release, Want
from tests.support.claim_desk import Desk
from tests.support.claims import exclusive, facts, reserve, run_key

RUNS = ("a", "b", "c")

sizes = st.sampled_from([10_000, 24_000, 81_920])
hosts = st.lists(
    st.tuples(sizes, st.integers(0, 9_000), st.sampled_from([0.0, 3.5, 40.0, 99.0])),
    min_size=1,
    max_size=3,
)
demands = st.tuples(
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 20_000)),
    st.one_of(st.none(), st.floats(0, 100), st.sampled_from([45.0, 100 / 3, 12.5, 100.0])),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(RUNS), demands, st.sets(st.integers(0, 2), max_size=2), st.booleans()
    ),
    max_size=40,
)


def has_room(on_it: list[Envelope], asked: Envelope, seen: DeviceFacts) -> bool | None:
    """By exact sums; None at the very edge, where the tolerance decides. What is declared of a
    demand that needs the device alone holds too."""
    alone = asked.exclusive or asked.memory_mib is None or asked.utilization_pct is None
    if alone and on_it:
        return False
    if any(e.exclusive or None in (e.memory_mib, e.utilization_pct) for e in on_it):
        return False
    everyone = [*on_it, asked]
    busy = sum(Fraction(e.utilization_pct or 0) for e in everyone)
    busy += Fraction(seen.foreign_utilization_pct or 0)
    memory = sum(e.memory_mib or 0 for e in everyone) + (seen.foreign_memory_mib or 0)
    if memory * 100 > (seen.memory_total_mib or 0) * 95:
        return False
    if 100 < busy <= 100 + Fraction(1, 10**5):
        return None
    return busy <= 100


@settings(max_examples=300, deadline=None)
@given(host=hosts, steps=steps)
def test_no_limit_is_passed_and_what_fits_is_granted(
    host: list[tuple[int, int, float]],
    steps: list[tuple[str, tuple[bool, int | None, float | None], set[int], bool]],
) -> None:
    desk = Desk()
    for name in RUNS:
        desk.register(name, limit=1_000)
    seen = {
        f"gpu{n}": facts(f"gpu{n}", memory_mib=size, foreign_mib=mib, foreign_pct=pct)[0]
        for n, (size, mib, pct) in enumerate(host)
    }
    held: list[tuple[str, str, Envelope]] = []
    for number, (name, (alone, memory, busy), picks, end_one) in enumerate(steps, start=1):
        if end_one and held:
            owner, attempt, _ = held.pop(0)
            desk.ask(Release(registration=1, run_key=run_key(owner), epoch=1, attempt=attempt))
        devices = tuple(f"gpu{n}" for n in sorted(picks) if n < len(host))
        asked = Envelope(
            device_uuids=devices, exclusive=alone, memory_mib=memory, utilization_pct=busy
        )
        attempt = f"j-{number}.1"
        told = tuple(seen[device] for device in devices)
        reply = desk.ask(reserve(name, attempt, asked, seen=told))
        rooms = [
            has_room([e for _, _, e in held if d in e.device_uuids], asked, seen[d])
            for d in devices
        ]
        granted = isinstance(reply, Granted)
        assert not (granted and False in rooms), reply
        assert granted or None in rooms or False in rooms, reply
        if granted:
            held.append((name, attempt, asked))
    desk.check()


@dataclass
class Campaign:
    """Runs with endless exclusive one-device jobs on a few devices."""

    names: tuple[str, ...]
    devices: int
    durations: list[int]
    limited_by: str
    desk: Desk = field(default_factory=Desk)
    now: int = 0
    number: int = 0
    ends: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """When the job of each device ends, whose it is and its attempt."""

    def __post_init__(self) -> None:
        for name in self.names:
            self.desk.register(name, limit=self.devices)

    def held(self, name: str) -> int:
        """How many devices the run has."""
        return sum(owner == name for _, owner, _ in self.ends.values())

    def plan(self, name: str) -> int:
        """Take every device that is free; then say what is waited for. Returns how many."""
        taken = 0
        for number in range(self.devices):
            device = f"gpu{number}"
            if device in self.ends:
                continue
            self.number += 1
            attempt = f"j-{self.number}.1"
            reply = self.desk.ask(reserve(name, attempt, exclusive(device)), mono_ms=self.now)
            if isinstance(reply, Granted):
                took = self.durations[self.number % len(self.durations)]
                self.ends[device] = (self.now + took, name, attempt)
                taken += 1
            else:
                assert reply.code == "fair_share"
                mine = self.held(name)
                assert any(w.held <= mine for w in reply.view.wants), "refused for nobody"
        self.report(name)
        return taken

    def report(self, name: str) -> None:
        """It wants a slot, or the device that the richest run gives up next."""
        richest = max(self.names, key=self.held)
        next_ends = sorted((at, d) for d, (at, owner, _) in self.ends.items() if owner == richest)
        want = None
        if self.limited_by == "slots":
            want = Want(slot=True)
        elif next_ends and richest != name:
            want = Want(slot=False, envelope=exclusive(next_ends[0][1]))
        self.desk.report(name, want, mono_ms=self.now)

    def next_end(self) -> str:
        """The next job ends. Returns whose it was."""
        device = min(self.ends, key=lambda name: (self.ends[name][0], name))
        self.now, name, attempt = self.ends[device]
        for other in self.names:
            self.report(other)
        del self.ends[device]
        self.desk.ask(Release(registration=1, run_key=run_key(name), epoch=1, attempt=attempt))
        return name


@settings(max_examples=150, deadline=None)
@given(
    names=st.sampled_from([RUNS[:2], RUNS]),
    devices=st.integers(2, 6),
    durations=st.lists(st.integers(1, 5_000), min_size=1, max_size=12),
    limited_by=st.sampled_from(["devices", "slots"]),
    data=st.data(),
)
def test_no_run_waits_beyond_the_next_end_of_one_that_holds_two_more(
    names: tuple[str, ...],
    devices: int,
    durations: list[int],
    limited_by: str,
    data: st.DataObject,
) -> None:
    campaign = Campaign(names, devices, durations, limited_by)
    assert campaign.plan(data.draw(st.sampled_from(names))) == devices
    for _ in range(6 * devices):
        for name in names:
            campaign.plan(name)
        before = {name: campaign.held(name) for name in names}
        owner = campaign.next_end()
        poorer = [name for name in names if before[name] <= before[owner] - 2]
        again = campaign.plan(owner)
        assert not (poorer and again), "the richer run took it back while a poorer one waited"
        others = data.draw(st.permutations([name for name in names if name != owner]))
        taken = {name: campaign.plan(name) for name in others}
        if poorer:
            assert sum(taken[name] for name in poorer) == 1
        assert len(campaign.ends) == devices, "a device idles though all runs have work"
    shares = [campaign.held(name) for name in names]
    assert max(shares) - min(shares) <= 1
    campaign.desk.check()
