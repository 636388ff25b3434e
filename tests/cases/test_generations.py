"""What a generation takes by its phase, its deadline and its work; and that fences hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from praxist_zmq import Client
from praxist_zmq.client.views import RefusedError
from praxist_zmq.protocol import events as ev
from tests.cases.conftest import MakeSharedRun
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun


@pytest.fixture(scope="module")
def run(make_shared_run: MakeSharedRun) -> Run:
    made = make_shared_run(slots=3)
    made.up()
    return made


@pytest.fixture
def client(run: Run) -> Iterator[Client]:
    with run.client() as client:
        yield client


def code(run: Run, client: Client, tag: str, **options: object) -> str:
    """`taken`, or the code with which a submission is refused; nothing is changed."""
    try:
        client.submit(tag=tag, peer="p", command=["true"], dry_run=True, **options)  # type: ignore
    except RefusedError as refused:
        return refused.code
    return "taken"


def test_work_that_cannot_end_in_time_is_not_taken(run: Run, client: Client) -> None:
    """S79, S80, S170: by the clock before assessment, by the chance during it."""
    opening = ("--cohort-size", "4", "--mature-quorum", "4", "--deadline", "330s")
    run.cli("generation", "open", "1", *opening).ok()
    assert code(run, client, "long", eta_seconds=600) == "insufficient_generation_time"
    assert code(run, client, "short", eta_seconds=200) == "taken"
    assert code(run, client, "unknown") == "taken"
    run.cli("generation", "assess", "1").ok()
    assert code(run, client, "s", work_class="scout", eta_seconds=1) == "generation_assessment"
    assert code(run, client, "o", eta_seconds=1) == "generation_assessment"
    mature = {"work_class": "mature"}
    assert code(run, client, "m", **mature) == "insufficient_generation_time"
    assert code(run, client, "m600", eta_seconds=600, **mature) == "insufficient_generation_time"
    assert code(run, client, "m500", eta_seconds=500, **mature) == "taken", "chance 0.25 and more"
    late = run.cli(
        *run.launch_words("late", "exit:0", options=["--work-class", "mature", "--eta", "1h"])
    )
    assert (late.status, late.err.split()[0]) == (69, "rejected")


def test_ordinary_work_that_ends_with_75_is_not_tried_again_in_assessment(
    run: Run, client: Client
) -> None:
    """S69, S121: what runs goes on, and its end is its end."""
    opening = ("--cohort-size", "4", "--mature-quorum", "4")
    run.cli("generation", "open", "2", *opening).ok()
    jobs = [
        run.submit(client, tag, f"wait:{run.gate('assessed')}", "exit:75", work_class=tag).job.job
        for tag in ("ordinary", "scout")
    ]
    run.until_started(*(f"{job}.1" for job in jobs))
    run.cli("generation", "assess", "2").ok()
    run.open_gate("assessed")
    for job in jobs:
        ended = client.wait(job, 60)
        assert (ended.state, ended.exit_code, ended.attempts) == ("failed", 75, 1)


def test_a_generation_without_a_deadline_takes_work_of_a_day(run: Run, client: Client) -> None:
    """U1: null in the views too."""
    run.cli("generation", "open", "3").ok()
    job = run.submit(client, "day", "exit:0", eta_seconds=86_400).job.job
    assert client.wait(job, 60).state == "completed"
    assert client.status()["generation"]["deadline"] is None
    assert run.cli("generation", "show", "3", "--json").ok().document["deadline"] is None


def test_a_peer_s_name_places_its_work_in_its_generation(run: Run, client: Client) -> None:
    """B36."""
    run.cli("generation", "open", "4").ok()
    for peer, generation in (("gen3_peer1", 3), ("gen77_peer1", 4), ("anybody", 4)):
        job = run.submit(client, f"of-{peer}", "exit:0", peer=peer).job
        assert job.generation == generation
        client.wait(job.job, 60)


def test_fences_and_withdrawals_hold_over_a_restart(make_run: MakeRun) -> None:
    """S31, U2: nothing that was refused or withdrawn runs, and new work is refused."""
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        held = run.submit(client, "held", f"wait:{run.gate('held')}", "exit:5").job.job
        run.until_started(f"{held}.1")
        refused = [run.submit(client, f"q{n}", "exit:0").job.job for n in range(2)]
        (gone,) = client.cancel(refused[0], admission_timeout=True)
        assert gone.outcome == "cancelled"
        run.cli("freeze", "--generation", "0", "--yes").ok()
        run.cli("generation", "open", "1", "--cohort-size", "4", "--mature-quorum", "4").ok()
        refused.append(run.submit(client, "ordinary", "exit:0").job.job)
        mature = run.submit(client, "mature", "exit:0", work_class="mature").job.job
        run.cli("generation", "assess", "1").ok()
    run.kill_all()
    run.up()
    with run.client() as client:
        assert code(run, client, "more", generation=0) == "generation_closing"
        assert code(run, client, "more", generation=1) == "generation_assessment"
        assert [client.show(job).reject_code for job in refused] == [
            "admission_timeout", "generation_closing", "generation_assessment",
        ]  # fmt: skip
        run.open_gate("held")
        assert client.wait(held, 60).exit_code == 5
        assert client.wait(mature, 60).state == "completed"
    run.down()
    events = oracle.check_ended(run)
    ran = {event.attempt for event in events if isinstance(event, ev.AttemptAllocated)}
    assert ran == {f"{held}.1", f"{mature}.1"}
