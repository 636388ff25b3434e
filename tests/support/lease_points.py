"""Exact crash points on the way of a lease: asked for, planned, claimed, granted, told, consumed.

One peer for each point: it waits, answers what it gets with one experiment, and waits for its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from praxist_zmq.client import LeaseInfo
from praxist_zmq.errors import PraxistError
from praxist_zmq.host.paths import HostPaths
from praxist_zmq.protocol import events as ev
from praxist_zmq.service.ledger_history import history_faults

from . import oracle
from .campaign import ensure_up
from .points import Point
from .registry_process import Asker
from .run import Run
from .strace import injected
from .wait import wait_until

T = TypeVar("T")

QUICK_SUPPLY = ("supply_idle_samples: 1",)
"""In the contract of a run for these points: an offer needs one sample."""
LEASE_POINTS = (
    (Point("broker", "fdatasync", 3, 6), (1, 2, 4)),
    (Point("broker", "sendto,sendmsg", 2, 14, follow=True), (7, 12)),
    (Point("gateway", "sendto,sendmsg", 2, 12, follow=True), (4, 9)),
    (Point("registry", "fdatasync", 1, 4), (2,)),
    (Point("registry", "sendto,sendmsg", 1, 5, follow=True), (2,)),
    (Point("supply", "sendto,sendmsg", 1, 1, follow=True), (1,)),
)
"""Each with what the short form takes. The first sync of the broker is that of the grant, the
second that of the submission. Sends are counted from the moment the tracer is there: keep-alives
move them a little."""


def play_lease_points(run: Run, armed: Iterable[tuple[Point, int]]) -> int:
    """A lease and its job for each occurrence while that one is armed; then all must be right.

    Gives the number of occurrences that were met.
    """
    returned: dict[str, list[LeaseInfo]] = {}
    hits = 0
    for point, when in armed:
        ensure_up(run)
        name = f"{point.name}-{when}"
        pid = run.processes()[point.process]
        with injected(pid, point.calls, "signal=SIGKILL", when, follow=point.follow):
            lease = lease_of(run, name)
            returned[name] = [lease]
            answer(run, name, lease)
            hits += run.processes().get(point.process) != pid
        ensure_up(run)
        if not _consumed(run, lease):
            returned[name].append(_served_again(run, name))
    no_slot_is_lost(run)
    run.down()
    _nothing_is_held(run)
    events = oracle.check_ended(run)
    faults = [fault for name in returned for fault in _judge(name, returned[name], events)]
    assert not faults, "\n".join(faults)
    return hits


def lease_of(run: Run, peer: str) -> LeaseInfo:
    """What `lease wait` returns, over restarts."""
    return _persisting(run, lambda: _wait_for_lease(run, peer), f"{peer} gets a lease")


def _wait_for_lease(run: Run, peer: str) -> LeaseInfo:
    with run.client(timeout_s=3.0) as client:
        return client.lease_wait(peer, 40)


def answer(run: Run, tag: str, lease: LeaseInfo) -> None:
    """The experiment of the lease's peer, sent again until it is acknowledged, to its end."""
    work_class = "mature" if lease.priority == "mature" else "ordinary"

    def send() -> None:
        with run.client(timeout_s=3.0) as client:
            run.submit(
                client, tag, "exit:3", peer=lease.peer, lease_id=lease.lease_id,
                work_class=work_class,
            )  # fmt: skip

    def wait() -> int | None:
        with run.client(timeout_s=10.0) as client:
            return client.wait(f"tag:{tag}", 30).exit_code

    _persisting(run, send, f"{tag} is taken")
    assert _persisting(run, wait, f"the job of {tag} ends") == 3


def _persisting(run: Run, act: Callable[[], T], what: str) -> T:
    """As a peer that tries again: whatever is refused for now is asked again."""
    for _ in range(30):
        try:
            return act()
        except PraxistError as error:
            if not (error.row.retryable or error.code == "no_scheduler"):
                raise
            ensure_up(run)
    raise AssertionError(f"never: {what}")


def _listed(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.cli("leases", "-a", "--json").ok().document["leases"]
    return found


def _consumed(run: Run, lease: LeaseInfo) -> bool:
    (mine,) = [found for found in _listed(run) if found["lease_id"] == lease.lease_id]
    assert mine["state"] != "out", "its peer has answered"
    return bool(mine["state"] == "consumed")


def _served_again(run: Run, peer: str) -> LeaseInfo:
    """A broker was lost with the offer: the peer waits again, gets another, and declines it."""
    again = lease_of(run, peer)
    with run.client() as client:
        assert client.lease_decline(peer).lease_id == again.lease_id
    return again


def no_slot_is_lost(run: Run) -> None:
    """As many new peers as there are slots are woken, all at once."""
    slots = run.slots
    peers = [f"last-{number}" for number in range(slots)]
    with run.client() as client:
        for peer in peers:
            client.lease_idle(peer)
        found = {client.lease_wait(peer, 40).lease_id for peer in peers}
        held = {row.lease_id for row in host_view(run).leases}
        assert held == found, "the host holds room for these and for no other"
        for peer in peers:
            client.lease_withdraw(peer)
    wait_until(lambda: not host_view(run).leases, "their room to be given back")


def _nothing_is_held(run: Run) -> None:
    view = host_view(run)
    assert (view.leases, view.allocations) == ((), ())
    assert history_faults(HostPaths(run.host_dir).ledger) == []


def host_view(run: Run) -> Any:
    """What the registry of the run's host tells."""
    asker = Asker(HostPaths(run.host_dir))
    try:
        return asker.view()
    finally:
        asker.close()


def _judge(peer: str, returned: list[LeaseInfo], events: list[Any]) -> Iterable[str]:
    """What was returned had been granted; what was consumed was consumed by the peer's own job."""
    granted = [e.lease_id for e in events if isinstance(e, ev.LeaseGranted) and e.peer == peer]
    ends = {e.lease_id: e for e in events if isinstance(e, ev.LeaseEnded)}
    names = [lease.lease_id for lease in returned]
    if len(set(names)) != len(names):
        yield f"{peer} was given {names}"
    for name in names:
        if name not in granted:
            yield f"{peer} was told of {name}, which the ledger does not know"
    jobs = [e.job for e in events if isinstance(e, ev.JobQueued) and e.tag == peer]
    used = [ends[name].job for name in granted if ends[name].outcome == "consumed"]
    if len(jobs) != 1 or used not in ([], jobs):
        yield f"{peer} has the jobs {jobs}; leases were consumed by {used}"
