"""A claim registry as a pure machine, its history, and short ways to ask it."""

from __future__ import annotations

from typing import Any

from praxist_zmq.core.claim import ClaimMachine
from praxist_zmq.core.claim_commands import BrokersGone, ProcessesProvedAbsent, RegistryStarted
from praxist_zmq.core.claim_invariants import history_violations, state_violations
from praxist_zmq.core.claim_state import Watch
from praxist_zmq.protocol.claims import Bind, RegisterRun, Release, ReportLoad, Want
from tests.support.claims import BOOT, command, process, run_key, run_row, stamp

A = run_key("a")
"""The run that most stories are about."""


class Desk:
    """A machine, its history, and a way to ask it."""

    def __init__(self, uid: int | None = None) -> None:
        self.machine = ClaimMachine()
        self.history: list[Any] = []
        self.fact(RegistryStarted(BOOT, uid))

    def fact(self, fact: Any, mono_ms: int = 0) -> list[Any]:
        """Tell a fact; the events it makes."""
        events = self.machine.decide(fact, stamp(mono_ms)).events
        self.history += events
        return events

    def ask(
        self,
        request: Any,
        request_id: str | None = None,
        address: Any = b"a",
        uid: int = 1000,
        mono_ms: int = 0,
        pid: int | None = None,
    ) -> Any:
        """The answer to one request."""
        asked = command(request, request_id, address, uid, pid)
        decision = self.machine.decide(asked, stamp(mono_ms))
        self.history += decision.events
        assert len(decision.outbox) == 1
        assert decision.outbox[0].address == address
        return decision.outbox[0].message

    def settle(self, mono_ms: int = 0) -> list[Any]:
        """The end of a turn; what is sent then."""
        decision = self.machine.settle(stamp(mono_ms))
        self.history += decision.events
        return decision.outbox

    def register(
        self,
        name: str,
        epoch: int = 1,
        attempts: tuple[str, ...] = (),
        limit: int = 8,
        uid: int = 1000,
    ) -> Any:
        """A broker takes a run over."""
        row = run_row(name, epoch, limit=limit)
        request = RegisterRun(registration=1, run=row, attempts=attempts)
        return self.ask(request, address=name.encode(), uid=uid)

    def report(self, name: str, want: Want | None = None, mono_ms: int = 0, limit: int = 0) -> Any:
        """What a run tells of itself; its limit stays as it is, unless one is given."""
        limit = limit or self.machine.state.runs[run_key(name)].limit
        request = ReportLoad(
            registration=1,
            run_key=run_key(name),
            epoch=1,
            running=0,
            queued=0,
            limit=limit,
            want=want,
        )
        return self.ask(request, address=name.encode(), mono_ms=mono_ms)

    def held(self) -> set[tuple[str, str]]:
        """The names of all rows."""
        return set(self.machine.state.rows)

    def bind(self, attempt: str, pid: int = 900, epoch: int = 1, key: str = A) -> Any:
        """An attempt of run `a` gets its shim."""
        return self.ask(
            Bind(registration=1, run_key=key, epoch=epoch, attempt=attempt, shim=process(pid))
        )

    def release(self, attempt: str, epoch: int = 1, request_id: str | None = None) -> Any:
        """An attempt of run `a` is over."""
        return self.ask(
            Release(registration=1, run_key=A, epoch=epoch, attempt=attempt), request_id
        )

    def shim_gone(self, attempt: str, pid: int = 900) -> list[Any]:
        """The kernel says that a shim of run `a` is gone."""
        return self.fact(ProcessesProvedAbsent((Watch(A, attempt, process(pid)),)))

    def broker_gone(self, epoch: int = 1) -> list[Any]:
        """The kernel says that a broker of run `a` is gone."""
        return self.fact(BrokersGone((Watch(A, None, run_row("a", epoch).broker),)))

    def check(self) -> None:
        """What must hold after every story; a restart has the same state."""
        assert state_violations(self.machine.state) == []
        assert history_violations(self.history) == []
        again = ClaimMachine()
        for sequence, event in enumerate(self.history, start=1):
            again.apply(event, sequence)
        for row in self.machine.state.runs.values():
            again.state.set_load(row.run_key, row.running, row.queued, row.limit)
        assert again.snapshot() == self.machine.snapshot()
