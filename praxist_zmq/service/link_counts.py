"""How many orders and reports passed on the launcher's link, counted by both of its ends alike.

It counts and sends nothing. The link keeps the order of what it carries, so counts that differ at
the same place mean that something was lost on the way.
"""

from __future__ import annotations

from pydantic import BaseModel

from ..protocol import orders
from ..protocol.reports import CountsCompared, LauncherConnected


class LinkCounts:
    """Since the last introduction."""

    def __init__(self) -> None:
        self._orders = 0
        self._reports = 0
        self.welcomed = False
        """Whether the broker has answered the last introduction."""

    def arrived(self, order: orders.Order) -> bool:
        """Count one order. False when one before it is missing."""
        if isinstance(order, orders.Welcome):
            self.welcomed, self._orders = True, 0
        elif isinstance(order, orders.CompareCounts):
            return not self.welcomed or order.orders == self._orders
        elif not isinstance(order, orders.Announce):
            self._orders += 1
        return True

    def leaves(self, report: BaseModel) -> BaseModel:
        """Count one report; the report as it is to be sent."""
        if isinstance(report, LauncherConnected):
            self.welcomed, self._reports = False, 0
        elif isinstance(report, CountsCompared):
            return CountsCompared(reports=self._reports)
        else:
            self._reports += 1
        return report
