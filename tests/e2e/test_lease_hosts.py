"""Leases of two runs on one host scope: one device, offers of both, real work of both."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from praxist_zmq.client import LeaseInfo
from tests.support import oracle
from tests.support.lease_points import QUICK_SUPPLY, host_view, lease_of
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


@pytest.fixture
def pair(make_run: MakeRun) -> tuple[Run, Run]:
    """Two runs with two slots each and one device between them."""
    runs = [
        make_run(name, slots=2, sim="gpus=1,memory=80", settings=QUICK_SUPPLY)
        for name in ("one", "two")
    ]
    for run in runs:
        run.up()
    return runs[0], runs[1]


def end_of(run: Run, lease: LeaseInfo) -> tuple[str, str | None]:
    """What became of a lease, and why."""
    listed = run.cli("leases", "-a", "--json").ok().document["leases"]
    (mine,) = [found for found in listed if found["lease_id"] == lease.lease_id]
    return mine["state"], mine["reason"]


def stats(run: Run) -> Any:
    """What became of all."""
    return run.cli("leases", "--json").ok().document["stats"]


def check_ended(*runs: Run) -> None:
    """Everything was right, on both sides."""
    assert oracle.shared_devices(runs) == []
    for run in runs:
        run.down()
        oracle.check_ended(run)
    assert host_view(runs[0]).leases == ()


def test_one_device_is_offered_once(pair: tuple[Run, Run]) -> None:
    found: list[LeaseInfo] = []
    threads = [
        threading.Thread(target=lambda run=run: found.append(lease_of(run, "p1")), daemon=True)
        for run in pair
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted("gpu" in lease.profiles for lease in found) == [False, True]
    rows = host_view(pair[0]).leases
    assert len(rows) == 2, "either run's offer is held"
    assert sum(bool(row.envelope.device_uuids) for row in rows) == 1
    check_ended(*pair)


@pytest.mark.parametrize("whose", ["foreign", "own"])
def test_real_work_displaces_an_offer_and_its_peer_is_not_harmed(
    pair: tuple[Run, Run], whose: str
) -> None:
    one, two = pair
    lease = lease_of(one, "p1")
    assert "gpu" in lease.profiles
    worker = two if whose == "foreign" else one
    with one.client() as client, worker.client() as other:
        gate = f"wait:{worker.gate('go')}"
        real = worker.submit(other, "real", gate, "exit:5", peer="p2", profile="gpu").job.job
        worker.until_started(f"{real}.1")
        wait_until(
            lambda: end_of(one, lease) == ("revoked", "resource_claim_reclaimed"),
            "the offer is taken back",
        )
        # The peer has not heard of it yet, and submits with what it has.
        late = one.submit(
            client, "late", "exit:7", profile="gpu", lease_id=lease.lease_id,
            work_class="mature",
        ).job  # fmt: skip
        assert client.show(late.job).state == "queued"
        assert client.show(late.job).blockers, "it waits for the device, and is told so"
        worker.open_gate("go")
        assert other.wait(real, 40).exit_code == 5
        assert client.wait(late.job, 40).exit_code == 7
    assert (stats(one)["stale_submission"], stats(one)["consumed"]) == (1, 0)
    check_ended(one, two)


def test_work_beside_an_offer_leaves_it_alone(pair: tuple[Run, Run]) -> None:
    """A slot and no device of the offer's: it stands, and is consumed."""
    one, two = pair
    lease = lease_of(one, "p1")
    with one.client() as client, two.client() as other:
        job = two.submit(other, "beside", f"wait:{two.gate('go')}", peer="p2").job.job
        two.until_started(f"{job}.1")
        assert end_of(one, lease)[0] == "out"
        mine = one.submit(
            client, "mine", "exit:7", profile="gpu", lease_id=lease.lease_id,
            work_class="mature",
        ).job.job  # fmt: skip
        assert client.wait(mine, 40).exit_code == 7
        two.open_gate("go")
        assert other.wait(job, 40).exit_code == 0
    assert stats(one)["consumed"] == 1
    check_ended(one, two)


@pytest.mark.parametrize("killed", ["broker", "all"])
def test_the_device_of_a_dead_run_s_offer_is_free_again(pair: tuple[Run, Run], killed: str) -> None:
    one, two = pair
    lease = lease_of(one, "p1")
    assert "gpu" in lease.profiles
    one.kill_all() if killed == "all" else one.kill("broker")

    def offered() -> bool:
        """Asked too early, the device is not in it: given back and asked for again."""
        found = "gpu" in lease_of(two, "p1").profiles
        if not found:
            with two.client() as client:
                client.lease_withdraw("p1")
        return found

    wait_until(offered, "the device to be offered by the other run", 40)
    assert lease.lease_id not in {row.lease_id for row in host_view(two).leases}
    one.until_healthy(40) if killed == "broker" else one.up()
    assert end_of(one, lease) == ("revoked", "scheduler_restarted")
    check_ended(one, two)
