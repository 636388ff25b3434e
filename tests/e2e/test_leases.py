"""Leases through the installed command: idle peers woken, answered, declined, over every kill."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from praxist_zmq.client import LeaseInfo
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def _stats(run: Run) -> dict[str, object]:
    found: dict[str, object] = run.cli("leases", "--json").ok().document["stats"]
    return found


def _lease(run: Run, peer: str) -> LeaseInfo:
    with run.client() as client:
        return client.lease_wait(peer, 40)


def test_a_peer_is_woken_and_its_job_consumes_the_lease(run: Run) -> None:
    run.cli("lease", "idle", "--peer", "p1").ok()
    waiting = run.start("lease", "wait", "--peer", "p1", "--timeout", "40s", "-q")
    out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, err
    lease_id = out.strip()
    shown = run.cli("lease", "show", "--peer", "p1").ok().out
    assert lease_id in shown
    assert f"praxist-zmq launch --peer p1 --lease {lease_id} --work-class mature" in shown
    assert "may answer for" in run.cli("explain", f"lease:{lease_id}").ok().out
    words = ("launch", "--peer", "p1", "--tag", "t1", "--work-class", "mature")
    run.cli(*words, "--lease", lease_id, "--", "true").ok()
    stats = _stats(run)
    assert (stats["consumed"], stats["conversion_rate"]) == (1, 1.0)
    # The variable of the session that is over: it is counted and harms nothing.
    stale = {"PRAXIST_RESOURCE_SUPPLY_LEASE_ID": lease_id}
    run.cli("launch", "--peer", "p1", "--tag", "t2", "--", "true", env=stale).ok()
    run.cli("launch", "--peer", "p1", "--tag", "t3", "--lease", "x" * 500, "--", "true").ok()
    assert _stats(run)["reuse_ignored"] == 1
    run.down()
    run.up()
    assert _stats(run)["conversion_rate"] == 1.0


def test_what_is_declined_cools_down_and_a_wait_ends_in_time(run: Run) -> None:
    lease = _lease(run, "p1")
    declined = run.cli("lease", "decline", "--peer", "p1", "--reason", "all is planned").ok()
    assert declined.out == f"{lease.lease_id} declined; nothing mature is offered for 1m00s\n"
    for other in ("p2", "p3"):
        _lease(run, other)
    over = run.cli("lease", "wait", "--peer", "p9", "--timeout", "1s")
    assert over.status == 124, "every slot is offered"
    assert "lease wait --peer p9" in over.err
    listed = run.cli("leases", "-a", "--json").ok().document["leases"]
    (mine,) = [found for found in listed if found["lease_id"] == lease.lease_id]
    assert (mine["state"], mine["detail"]) == ("declined", "all is planned")
    assert run.cli("lease", "decline", "--peer", "nobody").status == 65


@pytest.mark.parametrize("victim", ["supply", "gateway", "broker"])
def test_a_kill_between_grant_and_submission(run: Run, victim: str) -> None:
    """The job is taken in any case; the lease is consumed unless its broker is another one."""
    lease = _lease(run, "p1")
    os.kill(run.processes()[victim], signal.SIGKILL)
    words = ("launch", "--peer", "p1", "--tag", "t1", "--work-class", lease_class(lease))
    wait_until(
        lambda: run.cli(*words, "--lease", lease.lease_id, "--", "true").status == 0,
        "the job runs",
    )
    stats = _stats(run)
    assert stats["granted"] == 1
    outcome = "revoked" if victim == "broker" else "consumed"
    assert stats[outcome] == 1, stats
    assert stats["stale_submission"] == (1 if victim == "broker" else 0)


def lease_class(lease: LeaseInfo) -> str:
    """What a lease asks for, as a work class."""
    return "mature" if lease.priority == "mature" else "ordinary"


@pytest.mark.parametrize("victim", ["supply", "gateway", "broker"])
def test_a_wait_goes_on_over_a_kill(make_run: Callable[..., Run], victim: str) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        gate = f"wait:{run.gate('go')}"
        job = run.submit(client, "busy", gate, peer="p0").job.job
        wait_until(lambda: client.show(job).state == "running", "the slot is taken")
        found: list[LeaseInfo] = []
        thread = threading.Thread(target=lambda: found.append(_lease(run, "p1")), daemon=True)
        thread.start()
        wait_until(
            lambda: client.status()["resource_supply"]["idle_waiters"] == 1, "the peer waits"
        )
        os.kill(run.processes()[victim], signal.SIGKILL)
        run.open_gate("go")
        thread.join(60)
    assert [lease.peer for lease in found] == ["p1"]


def test_waits_go_on_over_supply_and_gateway_that_die_again_and_again(
    make_run: MakeRun,
) -> None:
    run = make_run(slots=2)
    run.up()
    peers = ("p1", "p2")
    found: list[LeaseInfo] = []
    with run.client() as client:
        gate = f"wait:{run.gate('go')}"
        jobs = [run.submit(client, f"busy{n}", gate, peer="p0").job.job for n in range(2)]
        run.until_started(*(f"{job}.1" for job in jobs))
        threads = [
            threading.Thread(target=lambda peer=peer: found.append(_lease(run, peer)), daemon=True)
            for peer in peers
        ]
        for thread in threads:
            thread.start()

        def waiting() -> bool:
            return bool(client.status()["resource_supply"]["idle_waiters"] == len(peers))

        wait_until(waiting, "the peers wait")
        for victim in ("supply", "gateway", "supply", "gateway"):
            old = run.processes()[victim]
            os.kill(old, signal.SIGKILL)
            wait_until(
                lambda victim=victim, old=old: run.processes().get(victim, old) != old,
                "another one to be started",
            )
            run.until_healthy()
            assert waiting(), "nobody is forgotten"
        run.open_gate("go")
        for thread in threads:
            thread.join(60)
    assert sorted(lease.peer for lease in found) == ["p1", "p2"]
    assert _stats(run)["granted"] == 2


def test_real_work_takes_the_room_of_an_offer(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    lease = _lease(run, "p1")
    run.cli("launch", "--peer", "p2", "--tag", "real", "--", "true").ok()

    def ended() -> object:
        leases = run.cli("leases", "-a", "--json").ok().document["leases"]
        found = next(each for each in leases if each["lease_id"] == lease.lease_id)
        return found["reason"]

    wait_until(lambda: ended() == "resource_claim_reclaimed", "the offer is taken back")
    # What comes after that is as good as without a lease.
    run.cli("launch", "--peer", "p1", "--tag", "late", "--lease", lease.lease_id, "--", "true").ok()


def test_twelve_peers_and_a_target_of_three(make_run: MakeRun) -> None:
    run = make_run(slots=12)
    run.up("--cohort-size", "12")
    peers = [f"p{number}" for number in range(12)]
    with run.client() as client:
        for peer in peers:
            client.lease_idle(peer)
        leases = [client.lease_wait(peer, 60) for peer in peers]
        asked = [lease.priority for lease in leases]
        assert asked.count("mature") == 9, "redundancy 3 of a debt of 3"
        assert asked.count("frontier_followup") == 3
        maturity = client.status()["resource_supply"]["maturity"]["0"]
        assert (maturity["target"], maturity["needed_inflight"]) == (3, 0)
        assert maturity["priority_leases"] == 9
        given = {lease.lease_id: lease for lease in leases}
        for done, left in ((1, 6), (2, 3), (3, 0)):
            run.cli("results", "publish", "--tag", f"t{done}", "--mature", "--peer", "p0").ok()
            listed = run.cli("leases", "-a", "--json").ok().document["leases"]
            kept = [one["lease_id"] for one in listed if one["state"] == "out"]
            mature = [name for name in kept if given[name].priority == "mature"]
            assert len(mature) == left, "redundancy 3 of the debt that is left"
            taken = [one["reason"] for one in listed if one["state"] == "revoked"]
            assert taken == ["mature_demand_satisfied"] * (9 - left)
            assert len(kept) == left + 3, "who was to explore goes on"
