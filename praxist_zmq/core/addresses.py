"""Where a process of the run has spoken from, as its connections come and go.

What waits of a connection that is lost may be read after the first words of the one that followed.
So who spoke last need not be there any more, and who spoke before is not forgotten: when a message
cannot be handed over, another address is tried. It decides nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ADDRESSES_MAX = 4


@dataclass(slots=True)
class Addresses:
    """Those of one process, the best last."""

    known: dict[Any, None] = field(default_factory=dict)

    @property
    def best(self) -> Any:
        """Where to send; None while nobody has spoken."""
        return next(reversed(self.known), None)

    def spoke(self, address: Any) -> None:
        """Something came from there."""
        self.known.pop(address, None)
        self.known[address] = None
        if len(self.known) > ADDRESSES_MAX:
            del self.known[next(iter(self.known))]

    def failed(self, address: Any) -> None:
        """Nothing can be handed over there now: any other is better."""
        if address in self.known:
            del self.known[address]
            self.known = {address: None, **self.known}
