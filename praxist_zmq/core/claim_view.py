"""The host view: what the registry shows of all runs, to whom, and when it is pushed.

Built once a change and user, whoever asks how often. Another user's run is shown with its name,
user, process and counts, but not where its files are. It decides nothing about claims.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol.claims import HostView, RunRow
from .claim_fair import Wants
from .claim_leases import LeaseHolds
from .claim_state import ClaimState
from .decision import Send

PUSH_AGAIN_MS = 1_000


class HostViews:
    """Views of one state, kept until it changes."""

    def __init__(self, state: ClaimState, wants: Wants, leases: LeaseHolds) -> None:
        self._state = state
        self._wants = wants
        self._leases = leases
        self._whole: HostView | None = None
        self._by_user: dict[int | None, HostView] = {}

    def changed(self) -> None:
        """What is shown is over."""
        self._whole = None
        self._by_user.clear()

    def of(self, uid: int | None) -> HostView:
        """Everything, as user `uid` may see it."""
        if self._whole is None:
            self._whole = self._build()
        shown = self._by_user.get(uid)
        if shown is None:
            shown = self._by_user[uid] = _for_user(self._whole, uid)
        return shown

    def _build(self) -> HostView:
        state = self._state
        return HostView(
            version=state.version,
            runs=tuple(state.runs.values()),
            allocations=tuple(state.rows.values()),
            limit=state.limit(),
            wants=self._wants.shown(state),
            leases=self._leases.shown(),
            down=tuple(state.down.values()),
            elsewhere=tuple(state.elsewhere.values()),
        )


class Audience:
    """The brokers that are told of changes: each of what others did, for it knows its own."""

    def __init__(self, views: HostViews) -> None:
        self._views = views
        self._addresses: dict[str, Any] = {}
        self._changed: set[str] = set()
        self._missed_ms: dict[str, int] = {}
        """Whom the newest view did not reach -> when it is tried again."""

    def at(self, run_key: str, address: Any) -> None:
        """The run's broker listens there."""
        self._addresses[run_key] = address

    def leave(self, run_key: str) -> None:
        """The run is told nothing more."""
        self._addresses.pop(run_key, None)
        self._missed_ms.pop(run_key, None)

    def missed(self, run_key: str, now_ms: int) -> None:
        """Something did not reach its broker: perhaps the last change for a long time."""
        self._missed_ms[run_key] = now_ms + PUSH_AGAIN_MS

    def due_ms(self) -> int | None:
        """When a view is to be pushed again."""
        return min(self._missed_ms.values(), default=None)

    def runs_at(self, address: Any) -> list[str]:
        """Whose brokers listen there."""
        return [key for key, there in self._addresses.items() if there == address]

    def changed(self, run_key: str) -> None:
        """What one run has, says or wants is another thing now."""
        self._views.changed()
        self._changed.add(run_key)

    def pushes(self, user_of: Callable[[str], int | None], now_ms: int) -> list[Send]:
        """The view, once to each whom a change since the last call is news to, or missed."""
        changed, self._changed = self._changed, set()
        due = {run_key for run_key, due_ms in self._missed_ms.items() if due_ms <= now_ms}
        for run_key in due:
            del self._missed_ms[run_key]
        return [
            Send("broker", self._views.of(user_of(run_key)), address=address)
            for run_key, address in self._addresses.items()
            if changed - {run_key} or run_key in due
        ]


def _for_user(view: HostView, uid: int | None) -> HostView:
    if all(run.uid in (None, uid) for run in (*view.runs, *view.down)):
        return view
    return view.model_copy(update={"runs": _told(view.runs, uid), "down": _told(view.down, uid)})


def _told(runs: tuple[RunRow, ...], uid: int | None) -> tuple[RunRow, ...]:
    return tuple(
        run if run.uid in (None, uid) else run.model_copy(update={"run_dir": ""}) for run in runs
    )
