"""Leases at the registry: short speculative holds for offers, which real work takes back.

A lease is granted where no allocation and no other lease has the room, by the same sums as an
allocation, within the limits of its run and of the host, and only where nobody waits for that room.
It never refuses real work: an allocation is admitted as if there were none, and in the same step
the leases that are in its way end, and no others. It looks at no sample: once granted, only real
work, its end or its run's end takes it back.

Nothing here is durable. A registry that starts again has none, and a broker that finds its lease
missing in the host view takes the offer back; so a lease is never promised by anybody who forgot
it. It never ends an allocation. Source of the rules: seed 000 "Mature Evidence And Idle Supply
Feedback", design 3 "plan and apply across runs".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..protocol.claims import ClaimLease, Denied, DeviceFacts, LeaseRow, ReleaseLease, Reserve
from .claim_admit import USER_SHARE, deny, refuse_elsewhere, refuse_malformed
from .claim_fair import Wants, name_of
from .claim_fit import DeviceSums, devices_of, misfit
from .claim_state import ClaimState

LEASES_MAX = 1_024
LEASED_DEVICES_MAX = 2_048
"""Bounds that keep a host view within one frame, whatever limits runs publish."""
EVERYBODY = ""
"""Stands for a change that is news to every run, also to the one that it is about."""

LeaseKey = tuple[str, str]
"""(run key, lease id)."""


@dataclass(frozen=True, slots=True)
class _Hold:
    """One lease. `number` grows with every grant: the lowest is the oldest."""

    row: LeaseRow
    number: int
    until_ms: int


class LeaseHolds:
    """All leases of the host, oldest first. `news` is told whose leases changed."""

    def __init__(self, state: ClaimState, wants: Wants, news: Callable[[str], None]) -> None:
        self._state = state
        self._wants = wants
        self._news = news
        self._holds: dict[LeaseKey, _Hold] = {}
        self._by_run: dict[str, dict[LeaseKey, None]] = {}
        self._on_device = state.leased
        self._devices_held = 0
        self._grants = 0

    # -- reading ---------------------------------------------------------------------------

    def shown(self) -> tuple[LeaseRow, ...]:
        """As all runs see them."""
        return tuple(hold.row for hold in self._holds.values())

    def due_ms(self) -> int | None:
        """When the next one ends by itself."""
        return min((hold.until_ms for hold in self._holds.values()), default=None)

    # -- what brokers ask ------------------------------------------------------------------

    def answer(self, request: ClaimLease | ReleaseLease, seen: bool, now_ms: int) -> Denied | None:
        """Hold or give back as asked. Returns why not; None when it is so now.

        `seen`: the same request was granted before. A late copy of it changes nothing.
        """
        self.expire(now_ms)
        key = (request.run_key, request.lease_id)
        held = self._holds.get(key)
        if isinstance(request, ReleaseLease):
            if held is not None and not seen:
                self._end(key, request.run_key)
            return None
        if held is not None:
            same = held.row.envelope == request.envelope
            return None if same else deny("conflict", f"{request.lease_id} holds another envelope")
        if seen:
            return deny("conflict", "this request was granted and has ended since")
        refusal = (
            refuse_malformed(request.envelope, request.facts)
            or refuse_elsewhere(self._state, request.envelope.device_uuids)
            or self._full(request)
            or self._over_limit(request.run_key)
            or self._no_room(request)
            or self._unfair(request, now_ms)
        )
        if refusal is None:
            self._hold(key, request, now_ms)
        return refusal

    # -- what ends them --------------------------------------------------------------------

    def make_way(self, reserved: Reserve) -> None:
        """An allocation was just committed: what is in its way ends.

        The lease whose job it is; those that have no room beside it on its devices, the oldest
        first; the oldest of its run above the run's limit; the oldest of all above the host's.
        """
        run_key = reserved.run_key
        if reserved.lease_id is not None and (run_key, reserved.lease_id) in self._holds:
            self._end((run_key, reserved.lease_id), run_key)
        for key in self._without_room(reserved):
            self._end(key, EVERYBODY)
        limit = self._state.runs[run_key].limit
        while (own := self._by_run.get(run_key)) and self._taken(run_key) > limit:
            self._end(next(iter(own)), EVERYBODY)
        while self._holds and len(self._state.rows) + len(self._holds) > self._state.limit():
            self._end(next(iter(self._holds)), EVERYBODY)

    def expire(self, now_ms: int) -> None:
        """End those whose window is over."""
        over = [key for key, hold in self._holds.items() if hold.until_ms <= now_ms]
        for key in over:
            self._end(key, EVERYBODY)

    def end_run(self, run_key: str) -> None:
        """The broker that held them serves the run no more."""
        for key in list(self._by_run.get(run_key, ())):
            self._end(key, run_key)

    # -- whether there is room -------------------------------------------------------------

    def _full(self, request: ClaimLease) -> Denied | None:
        devices = len(request.envelope.device_uuids)
        held, share = list(self._holds), 1
        of_devices = self._devices_held
        owner = self._state.owner_of(request.run_key)
        if self._state.is_guest(owner):
            share = USER_SHARE
            held = [key for key in held if self._state.owner_of(key[0]) == owner]
            of_devices = sum(len(self._holds[key].row.envelope.device_uuids) for key in held)
        if len(held) >= LEASES_MAX // share or of_devices + devices > LEASED_DEVICES_MAX // share:
            return deny("busy", f"{len(held)} leases are held; that is the limit")
        return None

    def _over_limit(self, run_key: str) -> Denied | None:
        run = self._state.runs[run_key]
        if self._taken(run_key) >= run.limit:
            return deny(
                "concurrency_limit",
                f"this run holds {self._state.held(run_key, False)} allocations and "
                f"{len(self._by_run.get(run_key, ()))} leases; its limit is {run.limit}",
            )
        rows, limit = len(self._state.rows), self._state.limit()
        if rows + len(self._holds) >= limit:
            return deny(
                "host_limit",
                f"{rows} allocations and {len(self._holds)} leases on this host; its limit, the "
                f"largest of a run, is {limit}",
            )
        return None

    def _no_room(self, request: ClaimLease) -> Denied | None:
        told = _told(request)
        for device in request.envelope.device_uuids:
            fact = told.get(device)
            rows = self._state.loads.get(device, DeviceSums())
            short = misfit(device, rows, request.envelope, fact, again=False)
            if short is None and device in self._on_device:
                short = misfit(device, self._load(device), request.envelope, fact, again=False)
                short = None if short is None else f"with what leases hold there, {short}"
            if short is not None:
                return deny("conflict", short)
        return None

    def _unfair(self, request: ClaimLease, now_ms: int) -> Denied | None:
        """Whoever holds how much: room that a job waits for is not offered to anybody."""
        waiting = self._wants.live(now_ms)
        slots = [key for key, want in waiting if want.slot]
        left = self._state.limit() - len(self._state.rows) - len(self._holds) - 1
        if left < len(slots):
            names = ", ".join(name_of(self._state, key) for key in slots[:4])
            return deny(
                "fair_share", f"{len(slots)} wait for a slot ({names}); {left} would be left"
            )
        told = _told(request)
        for key, want in waiting:
            if want.envelope is None:
                continue
            for device in request.envelope.device_uuids:
                if device not in want.envelope.device_uuids:
                    continue
                fact = told.get(device)
                size = None if fact is None else fact.memory_total_mib
                load = self._load(device).beside(request.envelope, size)
                if misfit(device, load, want.envelope, fact, again=False) is not None:
                    name = name_of(self._state, key)
                    return deny("fair_share", f"{name} waits for device {device}")
        return None

    def _without_room(self, reserved: Reserve) -> list[LeaseKey]:
        """The youngest stay: their peers had the least time to answer."""
        told = _told(reserved)
        loads = {
            device: self._state.loads[device]
            for device in reserved.envelope.device_uuids
            if device in self._on_device
        }
        sharing = {key: self._holds[key] for device in loads for key in self._on_device[device]}
        out = []
        for key, hold in sorted(sharing.items(), key=lambda item: -item[1].number):
            envelope = hold.row.envelope
            on = [device for device in envelope.device_uuids if device in loads]
            short = (
                misfit(device, loads[device], envelope, told.get(device), again=device not in told)
                for device in on
            )
            if any(words is not None for words in short):
                out.append(key)
                continue
            for device in on:
                loads[device] = loads[device].beside(envelope, self._on_device[device][key])
        return out

    def _load(self, device: str) -> DeviceSums:
        """All allocations and all leases on a device."""
        load = self._state.loads.get(device, DeviceSums())
        for key, size_mib in self._on_device.get(device, {}).items():
            load = load.beside(self._holds[key].row.envelope, size_mib)
        return load

    def _taken(self, run_key: str) -> int:
        """Allocations and leases of a run."""
        return self._state.held(run_key, False) + len(self._by_run.get(run_key, ()))

    # -- changing --------------------------------------------------------------------------

    def _hold(self, key: LeaseKey, request: ClaimLease, now_ms: int) -> None:
        row = LeaseRow(
            run_key=request.run_key,
            lease_id=request.lease_id,
            envelope=request.envelope,
            device_memory_mib=tuple(fact.memory_total_mib for fact in request.facts),
            claimed_mono_ms=now_ms,
        )
        self._grants += 1
        self._holds[key] = _Hold(row, self._grants, now_ms + request.window_ms)
        self._by_run.setdefault(row.run_key, {})[key] = None
        for device, size_mib in devices_of(row):
            self._on_device.setdefault(device, {})[key] = size_mib
        self._devices_held += len(row.envelope.device_uuids)
        self._news(row.run_key)

    def _end(self, key: LeaseKey, news_of: str) -> None:
        row = self._holds.pop(key).row
        own = self._by_run[row.run_key]
        del own[key]
        if not own:
            del self._by_run[row.run_key]
        for device in row.envelope.device_uuids:
            on_it = self._on_device[device]
            del on_it[key]
            if not on_it:
                del self._on_device[device]
        self._devices_held -= len(row.envelope.device_uuids)
        self._news(news_of)


def _told(request: ClaimLease | Reserve) -> dict[str, DeviceFacts]:
    return {fact.uuid: fact for fact in request.facts}
