"""The one order of every process: decide everything that waits, make it durable, then send.

The only caller of `Ledger.commit` for a machine, and the only place where what a machine wants to
send leaves. Nothing leaves before the events that justify it are on disk (design 2, promise 1).
Throughput comes from doing this once for all messages that wait, not from skipping the sync.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from ..core.decision import Machine, Send, Stamp
from ..ledger.log import Ledger
from ..protocol.codec import encode

Refuse = Callable[[Any], Send | None]
"""Makes the refusal for a command whose decision failed, or None when it has no sender."""


class Step:
    """A machine, its ledger, and the way out.

    `send` receives the whole outbox of a turn. `refuse` answers for a command that a fault of ours
    made undecidable before it recorded anything; a fault after that ends the process, because
    memory and ledger then disagree.
    """

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        send: Callable[[list[Send]], None],
        refuse: Refuse | None = None,
    ) -> None:
        self._machine = machine
        self._ledger = ledger
        self._send = send
        self._refuse = refuse
        self._log = logging.getLogger(__name__)

    def turn(self, commands: Iterable[Any], stamp: Stamp) -> None:
        """Decide `commands`, settle, commit, send. Raises PraxistError of the ledger's."""
        events: list[BaseModel] = []
        outbox: list[Send] = []
        for command in commands:
            self._decide(command, stamp, events, outbox)
        decision = self._machine.settle(stamp)
        self.finish(events + decision.events, outbox + decision.outbox)

    def finish(self, events: list[BaseModel], outbox: list[Send]) -> None:
        """Make events durable, then send."""
        if events:
            self._ledger.commit([encode(event) for event in events])
        if outbox:
            self._send(outbox)

    def _decide(
        self, command: Any, stamp: Stamp, events: list[BaseModel], outbox: list[Send]
    ) -> None:
        recorded = self._machine.recorded
        try:
            decision = self._machine.decide(command, stamp)
        except Exception:
            answer = self._refuse(command) if self._refuse is not None else None
            if answer is None or self._machine.recorded != recorded:
                raise
            self._log.exception("a request could not be decided")
            outbox.append(answer)
            return
        events += decision.events
        outbox += decision.outbox
