"""SIGKILL of the registry at any time: never two holders, no answer before it is on disk."""

from __future__ import annotations

import threading
from pathlib import Path

from praxist_zmq.core.claim_invariants import history_violations
from praxist_zmq.host.identity import boot_id
from praxist_zmq.host.paths import HostPaths
from praxist_zmq.ledger.log import Ledger
from praxist_zmq.protocol.claims import Granted, Registered, RegisterRun, Release
from praxist_zmq.protocol.codec import decode_claim_event
from tests.support.claims import exclusive, reserve, run_key
from tests.support.registry_process import Asker, RegistryProcess, hold_run
from tests.support.wait import wait_until

KILLS = 6


class Contender(threading.Thread):
    """A run of this process: takes the one device, looks whether it is alone, gives it back."""

    def __init__(self, host: HostPaths, name: str, holders: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.holders = holders
        self.held = 0
        self.overlaps = 0
        self.stop = threading.Event()
        self._host = host
        self._row, self.lock = hold_run(name)

    def run(self) -> None:
        asker = Asker(self._host)
        register = RegisterRun(registration=1, run=self._row, attempts=())
        assert isinstance(asker.ask(register, timeout_s=30), Registered)
        number = 0
        while not self.stop.is_set():
            number += 1
            attempt = f"j-{number}.1"
            taken = asker.ask(reserve(self.name, attempt, exclusive("gpu0")), timeout_s=30)
            if not isinstance(taken, Granted):
                continue
            self.holders.append(self.name)
            self.overlaps += len(self.holders) > 1
            self.held += 1
            self.holders.remove(self.name)
            gone = Release(registration=1, run_key=run_key(self.name), epoch=1, attempt=attempt)
            assert isinstance(asker.ask(gone, timeout_s=30), Granted)
        asker.close()


def test_two_runs_one_device_and_a_registry_that_is_killed(
    host: HostPaths, registry: RegistryProcess, tmp_path: Path
) -> None:
    holders: list[str] = []
    contenders = [Contender(host, str(tmp_path / name), holders) for name in ("a", "b")]
    try:
        for contender in contenders:
            contender.start()
        for _ in range(KILLS):
            mark = sum(c.held for c in contenders)
            wait_until(
                lambda mark=mark: sum(c.held for c in contenders) > mark + 5, "some more holds"
            )
            registry.kill()
            assert "ready" in registry.start()
        wait_until(lambda: all(c.held > 0 for c in contenders), "each to have its turn")
    finally:
        for contender in contenders:
            contender.stop.set()
        for contender in contenders:
            contender.join(30)
            contender.lock.release()
    assert not any(contender.is_alive() for contender in contenders)
    assert [contender.overlaps for contender in contenders] == [0, 0]
    assert registry.terminate() == 0
    ledger = Ledger.open(host.ledger, "registry", "host", boot_id())
    events = [decode_claim_event(payload) for _, payload in ledger.replay()]
    ledger.close()
    assert history_violations(events) == []
    granted = sum(event.kind == "claim_reserved" for event in events)
    assert granted == sum(contender.held for contender in contenders)
    assert sum(event.kind == "registry_opened" for event in events) == KILLS + 1
