"""`generation`, `freeze`, `results`, and what `launch` and `status` say of generations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from praxist_zmq.cli.documents import GENERATION_KEYS, RESULT_KEYS
from praxist_zmq.cli.generation import freeze_question
from praxist_zmq.protocol.replies import GenerationReply, ResultsReply
from praxist_zmq.protocol.views import GenerationView, MaturityView, ResultView

from .conftest import Outcome
from .fake_scheduler import FakeScheduler, refusal, submitted, view
from .test_reading import status_reply

Call = Callable[..., Outcome]


def maturity(**changes: Any) -> MaturityView:
    figures: dict[str, Any] = {
        "counted_in": "peers", "target": 3, "completed": 1, "debt": 2, "target_inflight": 6,
        "inflight_jobs": 2, "priority_leases": 0, "needed_inflight": 4, **changes,
    }  # fmt: skip
    return MaturityView(**figures)


def generation_reply(
    rejected: tuple[str, ...] = (), draining: tuple[str, ...] = (), **changes: Any
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "generation": 3, "state": "open", "reason": None,
        "opened_at": "2026-11-29T11:35:00.000Z", "deadline": "2026-11-29T14:35:00.000Z",
        "cohort_size": 12, "mature_quorum": 3, "publish_completed": False,
        "jobs": {"queued": 5, "running": 2, "completed": 0}, "attempts": 7, "results": 4,
        "maturity": maturity(), "advice": {"p1": "direct_mature", "p2": "explore"}, **changes,
    }  # fmt: skip
    reply = GenerationReply(
        generation=GenerationView(**facts), rejected=rejected, draining=draining
    )
    return reply.model_dump()


@pytest.fixture
def asked(scheduler: FakeScheduler) -> FakeScheduler:
    """Answers every request about a generation with the same one."""
    closed = generation_reply(("j-2", "j-3"), ("j-1",), state="frozen", reason="it was closed")
    scheduler.answers = {
        "open_generation": generation_reply(),
        "assess_generation": generation_reply(("j-2",), state="assessment", reason="half time"),
        "freeze_generation": closed,
        "show_generation": generation_reply(),
    }
    return scheduler


def test_open_asks_for_all_that_was_typed(asked: FakeScheduler, call: Call) -> None:
    outcome = call(
        "generation", "open", "3", "--cohort-size", "12", "--deadline", "2h", "--mature-quorum",
        "3", "--peers", "p1, p2", "--publish-completed", "--rerun",
    )  # fmt: skip
    assert outcome.exit_code == 0
    assert asked.requests[-1] == {
        "kind": "open_generation", "generation": 3, "cohort_size": 12, "deadline_seconds": 7200.0,
        "mature_quorum": 3, "peers": ["p1", "p2"], "publish_completed": True, "rerun": True,
    }  # fmt: skip
    assert outcome.out.splitlines() == [
        "open     generation 3 is open",
        "takes    deadline 2026-11-29 14:35:00 (2h00m left), 12 peers, "
        "3 distinct mature peers end assessment",
    ]


def test_close_says_what_it_rejected_and_what_goes_on(asked: FakeScheduler, call: Call) -> None:
    outcome = call("generation", "close", "3", "--yes")
    assert outcome.exit_code == 0
    assert asked.requests == [
        {
            "kind": "freeze_generation", "generation": 3, "reason": "it was closed",
            "signal": True,
        }
    ]  # fmt: skip
    assert outcome.out.splitlines() == [
        "close    generation 3 is frozen: it was closed",
        "queue    2 jobs rejected  j-2 j-3",
        "running  1 job goes on to its end  j-1",
        "signal   gen_3/CLOSING_SIGNAL says so",
    ]
    asked.requests.clear()
    insisted = call("generation", "close", "3")
    assert (insisted.exit_code, asked.requests) == (2, []), "a script must say --yes"
    assert "say --yes" in insisted.err


def test_assess(asked: FakeScheduler, call: Call) -> None:
    outcome = call("generation", "assess", "3", "--reason", "half time")
    assert asked.requests[-1]["reason"] == "half time"
    assert outcome.out.splitlines() == [
        "assess   generation 3 is in assessment: half time",
        "takes    mature work that can end in time, nothing else",
        "queue    1 job rejected  j-2",
    ]


def test_assess_says_that_nothing_is_left_to_assess(asked: FakeScheduler, call: Call) -> None:
    asked.answers["assess_generation"] = generation_reply(
        ("j-2", "j-3"), state="frozen", reason="no debt of mature evidence is left"
    )
    assert call("generation", "assess", "3").out.splitlines() == [
        "assess   generation 3 is frozen: no debt of mature evidence is left",
        "takes    nothing more: there is nothing left to assess",
        "queue    2 jobs rejected  j-2 j-3",
        "running  nothing",
    ]


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        ("closed", "it was closed", "close    generation 3 is closed"),
        ("closed", "the quorum is met", "close    generation 3 is closed: the quorum is met"),
        ("frozen", "it was frozen", "close    generation 3 is frozen"),
    ],
)
def test_a_reason_that_only_tells_the_state_is_not_told_twice(
    asked: FakeScheduler, call: Call, state: str, reason: str, told: str
) -> None:
    asked.answers["freeze_generation"] = generation_reply(state=state, reason=reason)
    assert call("generation", "close", "3", "--yes").out.splitlines()[0] == told


def test_show(asked: FakeScheduler, call: Call) -> None:
    outcome = call("generation", "show")
    assert asked.requests[-1] == {"kind": "show_generation", "generation": None}
    assert outcome.out.splitlines() == [
        "* generation 3 is open   opened 2026-11-29 11:35:00",
        "   Terms      deadline 2026-11-29 14:35:00 (2h00m left), 12 peers, "
        "3 distinct mature peers end assessment",
        "   Jobs       5 queued  2 running",
        "   Attempts   7",
        "   Evidence   4 results; mature 1 of 3 peers, 2 on their way, 4 wanted",
        "   Mature     p1",
        "   Explore    p2",
    ]
    document = call("generation", "show", "3", "--json").document
    assert document["kind"] == "generation"
    assert set(document) == {
        "format_version", "kind", *GENERATION_KEYS, "rejected", "draining",
    }  # fmt: skip
    assert call("generation", "show", "-q").out == "3\n"


def test_an_unknown_generation_ends_with_69(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["show_generation"] = refusal(
        "generation_unknown", "generation 9 was never opened", ["`generation show` tells"]
    )
    outcome = call("generation", "show", "9")
    assert outcome.exit_code == 69
    assert outcome.err.startswith("rejected  generation 9 was never opened")


@pytest.mark.parametrize(
    "words", [("open",), ("open", "-1"), ("close", "x"), ("assess",), ("open", "3", "--rerun=1")]
)
def test_wrong_usage(asked: FakeScheduler, call: Call, words: tuple[str, ...]) -> None:
    assert call("generation", *words).exit_code == 2
    assert asked.requests == []


@pytest.mark.parametrize(
    ("words", "number", "first"),
    [
        (
            ("--generation", "7", "--yes"), 7,
            "fence    generation 7: nothing new is accepted or started",
        ),
        (("--yes",), 3, "fence    generation 3: nothing new is accepted or started"),
        (
            ("--all", "--yes"), None,
            "fence    all generations: nothing new is accepted or started until a generation is "
            "opened",
        ),
    ],
)  # fmt: skip
def test_freeze(
    asked: FakeScheduler, call: Call, words: tuple[str, ...], number: int | None, first: str
) -> None:
    outcome = call("freeze", *words)
    assert outcome.exit_code == 0
    request = asked.requests[-1]
    assert (request["generation"], request.get("signal", False)) == (number, False)
    assert outcome.out.splitlines() == [
        first, "queue    2 jobs rejected  j-2 j-3", "running  1 job goes on to its end  j-1",
    ]  # fmt: skip
    document = call("freeze", *words, "--json").document
    assert (document["all"], document["rejected"]) == (number is None, ["j-2", "j-3"])


def test_freeze_of_one_and_all_is_wrong_usage(asked: FakeScheduler, call: Call) -> None:
    assert call("freeze", "--all", "--generation", "1").exit_code == 2


def test_a_person_is_asked_about_what_happens() -> None:
    assert freeze_question(3) == (
        "freeze generation 3 and reject all that waits in it "
        "(`generation open 3 --rerun` would free its tags)?"
    )
    assert freeze_question(None).startswith("freeze all generations and the run's admission")


def result(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "generation": 3, "tag": "mixup/seed0", "peer": "p1", "mature": True, "source": "peer",
        "published_at": "2026-11-29T12:00:00.000Z", **changes,
    }  # fmt: skip
    return ResultView(**facts).model_dump()


def test_publish(scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler.answers["publish_result"] = {
        "kind": "result_noted", "new": True, "result": result(), "notes": ["look"],
    }  # fmt: skip
    monkeypatch.setenv("PRAXIST_PEER_ID", "p7")
    outcome = call("results", "publish", "--tag", "mixup/seed0", "--mature")
    assert outcome.out == "published  mixup/seed0  mature, of p1, in generation 3\n"
    assert outcome.err == "  note  look\n"
    assert scheduler.requests[-1]["peer"] == "p7"
    document = call("results", "publish", "--tag", "t", "--peer", "p1", "--json").document
    assert scheduler.requests[-1]["peer"] == "p1"
    assert set(document) == {"format_version", "kind", "new", "notes", *RESULT_KEYS}
    assert document["kind"] == "result"


def test_list(scheduler: FakeScheduler, call: Call) -> None:
    results = (ResultView(**result()), ResultView(**result(tag="b", peer=None, mature=False)))
    reply = ResultsReply(results=results, total=2, maturity=maturity())
    scheduler.answers["list_results"] = reply.model_dump()
    outcome = call("results", "list", "--generation", "3")
    assert [line.split("\t")[:3] for line in outcome.out.splitlines()] == [
        ["TAG", "PEER", "MATURE"], ["mixup/seed0", "p1", "yes"], ["b", "-", "no"],
    ]  # fmt: skip
    assert outcome.err == "2 results; mature 1 of 3 peers, 2 on their way, 4 wanted\n"
    document = call("results", "list", "--json").document
    assert [one["tag"] for one in document["results"]] == ["mixup/seed0", "b"]
    assert document["maturity"]["needed_inflight"] == 4
    assert document["total"] == 2
    scheduler.answers["list_results"] = reply.model_copy(update={"total": 7}).model_dump()
    outcome = call("results", "list")
    assert outcome.err.splitlines()[1] == "the newest 2 are listed"


@pytest.mark.parametrize("verb", ["launch", "wait"])
def test_a_waiting_client_hears_of_the_close_and_ends_with_69(
    scheduler: FakeScheduler, call: Call, verb: str
) -> None:
    gone = view(
        state="rejected", reject_code="generation_closing", version=12,
        failure_signature="generation 3 is frozen: it was closed",
    )  # fmt: skip
    scheduler.tell(view(), gone)
    scheduler.answers["submit_job"] = submitted(view())
    words = ("wait", "j-1")
    if verb == "launch":
        words = ("launch", "--peer", "p1", "--tag", "t", "--", "true")  # type: ignore[assignment]
    outcome = call(*words)
    assert outcome.exit_code == 69
    said = outcome.out + outcome.err
    assert (
        "rejected j-1: this generation takes no more work: generation 3 is frozen: it was closed"
    ) in said


def test_a_submission_to_a_closing_generation_is_rejected(
    scheduler: FakeScheduler, call: Call
) -> None:
    scheduler.answers["submit_job"] = refusal(
        "generation_closing", "generation 3 is frozen: it was closed", ["send it in the next"]
    )
    outcome = call("submit", "--peer", "p1", "--tag", "t", "--", "true")
    assert outcome.exit_code == 69
    assert outcome.err.startswith("rejected  t  this generation takes no more work: generation 3")


def test_status_tells_the_deadline_and_the_debt(scheduler: FakeScheduler, call: Call) -> None:
    reply = status_reply()
    reply["generation"]["deadline"] = "2026-11-29T14:45:00.000Z"
    reply["resource_supply"]["maturity"] = {"3": maturity().model_dump()}
    scheduler.answers["get_status"] = reply
    scheduler.answers["get_devices"] = {"kind": "devices", "devices": [], "simulated": True}
    scheduler.answers["list_jobs"] = {
        "kind": "jobs", "jobs": [], "total": 0, "concurrency_limit": 1, "counts": {},
    }  # fmt: skip
    out = call("status").out
    assert "generation 3 open, deadline 2026-11-29 14:45:00 (2h10m left)" in out
    assert "   Evidence   mature 1 of 3 peers, 2 on their way, 4 wanted" in out
