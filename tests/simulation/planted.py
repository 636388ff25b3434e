"""Faults put into the product on purpose: each must be found, or the simulation proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from praxist_zmq.core import (
    attempts,
    claim_admit,
    claim_leases,
    generations,
    last_look,
    launch,
    lease_grant,
    leases,
    recall,
    registry_side,
    submit,
    watching,
)
from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.launch import Phase
from praxist_zmq.protocol.codec import encode
from praxist_zmq.protocol.reports import AttemptEnded
from praxist_zmq.service.step import Step

Patch = pytest.MonkeyPatch


def send_before_sync(patch: Patch) -> None:
    """Answers leave first; the disk comes after."""

    def finish(self: Any, events: list[Any], outbox: list[Any]) -> None:
        if outbox:
            self._send(outbox)
        if events:
            self._ledger.commit([encode(event) for event in events])

    patch.setattr(Step, "finish", finish)


def consume_without_a_job(patch: Patch) -> None:
    """A submission that only joins uses its lease up all the same."""
    honest = submit._duplicate

    def duplicate(turn: Any, request: Any, job: Any, wish: Any, index: int) -> Any:
        leases.answer(turn, job, wish.submission.lease_id)
        return honest(turn, request, job, wish, index)

    patch.setattr(submit, "_duplicate", duplicate)


def forget_a_row(patch: Patch) -> None:
    """A registry that starts again has lost one of its rows."""
    honest = ClaimMachine._open

    def opened(self: Any, boot_id: str, stamp: Any, decision: Any) -> None:
        honest(self, boot_id, stamp, decision)
        for key in list(self.state.rows)[:1]:
            self._end(key, "proved_absent", stamp, decision)

    patch.setattr(ClaimMachine, "_open", opened)


def go_twice(patch: Patch) -> None:
    """Each order to go gives GO."""
    patch.setitem(launch.TABLE, (Phase.WAITING, launch.GoGiven), lambda life, _: life)


def answer_afresh(patch: Patch) -> None:
    """A request id is not remembered."""
    patch.setattr(submit, "_answered_before", lambda *_: None)


def grant_after_freeze(patch: Patch) -> None:
    """An offer is not looked at again when the host's answer comes."""
    patch.setattr(lease_grant, "_stands", lambda *_: True)


def start_after_freeze(patch: Patch) -> None:
    """What stands at its barrier goes on, whatever became of its generation."""
    patch.setattr(recall, "takes_class", lambda *_: True)
    patch.setattr(generations, "_at_barrier", lambda *_: [])


def promise_twice(patch: Patch) -> None:
    """The registry takes every plan that its sender has made."""
    patch.setattr(claim_admit, "misfit", lambda *_, **__: None)


def free_too_early(patch: Patch) -> None:
    """The evaluator's own end is taken for the end of all that it started."""

    def exited(turn: Any, attempt: Any, report: Any) -> None:
        ended = AttemptEnded(attempt=report.attempt, outcome="exited", exit_code=report.exit_code)
        attempts._ended(turn, attempt, "exited", ended, "", "", permanent=False)

    patch.setattr(attempts, "_leader_exited", exited)


def leave_leases(patch: Patch) -> None:
    """Real work takes nothing back from leases."""
    patch.setattr(claim_leases.LeaseHolds, "make_way", lambda *_: None)


def skip_the_last_look(patch: Patch) -> None:
    """Nobody looks at the devices again before GO."""
    patch.setattr(registry_side, "waits_for_look", lambda *_: False)
    patch.setattr(registry_side, "room_is_there", lambda *_: True)
    patch.setattr(last_look, "look_wanted", lambda *_: False)


def leave_waiters(patch: Patch) -> None:
    """Who waits for a job is never answered."""
    patch.setattr(watching, "answer_watchers", lambda turn: None)


PLANTED: tuple[Callable[[Patch], None], ...] = (
    send_before_sync, consume_without_a_job, forget_a_row, go_twice, answer_afresh,
    grant_after_freeze, start_after_freeze, promise_twice, free_too_early, leave_leases,
    skip_the_last_look, leave_waiters,
)  # fmt: skip
