"""Fairness between runs: who waits for whom, and whose limit may rise.

Both are soft: nothing here is durable, and a registry that starts again learns it with the next
reports. Nothing is taken from anybody who holds it; only what is asked anew can be refused.

**Wants.** A run that holds less than another and says what it waits for is let through: the
richer one gets neither the last slots nor a place on those devices, so they drain. Between runs
that hold the same, the one that was granted something longest ago goes first; else two that give
up and ask again in one breath could keep a third out for ever.

**Raises.** One raise an interval for the whole host, so that all runs do not step up on the same
sample; who was refused longest ago is next.

Source of the rules: design 5 ("fair between runs").
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.claims import DeviceFacts, Envelope, RunWant, Want
from .claim_fit import DeviceSums, misfit
from .claim_state import ClaimState

WANT_MS = 6_000
"""How long a want holds after the report that told it."""
WANTED_DEVICES_MAX = 1_024
GUEST_WANTED_DEVICES_MAX = 128
"""Devices in all wants of one user: each view shows them, and each plan is held against them."""
GUEST_REPORT_MS = 100
"""Between two reports of a run of another user. Brokers leave 250 ms; each may be news to all."""
RAISE_INTERVAL_MS_MIN = 1_000
RAISE_INTERVAL_MS_MAX = 600_000
"""Bounds of what a run may call its interval, so that none can keep the others from rising."""


class Wants:
    """What each run said last that it waits for."""

    def __init__(self) -> None:
        self._live: dict[str, tuple[Want, int]] = {}
        self._served: dict[str, int] = {}
        self._reported_ms: dict[str, int] = {}
        self._grants = 0

    def served(self, run_key: str) -> None:
        """The run was granted something: among its equals it is the last now."""
        self._grants += 1
        self._served[run_key] = self._grants

    def forget(self, run_key: str) -> None:
        """The run is gone."""
        self._live.pop(run_key, None)
        self._served.pop(run_key, None)
        self._reported_ms.pop(run_key, None)

    def too_soon(self, state: ClaimState, run_key: str, now_ms: int) -> bool:
        """Whether a run of another user reports more often than is listened to."""
        if not state.is_guest(state.owner_of(run_key)):
            return False
        if now_ms - self._reported_ms.get(run_key, now_ms - GUEST_REPORT_MS) < GUEST_REPORT_MS:
            return True
        self._reported_ms[run_key] = now_ms
        return False

    def report(self, state: ClaimState, run_key: str, want: Want | None, now_ms: int) -> bool:
        """Take a run's report. Whether what it wants is another thing now. Devices over what its
        user may want in all are not remembered."""
        old = self._live.pop(run_key, None)
        if want is not None and want.envelope is not None and self._over(state, run_key, want):
            want = Want(slot=want.slot)
        if want is None or not (want.slot or want.envelope is not None):
            return old is not None
        self._live[run_key] = (want, now_ms + WANT_MS)
        return old is None or old[0] != want

    def _over(self, state: ClaimState, run_key: str, want: Want) -> bool:
        user = state.owner_of(run_key)
        most = GUEST_WANTED_DEVICES_MAX if state.is_guest(user) else WANTED_DEVICES_MAX
        theirs = (told for key, (told, _) in self._live.items() if state.owner_of(key) == user)
        envelopes = [want.envelope, *(told.envelope for told in theirs)]
        return sum(len(e.device_uuids) for e in envelopes if e is not None) > most

    def expire(self, now_ms: int) -> list[str]:
        """Forget what was not told again in time. Returns whose wants those were."""
        over = [key for key, (_, until_ms) in self._live.items() if until_ms <= now_ms]
        for key in over:
            del self._live[key]
        return over

    def due_ms(self) -> int | None:
        """When the next want is over, if it is not told again."""
        return min((until_ms for _, until_ms in self._live.values()), default=None)

    def shown(self, state: ClaimState) -> tuple[RunWant, ...]:
        """As all runs see them: one entry for a slot, one for devices, each with what counts."""
        found = []
        for key, (want, _) in self._live.items():
            if want.slot:
                held = state.held(key, devices_only=False)
                found.append(RunWant(run_key=key, held=held, want=Want(slot=True)))
            if want.envelope is not None:
                held = state.held(key, devices_only=True)
                alone = Want(slot=False, envelope=want.envelope)
                found.append(RunWant(run_key=key, held=held, want=alone))
        return tuple(found)

    def live(self, now_ms: int) -> list[tuple[str, Want]]:
        """What every run waits for."""
        return [(key, want) for key, (want, until_ms) in self._live.items() if until_ms > now_ms]

    def against(self, state: ClaimState, run_key: str, now_ms: int) -> Waiting:
        """The wants that hold against one run: of others that go before it."""
        waiting = Waiting(run_key, [], [])
        for key, want in self.live(now_ms):
            if key == run_key:
                continue
            if want.slot and self._rank(state, key, False) < self._rank(state, run_key, False):
                waiting.slots.append(key)
            if want.envelope is not None and (
                self._rank(state, key, True) < self._rank(state, run_key, True)
            ):
                waiting.devices.append((key, want.envelope))
        return waiting

    def _rank(self, state: ClaimState, run_key: str, devices_only: bool) -> tuple[int, int]:
        """The lowest goes first."""
        return state.held(run_key, devices_only), self._served.get(run_key, 0)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits and goes before `run_key`."""

    run_key: str
    slots: list[str]
    devices: list[tuple[str, Envelope]]

    def unfair(
        self, state: ClaimState, envelope: Envelope, facts: tuple[DeviceFacts, ...]
    ) -> str | None:
        """In words, why the envelope would be unfair to those who wait; None when it is not."""
        free_after = state.limit() - len(state.rows) - 1
        if free_after < len(self.slots):
            names = ", ".join(name_of(state, key) for key in self.slots[:4])
            return (
                f"{len(self.slots)} that hold less, or as much and were served longer ago, wait "
                f"for a slot ({names}), and "
                f"{max(0, free_after)} of {state.limit()} would be left; this run holds "
                f"{state.held(self.run_key, False)}"
            )
        told = dict(zip(envelope.device_uuids, facts, strict=bool(facts)))
        for key, wanted in self.devices:
            for device in set(wanted.device_uuids) & set(envelope.device_uuids):
                fact = told.get(device)
                size = fact.memory_total_mib if fact is not None else None
                load = state.loads.get(device, DeviceSums()).beside(envelope, size)
                if misfit(device, load, wanted, fact, again=False) is not None:
                    return (
                        f"{name_of(state, key)} waits for device {device} and holds "
                        f"{state.held(key, True)} with devices; this run holds "
                        f"{state.held(self.run_key, True)}"
                    )
        return None


