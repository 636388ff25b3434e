"""What must be true after a round, by the experiments' own records and by the ledgers.

No device was ever promised beyond what it has, by the experiments' own clocks; every acknowledged
submission ended once, with its own exit status unless its shim or namespace was destroyed;
nothing is held any more. The rest is `tests.support.oracle`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from praxist_zmq.client.views import JobInfo
from praxist_zmq.protocol.job_states import TERMINAL_STATES
from tests.support import oracle
from tests.support.campaign import ensure_up
from tests.support.run import Run
from tests.support.wait import wait_until

from .peers import Peer
from .place import DEMANDS, DEVICE_GIB, DEVICES, Place

MEMORY_SHARE = 0.95
"""Of a device's memory: what may be promised."""


@dataclass(frozen=True, slots=True)
class Span:
    """One experiment on one device."""

    began_ns: int
    ended_ns: int
    profile: str
    whose: str


def spans(place: Place) -> dict[str, list[Span]]:
    """By device: who was there from when to when, by the experiments' own records.

    An experiment without a last line, whose namespace lived on, was killed; it counts for the
    instant of its start.
    """
    held: dict[str, list[Span]] = defaultdict(list)
    for run in place.runs:
        name = run.dir.name
        ends = {words[1]: int(words[3]) for words in run.read_lines("end")}
        for _, attempt, _, began, uuids, profile in run.read_lines("start"):
            until = ends.get(attempt) or place.ends.get((name, attempt)) or int(began)
            for uuid in uuids.split(",") if uuids != "-" else []:
                held[uuid].append(Span(int(began), until, profile, f"{name}/{attempt}"))
    return held


def over_promised(held: dict[str, list[Span]]) -> Iterable[str]:
    """Each instant at which a device had more on it than it has."""
    for uuid, rows in held.items():
        rows.sort(key=lambda span: span.began_ns)
        present: list[Span] = []
        for span in rows:
            present = [other for other in present if other.ended_ns > span.began_ns]
            present.append(span)
            demands = [DEMANDS[other.profile] for other in present]
            memory = sum(d.memory_gib for d in demands if not d.alone)
            busy = sum(d.utilization_pct for d in demands if not d.alone)
            alone = any(d.alone for d in demands) and len(demands) > 1
            if alone or memory > MEMORY_SHARE * DEVICE_GIB or busy > 100:
                names = ", ".join(f"{other.whose} ({other.profile})" for other in present)
                yield f"{uuid} was promised twice at {span.began_ns}: {names}"


def wrong_ends(place: Place, peer: Peer, jobs: dict[str, JobInfo]) -> Iterable[str]:
    """Jobs that ended otherwise than their experiments."""
    name = peer.run.dir.name
    lost = {attempt.rpartition(".")[0] for attempt in place.lost.get(name, set())}
    for tag, code in peer.codes.items():
        job = jobs.get(tag)
        if job is None:
            if tag not in peer.terminals:
                yield f"{tag} was acknowledged and is not there"
        elif job.state == "drained_unknown":
            if job.job not in lost:
                yield f"{tag} ({job.job}) is lost; nobody destroyed its shim or namespace"
        elif tag in peer.cancelled:
            if job.state not in ("cancelled", "rejected", "completed", "failed"):
                yield f"{tag} ({job.job}) was cancelled and is {job.state}"
        elif (job.state, job.exit_code) != ("completed" if code == 0 else "failed", code):
            yield f"{tag} ({job.job}) ends with {code} and is {job.state}, {job.exit_code}"


def settle(place: Place, peers: list[Peer]) -> list[str]:
    """After the last calamity everything ends by itself. What did not."""
    faults = []
    for run, peer in zip(place.runs, peers, strict=True):
        ensure_up(run)
        faults += _ended(place, run, peer)
    for peer in peers:
        faults += peer.launches_ended()
    if not faults:
        faults += _nothing_held(place.runs)
    return faults


def _ended(place: Place, run: Run, peer: Peer) -> list[str]:
    """Every job of the run has ended, as its experiment did."""

    def done() -> dict[str, JobInfo]:
        with run.client(timeout_s=30.0) as client:
            found = {job.tag: job for job in client.queue(include_terminal=True, limit=10_000)}
        unfinished = [job for job in found.values() if job.state not in TERMINAL_STATES]
        return {} if unfinished else found

    try:
        jobs = wait_until(done, f"all jobs of {run.dir.name} to end", 120)
    except AssertionError as error:
        told = run.cli("queue"), run.cli("status")
        return [str(error), *(command.out for command in told)]
    return list(wrong_ends(place, peer, jobs))


def _nothing_held(runs: list[Run]) -> list[str]:
    """Each run can have each device alone: nothing is held for what has ended."""
    faults = []
    for run in runs:
        with run.client(timeout_s=30.0) as client:
            jobs = [
                run.submit(client, f"last-{number}", "exit:0", profile="gpu").job.job
                for number in range(DEVICES)
            ]
            for job in jobs:
                try:
                    ended = client.wait(job, 30)
                except Exception as error:  # noqa: BLE001 - told with the state of the run
                    explained = run.cli("explain", job).out
                    faults.append(f"{run.dir.name}: {job} can't start: {error}\n{explained}")
                    continue
                if ended.state != "completed":
                    faults.append(f"{run.dir.name}: {job} is {ended.state}")
    return faults


def judge(place: Place, peers: list[Peer]) -> None:
    """Fails with everything that is wrong. The runs are down afterwards."""
    faults = [fault for peer in peers for fault in peer.finish()]
    faults += settle(place, peers)
    faults += over_promised(spans(place))
    assert not faults, "\n".join(faults)
    for run in place.runs:
        run.down()
        oracle.check_ended(run, alone=False)
