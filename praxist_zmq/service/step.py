"""The one order of every process: decide everything that waits, make it durable, then send.

What follows from it by itself (the machine's `settle`) comes after the answers, in the same way: it
rarely records anything, and an answer need not wait for it.

The only caller of `Ledger.commit` for a machine, and the only place where what a machine wants to
send leaves. Nothing leaves before the events that justify it are on disk (design 2, promise 1).
Throughput comes from doing this once for all messages that wait, not from skipping the sync.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from pydantic import BaseModel

from ..core.decision import Decision, Machine, Send, Stamp
from ..ledger.log import Ledger
from ..protocol.codec import encode

Refuse = Callable[[Any], Send | None]
"""Makes the refusal for a command whose decision failed, or None when it has no sender."""


class Aside(Protocol):
    """What the machine knows and its ledger must not hold."""

    def keep(self) -> None:
        """Put what is new there. Called before anything of its turn is on disk or sent."""

    def forget(self) -> None:
        """Remove what nobody needs any more. Called when the reason is on disk."""


HOLD_MS = 4
"""How long events that nobody waits for may wait for company."""


class Step:
    """A machine, its ledger, and the way out.

    `send` receives the whole outbox of a turn. `refuse` answers for a command that a fault of ours
    made undecidable before it recorded anything; a fault after that ends the process, because
    memory and ledger then disagree. `rouse` may wake those whom the outbox will need while it is
    made durable; it must tell them nothing. `aside` is where what the ledger must not hold outlives
    this process.
    """

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        send: Callable[[list[Send]], None],
        refuse: Refuse | None = None,
        rouse: Callable[[list[Send]], None] | None = None,
        aside: Aside | None = None,
    ) -> None:
        self._machine = machine
        self._ledger = ledger
        self._send = send
        self._refuse = refuse
        self._rouse = rouse
        self._aside = aside
        self._held_events: list[BaseModel] = []
        self._held_outbox: list[Send] = []
        self._held_since_ms = 0
        self._log = logging.getLogger(__name__)

    def turn(self, commands: Iterable[Any], stamp: Stamp) -> None:
        """Decide `commands`, commit, send; then the same for what follows from all of it, for which
        nobody waits as they do for an answer. Raises PraxistError of the ledger's."""
        turn = Decision(lazy=True)
        for command in commands:
            self._decide(command, stamp, turn)
        self._pass(turn, stamp)
        settled = self._machine.settle(stamp)
        settled.lazy = not settled.events
        self._pass(settled, stamp)

    def _pass(self, decision: Decision, stamp: Stamp) -> None:
        """Commit and send, or hold it for what comes next."""
        if self._aside is not None:
            self._aside.keep()
        if decision.lazy and not (decision.events or self._held_events):
            self._send(decision.outbox)
            return
        if not self._held_events:
            self._held_since_ms = stamp.mono_ms
        self._held_events += decision.events
        self._held_outbox += decision.outbox
        if not decision.lazy or stamp.mono_ms >= self._held_since_ms + HOLD_MS:
            self.flush()

    def flush(self) -> None:
        """Make everything that is held durable, then send it."""
        events, self._held_events = self._held_events, []
        outbox, self._held_outbox = self._held_outbox, []
        self.finish(events, outbox)

    def due_ms(self) -> int | None:
        """CLOCK_BOOTTIME milliseconds by which another turn must come; None when nothing is
        held."""
        return self._held_since_ms + HOLD_MS if self._held_events else None

    def finish(self, events: list[BaseModel], outbox: list[Send]) -> None:
        """Make events durable, then send. What was set aside is forgotten last: whoever comes after
        a sudden end before that may need it."""
        if events:
            if self._rouse is not None:
                self._rouse(outbox)
            self._ledger.commit([encode(event) for event in events])
        if outbox:
            self._send(outbox)
        if self._aside is not None:
            self._aside.forget()

    def _decide(self, command: Any, stamp: Stamp, turn: Decision) -> None:
        recorded = self._machine.recorded
        try:
            decision = self._machine.decide(command, stamp)
        except Exception:
            answer = self._refuse(command) if self._refuse is not None else None
            if answer is None or self._machine.recorded != recorded:
                raise
            self._log.exception("a request could not be decided")
            turn.outbox.append(answer)
            return
        turn.events += decision.events
        turn.outbox += decision.outbox
        turn.lazy &= decision.lazy or not (decision.events or decision.outbox)
