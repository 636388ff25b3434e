"""What is accepted can be written, and what was written can be read again."""

from __future__ import annotations

from typing import Any

from praxist_zmq.cli.verdict import OTHER_COMMAND, submitted_lines
from praxist_zmq.core.decision import Stamp, Undecodable
from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger.frame import encode_batch
from praxist_zmq.protocol import limits
from praxist_zmq.protocol.codec import decode_event, decode_order, encode_request
from praxist_zmq.protocol.orders import SpawnAttempt
from praxist_zmq.protocol.replies import Refusal, Submitted
from praxist_zmq.protocol.requests import (
    CancelJobs,
    FreezeGeneration,
    OpenGeneration,
    SubmitJob,
    SubmitJobs,
)
from tests.support.broker_world import World

SECRET = "s3cr3t!x"


def submission(command: tuple[str, ...], environment: dict[str, Any]) -> SubmitJob:
    return SubmitJob(peer="p", tag="t", command=command, cwd="/", environment=environment)


def test_what_is_no_request_is_answered_in_its_turn_and_counted() -> None:
    broker = World().broker
    error = PraxistError("too_large", "9 bytes; the limit is 8")
    decision = broker.decide(Undecodable(b"a", "request-1", error), Stamp(0, 0))
    assert not decision.events
    (send,) = decision.outbox
    assert (send.to, send.address, send.request_id) == ("client", b"a", "request-1")
    assert (send.message.code, send.message.detail) == ("too_large", error.detail)
    assert send.message.help
    assert broker.soft.counters["refused_too_large"] == 1


def test_a_secret_repeated_without_end_is_refused_before_anything_is_recorded() -> None:
    world = World()
    before = len(world.disk)
    command = ("true", *([SECRET * 16_000] * 14))
    answer = world.ask(submission(command, {"A" * 64 + "_TOKEN": SECRET}))
    assert isinstance(answer, Refusal)
    assert answer.code == "too_large"
    assert len(world.disk) == before


def test_a_record_that_is_larger_than_its_request_is_read_back() -> None:
    world = World()
    # A control character takes six bytes of JSON, and a secret's name more than its value.
    arguments = ["\x01" * 118_000] * 5 + [SECRET * 14_000] * 2
    request = submission(("true", *arguments), {"GREAT_TOKEN": SECRET})
    assert len(encode_request("request-1", request)) <= limits.FRAME_BYTES_MAX
    assert isinstance(world.ask(request), Submitted)
    encode_batch(world.disk, 1, 0)
    assert any(len(event) > limits.FRAME_BYTES_MAX for event in world.disk)
    assert [decode_event(event).kind for event in world.disk].count("job_queued") == 1


def test_an_order_may_be_larger_than_a_request() -> None:
    order = SpawnAttempt(
        attempt="j-1.1", command=("x" * limits.FRAME_BYTES_MAX,), cwd="/", environment={}
    )
    assert decode_order(order.model_dump_json().encode()) == order


def test_an_environment_is_shared_within_a_batch_alone() -> None:
    world = World()
    alone = submission(("run",), {}).model_copy(update={"shared_environment": 0})
    assert world.ask(alone).code == "malformed_request"
    same = {"A": "1"}
    jobs = tuple(alone.model_copy(update={"tag": tag}) for tag in "ab")
    none = alone.model_copy(update={"tag": "c", "shared_environment": 1})
    answers = world.ask(SubmitJobs(jobs=(*jobs, none), environments=(same,))).results
    assert answers[2].code == "malformed_request"
    recorded = {job.environment_id for job in world.broker.state.jobs.values()}
    assert [world.broker.state.environments[each].variables for each in recorded] == [same]


def test_a_late_copy_of_a_retry_that_joined_retries_nothing() -> None:
    world = World()
    world.ask(submission(("run",), {}))
    world.settle()
    again = submission(("run",), {}).model_copy(update={"retry_terminal": True})
    first = world.ask(again, "retry-0001")
    assert (first.verdict, first.new) == ("joined", False)
    world.finish("j-1.1", exit_code=1)
    world.settle()
    copy = world.ask(again, "retry-0001")
    assert (copy.verdict, copy.new, copy.job.state) == ("done", False, "failed")
    assert world.ask(again, "retry-0002").verdict == "retrying"


def test_a_late_copy_of_a_submission_that_joined_queues_nothing() -> None:
    world = World(limit=1)
    world.ask(submission(("run",), {}))
    joined = world.ask(submission(("run",), {}), "join-0001")
    assert (joined.verdict, joined.job.job) == ("joined", "j-1")
    world.ask(CancelJobs(jobs=("j-1",), admission_timeout=True))  # frees its tag
    copy = world.ask(submission(("run",), {}), "join-0001")
    assert isinstance(copy, Refusal)
    assert copy.code == "terminal_duplicate"
    assert list(world.broker.state.jobs) == ["j-1"]
    assert world.ask(submission(("run",), {}), "join-0002").job.job == "j-2"


def test_a_dry_run_of_a_retry_tells_of_the_job_that_it_would_retry() -> None:
    world = World()
    world.ask(submission(("run",), {}))
    world.settle()
    world.finish("j-1.1", exit_code=1)
    world.settle()
    again = {"retry_terminal": True, "dry_run": True}
    told = world.ask(submission(("run",), {}).model_copy(update=again))
    assert (told.verdict, told.new, told.job.job, told.notes) == (
        "retrying",
        False,
        "j-1",
        ("dry run",),
    )
    assert world.broker.state.jobs["j-1"].state == "failed"
    fresh = submission(("run",), {}).model_copy(update={"tag": "new", "dry_run": True})
    assert world.ask(fresh).verdict == "would_queue"
    assert list(world.broker.state.jobs) == ["j-1"]


def test_a_run_whose_generations_are_all_frozen_is_opened_by_a_generation() -> None:
    world = World()
    world.ask(FreezeGeneration())
    refused = world.ask(submission(("run",), {}))
    assert refused.code == "admission_closed"
    assert "generation open" in refused.help[0]
    world.ask(OpenGeneration(generation=1))
    assert isinstance(world.ask(submission(("run",), {})), Submitted)


def test_the_result_of_another_command_is_told_as_such_and_first() -> None:
    world = World()
    submission = SubmitJob(peer="p", tag="t", command=("true",), cwd="/", environment={})
    world.ask(submission)
    world.settle()
    world.finish_one()
    world.settle()
    assert world.ask(submission).notes == ()
    other = world.ask(submission.model_copy(update={"command": ("sh", "-c", "exit 7")}))
    assert other.verdict == "done"
    assert other.notes[0].startswith(OTHER_COMMAND)
    (first, *_) = submitted_lines(other.model_dump(mode="json"), 1.7e9, waits=True)
    assert "not run: another command's result" in first


def test_a_result_or_job_of_another_command_is_an_error_where_that_is_asked_for() -> None:
    world = World()
    first = SubmitJob(
        peer="p", tag="t", command=("true",), cwd="/", environment={}, same_command=True
    )
    other = first.model_copy(update={"command": ("sh", "-c", "exit 7")})
    assert isinstance(world.ask(first), Submitted)
    for dry in (True, False):
        queued = world.ask(other.model_copy(update={"dry_run": dry}))
        assert isinstance(queued, Refusal)
        assert queued.code == "other_command"
    world.settle()
    world.finish_one()
    world.settle()
    assert world.ask(other).code == "other_command"
    assert world.ask(first).verdict == "done"
    assert world.ask(other.model_copy(update={"same_command": False})).verdict == "done"
    assert len(world.broker.state.jobs) == 1