def name_of(state: ClaimState, run_key: str) -> str:
    """How words name a run."""
    run = state.runs.get(run_key)
    return run.run_id if run is not None else run_key[:8]


@dataclass(frozen=True, slots=True)
class _Refused:
    """A run that asked to rise and was refused, and asks again."""

    first_ms: int
    last_ms: int


class Raises:
    """Who raised its limit when, and who was refused since when."""

    def __init__(self) -> None:
        self._raised_ms: dict[str, int] = {}
        self._refused: dict[str, _Refused] = {}

    def ask(self, run_key: str, interval_ms: int, now_ms: int) -> str | None:
        """None when the run's limit may rise now, which is noted; else why not yet."""
        interval = min(max(interval_ms, RAISE_INTERVAL_MS_MIN), RAISE_INTERVAL_MS_MAX)
        mine = self._refused.get(run_key)
        if mine is not None and now_ms - mine.last_ms > 2 * interval:
            mine = None
        since = now_ms if mine is None else mine.first_ms
        others = [at for key, at in self._raised_ms.items() if key != run_key]
        latest = max(others, default=None)
        ahead = [
            key
            for key, other in self._refused.items()
            if key != run_key and now_ms - other.last_ms <= 2 * interval and other.first_ms < since
        ]
        reason = None
        if latest is not None and now_ms - latest < interval:
            reason = (
                f"another run's limit rose {(now_ms - latest) / 1000:.1f} s ago; "
                f"one rises in {interval / 1000:g} s"
            )
        elif ahead:
            reason = "another run was refused before this one and goes first"
        if reason is not None:
            self._refused[run_key] = _Refused(since, now_ms)
            return reason
        self._refused.pop(run_key, None)
        self._raised_ms[run_key] = now_ms
        return None

    def forget(self, run_key: str) -> None:
        """The run is gone: nobody waits for it. What it raised still counts for its interval."""
        self._refused.pop(run_key, None)

    def expire(self, now_ms: int) -> None:
        """Forget raises that are older than any interval."""
        for key, at_ms in list(self._raised_ms.items()):
            if now_ms - at_ms > RAISE_INTERVAL_MS_MAX:
                del self._raised_ms[key]
