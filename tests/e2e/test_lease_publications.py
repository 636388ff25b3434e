"""Publications of leases that are lost, repeated and reordered on their way to real peers."""

from __future__ import annotations

import json
import threading

import pytest

from praxist_zmq.client import LeaseInfo
from praxist_zmq.transport.publication import Subscriber
from tests.support import oracle
from tests.support.fake_relay import FakeRelay, Fault, Tangle, lose
from tests.support.lease_points import QUICK_SUPPLY, answer, lease_of
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


@pytest.mark.parametrize(
    "fault", [lose(b"lease/"), lose(b"")], ids=["all leases lost", "everything lost"]
)
def test_what_is_lost_is_found_by_asking(make_run: MakeRun, fault: Fault) -> None:
    run = make_run(slots=1, settings=QUICK_SUPPLY)
    run.up()
    with FakeRelay(run, fault) as relay, run.client() as client:
        job = run.submit(client, "busy", f"wait:{run.gate('go')}", peer="p0").job.job
        wait_until(lambda: client.show(job).state == "running", "the slot is taken")
        found: list[LeaseInfo] = []
        thread = threading.Thread(target=lambda: found.append(lease_of(run, "p1")), daemon=True)
        thread.start()
        wait_until(
            lambda: client.status()["resource_supply"]["idle_waiters"] == 1, "the peer waits"
        )
        wait_until(lambda: relay.sent > 0, "a keep-alive comes: the peer has subscribed")
        run.open_gate("go")
        thread.join(40)
        assert [lease.peer for lease in found] == ["p1"]
        assert relay.sent > relay.passed
    run.down()
    oracle.check_ended(run)


def test_a_grant_announces_nothing_that_is_not_on_disk(make_run: MakeRun) -> None:
    """While it is made durable its peer hears, to be awake, a keep-alive that tells nothing."""
    run = make_run(slots=1, settings=QUICK_SUPPLY)
    run.up()
    endpoint = json.loads(run.paths.endpoint.read_text())["events_endpoint"]
    listener = Subscriber(endpoint.removeprefix("ipc://"), [b"lease/p1"])
    with run.client() as client:
        client.lease_idle("p1")
        heard: list[tuple[bytes, bytes]] = []
        wait_until(lambda: heard.extend(listener.drain()) or len(heard) >= 2, "a grant", 40)
    listener.close()
    before, grant = (json.loads(body) for _, body in heard[:2])
    assert {topic for topic, _ in heard} == {b"lease/p1"}
    assert before == {"kind": "leases_alive", "epoch": grant["epoch"], "sequence": 0}
    assert grant["lease"]["peer"] == "p1"
    run.down()
    oracle.check_ended(run)


@pytest.mark.parametrize("seed", [1, 2])
def test_repeated_late_and_lost_ones_wake_each_peer_once_a_lease(
    make_run: MakeRun, seed: int
) -> None:
    run = make_run(slots=3, settings=QUICK_SUPPLY)
    run.up()
    returned: dict[str, list[str]] = {}

    def work(peer: str) -> None:
        """What it gets it answers; then it waits again, while the old tale may still be told."""
        names = returned.setdefault(peer, [])
        for number in range(2):
            lease = lease_of(run, peer)
            names.append(lease.lease_id)
            answer(run, f"{peer}-{number}", lease)

    with FakeRelay(run, Tangle(seed)) as relay:
        threads = [threading.Thread(target=work, args=(f"p{n}",), daemon=True) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert relay.sent != relay.passed
    stats = run.cli("leases", "--json").ok().document["stats"]
    names = [name for each in returned.values() for name in each]
    assert len(set(names)) == len(names) == 6
    assert (stats["granted"], stats["consumed"]) == (6, 6), stats
    assert (stats["stale_submission"], stats["reuse_ignored"]) == (0, 0)
    run.down()
    oracle.check_ended(run)
