"""Waiting for a lease over publications that are lost, repeated, late or another broker's."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.client import lease as module
from praxist_zmq.client.lease import LeaseInfo, LeaseWait
from praxist_zmq.errors import PraxistError
from praxist_zmq.host.clock import SystemClock
from praxist_zmq.transport.publication import Publisher
from tests.support.wait import wait_until

Json = dict[str, Any]
OWN = b"lease/p1"


def lease(number: int = 1) -> Json:
    """A lease as the broker tells it."""
    return {"lease_id": f"supply-{number}", "peer": "p1", "state": "out", "profiles": ["cpu"]}


def state(sequence: int, found: Json | None = None, epoch: int = 1, waiting: bool = True) -> Json:
    """A peer's state at a sequence."""
    waits = waiting and found is None
    return {"epoch": epoch, "sequence": sequence, "lease": found, "waiting": waits}


class FakeRun:
    """A fake of the run: a real publisher, and answers to registrations as the test sets them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "events-0.sock"
        self.publisher = Publisher(self.path)
        self.now = state(0)
        self.registrations = 0
        self.found: LeaseInfo | PraxistError | None = None
        self.thread: threading.Thread | None = None

    def register(self, left_s: float | None) -> Json:
        """The snapshot."""
        self.registrations += 1
        return dict(self.now)

    def wait(self, timeout_s: float | None = 20) -> None:
        """Begin to wait in a thread, and see it subscribed."""

        def body() -> None:
            waiting = LeaseWait("p1", self.register, lambda: str(self.path), SystemClock().mono_ms)
            try:
                self.found = waiting.wait(timeout_s)
            except PraxistError as error:
                self.found = error
            finally:
                waiting.close()

        self.thread = threading.Thread(target=body, daemon=True)
        self.thread.start()

    def subscribed(self) -> None:
        """The subscription has arrived, and the first look is over."""

        def there() -> bool:
            self.publisher.update()
            return self.publisher.audience(OWN)

        wait_until(there, "the waiting peer subscribes")
        wait_until(lambda: self.registrations >= 2, "the first look is over")

    def publish(self, topic: bytes, body: Json | bytes) -> None:
        """Publish something."""
        self.publisher.publish(
            topic, body if isinstance(body, bytes) else json.dumps(body).encode()
        )

    def result(self) -> Any:
        """What the wait came to."""
        assert self.thread is not None
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.found

    def move(self) -> None:
        """The run is started again: it publishes elsewhere."""
        old = self.publisher
        self.path = self.directory / "events-1.sock"
        self.publisher = Publisher(self.path)
        old.close()


@pytest.fixture
def run() -> Iterator[FakeRun]:
    directory = Path(tempfile.mkdtemp(prefix="pz", dir="/tmp"))
    made = FakeRun(directory)
    yield made
    if made.thread is not None:
        made.thread.join(30)
    made.publisher.close()
    shutil.rmtree(directory)


def test_a_lease_that_is_there_is_returned_at_once(run: FakeRun) -> None:
    run.now = state(4, lease())
    run.wait()
    assert run.result().lease_id == "supply-1"
    assert run.registrations == 1


def test_a_publication_wakes_without_another_question(run: FakeRun) -> None:
    run.wait()
    run.subscribed()
    run.publish(OWN, state(3, lease(3)))
    assert run.result().lease_id == "supply-3"
    assert run.registrations == 2


def test_a_publication_from_before_the_subscription_is_found_by_the_first_look(
    run: FakeRun,
) -> None:
    run.wait()
    wait_until(lambda: run.registrations >= 1, "it registers")
    run.now = state(1, lease())
    assert run.result().lease_id == "supply-1"


def test_what_is_not_newer_and_what_is_others_is_dropped(run: FakeRun) -> None:
    run.now = state(5)
    run.wait()
    run.subscribed()
    run.publish(OWN, state(5, lease(5)))
    run.publish(OWN, state(4, lease(4)))
    run.publish(b"lease/p10", state(9, lease(9)))
    run.publish(OWN, state(6, lease(6)))
    run.publish(OWN, state(6, lease(6)))
    assert run.result().lease_id == "supply-6"
    assert run.registrations == 2


def test_what_rouses_a_peer_tells_it_nothing(run: FakeRun) -> None:
    """Facts about others came since it registered: the sequence is that of all of them."""
    run.now = state(5)
    run.wait()
    run.subscribed()
    run.publish(OWN, {"kind": "leases_alive", "epoch": 1, "sequence": 0})
    run.publish(OWN, state(7, lease(7)))
    assert run.result().lease_id == "supply-7"
    assert run.registrations == 2


def test_a_lost_publication_is_noticed_by_the_keep_alive(run: FakeRun) -> None:
    run.wait()
    run.subscribed()
    run.publish(b"leases", {"epoch": 1, "sequence": 0})
    run.now = state(7, lease(7))
    run.publish(b"leases", {"epoch": 1, "sequence": 7})
    assert run.result().lease_id == "supply-7"
    assert run.registrations == 3


def test_leases_of_others_cost_one_question_and_wake_nobody(run: FakeRun) -> None:
    run.wait()
    run.subscribed()
    run.now = state(2)
    run.publish(b"leases", {"epoch": 1, "sequence": 2})
    wait_until(lambda: run.registrations == 3, "it asks")
    for _ in range(3):
        run.publish(b"leases", {"epoch": 1, "sequence": 2})
    run.publish(OWN, state(3, lease(3)))
    assert run.result().lease_id == "supply-3"
    assert run.registrations == 3


def test_another_broker_is_registered_with_and_an_older_one_is_not_believed(run: FakeRun) -> None:
    run.now = state(9, epoch=2)
    run.wait()
    run.subscribed()
    run.publish(OWN, state(50, lease(50), epoch=1))
    run.now = state(0, epoch=3)
    run.publish(b"leases", {"epoch": 3, "sequence": 0})
    wait_until(lambda: run.registrations == 3, "it registers with the new one")
    run.publish(OWN, state(1, lease(1), epoch=3))
    assert run.result().lease_id == "supply-1"


def test_a_peer_that_waits_no_more_asks_why(run: FakeRun) -> None:
    run.wait()
    run.subscribed()
    run.now = state(2, lease(2))
    run.publish(OWN, state(1, waiting=False))
    assert run.result().lease_id == "supply-2"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"epoch": 1}', b"[" * 5000, b'{"epoch":true}'])
def test_what_cannot_be_read_is_asked_about(run: FakeRun, body: bytes) -> None:
    run.wait()
    run.subscribed()
    run.now = state(2, lease(2))
    run.publish(OWN, body)
    assert run.result().lease_id == "supply-2"


def test_a_silent_publisher_is_looked_after(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_MS", 300)
    run.wait()
    run.subscribed()
    run.move()
    run.now = state(0, epoch=2)

    def there() -> bool:
        run.publisher.update()
        return run.publisher.audience(OWN)

    wait_until(there, "it subscribes where the run publishes now")
    before = run.registrations
    wait_until(lambda: run.registrations > before, "it looks again")
    run.publish(OWN, state(1, lease(1), epoch=2))
    assert run.result().lease_id == "supply-1"


def test_the_time_is_over(run: FakeRun) -> None:
    run.wait(timeout_s=0.4)
    assert run.result().code == "wait_timeout"


def test_the_time_is_over_while_the_peer_cools_down(run: FakeRun) -> None:
    run.now = {**state(0), "cooling_s": 59.6}
    run.wait(timeout_s=0.4)
    detail = run.result().detail
    assert detail.startswith("no lease came; the peer stays registered; it declined one, so it is")
    assert detail.endswith(("another 59 s", "another 60 s"))
