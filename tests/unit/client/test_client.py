"""The client against a real gateway and a fake broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq import Client
from praxist_zmq.client import RefusedError
from praxist_zmq.core.submit import submissions
from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.codec import decode_request, encode
from praxist_zmq.protocol.text import to_bytes
from praxist_zmq.protocol.views import JobView
from tests.support.gateways import Json, Site, own_identity, pong_or, site
from tests.support.wait import wait_until


def job_view(**changes: Any) -> Json:
    values: Json = dict.fromkeys(JobView.model_fields)
    values |= {
        "job": "j-1", "job_id": "0" * 32, "run_id": "run", "generation": 0, "tag": "t",
        "peer": "p", "profile": "default", "work_class": "ordinary", "state": "queued",
        "attempts": 0, "gpu_uuids": [], "submitted_at": "2026-01-01T00:00:00Z", "blockers": [],
        "depends_on": [], "version": 1,
    }  # fmt: skip
    view = JobView.model_validate_json(json.dumps({**values, **changes}))
    return json.loads(encode(view))


def submitted(**changes: Any) -> Json:
    return {"kind": "submitted", "verdict": "queued", "new": True, "profile_source": "default",
            "notes": ["n"], "job": job_view(**changes)}  # fmt: skip


def refused(code: str) -> Json:
    return {"kind": "refusal", "code": code, "detail": "why", "help": ["h"], "job": job_view()}


@pytest.fixture
def place() -> Iterator[Site]:
    with site() as made:
        made.write_endpoint()
        yield made


def test_a_submission_arrives_byte_for_byte(place: Site) -> None:
    broker = place.broker(pong_or(lambda request: submitted()))
    place.start_gateway()
    command = ["prog", "", "-x", "a b\n'\"", "\U0001f600", b"\xff\xfe", os.fsdecode(b"\xfd")]
    with Client(place.run) as client:
        result = client.submit(
            tag="t", peer="p", command=command, environment={"A": b"\xff", "B": ""}, cwd="/tmp"
        )
    assert (result.verdict, result.new, result.job.job, result.notes) == (
        "queued", True, "j-1", ("n",),
    )  # fmt: skip
    request = decode_request(json.dumps(broker.requests[0]).encode()).request
    assert [to_bytes(item) for item in request.command] == [
        b"prog", b"", b"-x", b"a b\n'\"", "\U0001f600".encode(), b"\xff\xfe", b"\xfd",
    ]  # fmt: skip
    assert {k: to_bytes(v) for k, v in request.environment.items()} == {"A": b"\xff", "B": b""}


def test_a_retry_may_name_the_attempt_that_it_follows(place: Site) -> None:
    """Who has lost its answer can ask again without a second run."""
    broker = place.broker(pong_or(lambda request: submitted()))
    place.start_gateway()
    with Client(place.run) as client:
        client.retry("j-1", retry_of="j-1.1", lost=True)
        client.retry("j-1")
    sent = [decode_request(json.dumps(request).encode()).request for request in broker.requests]
    assert [(one.retry_of, one.lost) for one in sent] == [("j-1.1", True), (None, False)]


def test_a_sweep_tells_its_environment_once(place: Site) -> None:
    results = [submitted(job=f"j-{number}") for number in range(1, 1001)]
    broker = place.broker(pong_or(lambda request: {"kind": "submitted_jobs", "results": results}))
    place.start_gateway()
    same = {f"V{number}": "x" * 1000 for number in range(20)}
    other = {"A": b"\xff"}
    jobs = [
        {"tag": f"t{n}", "peer": "p", "command": ["true"], "environment": other if n == 7 else same}
        for n in range(1000)
    ]
    with Client(place.run) as client:
        client.submit_many(jobs)
    (sent,) = [request for request in broker.requests if request["request"]["kind"] != "ping"]
    assert len(json.dumps(sent)) < 500_000
    arrived = list(submissions(decode_request(json.dumps(sent).encode()).request))
    assert [to_bytes(arrived[7].environment[name]) for name in other] == [b"\xff"]
    assert arrived[0].environment == arrived[999].environment == same
    assert arrived[0].environment is arrived[999].environment


def test_a_batch_keeps_its_order_and_its_refusals(place: Site) -> None:
    place.broker(
        pong_or(
            lambda request: {
                "kind": "submitted_jobs",
                "results": [submitted(job="j-1"), refused("unknown_profile")],
            }
        )
    )
    place.start_gateway()
    jobs = [{"tag": tag, "peer": "p", "command": ["true"], "environment": {}} for tag in "ab"]
    with Client(place.run) as client:
        first, second = client.submit_many(jobs)
    assert first.job.job == "j-1"
    assert isinstance(second, RefusedError)
    assert (second.code, second.help, second.job.job) == ("unknown_profile", ["h"], "j-1")


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"command": ["a\0b"]}, "bad_command", "argument 0"),
        ({"command": []}, "bad_command", "no program"),
        ({"command": "prog arg"}, "bad_command", "list"),
        ({"command": ["p", "x" * 140_000]}, "too_large", "argument 1"),
        ({"command": ["p", *["x" * 100_000] * 20]}, "too_large", "command"),
        ({"command": ["p", "\ud800"]}, "bad_command", "argument 1"),
        ({"command": ["p", 3]}, "bad_command", "argument 1"),
        ({"environment": {"A=B": "x"}}, "bad_command", "A=B"),
        ({"environment": {"": "x"}}, "bad_command", "variable"),
        ({"environment": {b"\xff": "x"}}, "bad_command", "UTF-8"),
        ({"environment": {"BIG": "x" * 131_070}}, "too_large", "BIG"),
        ({"eta_seconds": float("nan")}, "malformed_request", "JSON"),
        ({"tag": "\ud800"}, "malformed_request", "surrogates"),
    ],
)
def test_what_can_never_run_is_refused_on_the_spot(
    place: Site, change: Json, code: str, word: str
) -> None:
    arguments: Json = {"tag": "t", "peer": "p", "command": ["p"], "environment": {}, **change}
    with Client(place.run) as client, pytest.raises(PraxistError) as caught:
        client.submit(**arguments)
    assert caught.value.code == code
    assert word in caught.value.detail


def test_a_refusal_is_raised_with_its_job(place: Site) -> None:
    place.broker(pong_or(lambda request: refused("terminal_duplicate")))
    place.start_gateway()
    with Client(place.run) as client, pytest.raises(RefusedError) as caught:
        client.show("j-1")
    assert caught.value.code == "terminal_duplicate"
    assert caught.value.job.tag == caught.value.answer["job"]["tag"] == "t"
    assert caught.value.exit_code == 65


def test_a_refusal_of_a_newer_scheduler_is_told(place: Site) -> None:
    place.broker(pong_or(lambda request: refused("invented_later")))
    place.start_gateway()
    with Client(place.run) as client, pytest.raises(RefusedError) as caught:
        client.show("j-1")
    assert caught.value.code == "protocol_mismatch"
    assert "invented_later" in caught.value.detail


def test_no_scheduler_is_told_at_once(place: Site) -> None:
    for change in ({"supervisor": {**own_identity(), "start_ticks": 1}},):
        place.write_endpoint(**change)
        with Client(place.run) as client, pytest.raises(PraxistError) as caught:
            client.wait("j-1")
        assert caught.value.code == "no_scheduler"
    (place.run / "resource_scheduler" / "endpoint.json").unlink()
    with Client(place.run) as client, pytest.raises(PraxistError) as caught:
        client.wait("j-1")
    assert caught.value.code == "no_scheduler"
    with Client(place.run / "nowhere") as client, pytest.raises(PraxistError) as caught:
        client.status()
    assert caught.value.code == "no_run"


def test_a_scheduler_that_should_be_there_is_waited_for(place: Site) -> None:
    with Client(place.run, timeout_s=0.5) as client, pytest.raises(PraxistError) as caught:
        client.status()
    assert caught.value.code == "scheduler_restarting"
    place.broker(lambda request: None)
    place.start_gateway()
    with Client(place.run, timeout_s=0.5) as client, pytest.raises(PraxistError) as caught:
        client.status()
    assert caught.value.code == "no_answer"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "path_unusable"),
        ("[" * 50_000, "path_unusable"),
        ("[]", "path_unusable"),
        ("x" * 70_000, "path_unusable"),
        ('{"protocol_version": 2}', "protocol_mismatch"),
        ('{"protocol_version": 1, "endpoint": "tcp://1.2.3.4:5"}', "path_unusable"),
        ('{"protocol_version": 1, "endpoint": 5}', "path_unusable"),
    ],
)
def test_a_strange_endpoint_file_is_refused(place: Site, text: str, code: str) -> None:
    (place.run / "resource_scheduler" / "endpoint.json").write_text(text)
    with Client(place.run) as client, pytest.raises(PraxistError) as caught:
        client.status()
    assert caught.value.code == code


@pytest.mark.parametrize("key", ["endpoint", "events_endpoint", "run_dir"])
def test_the_endpoint_of_another_run_is_refused(place: Site, key: str) -> None:
    place.start_gateway()
    other = place.base / "0123456789abcdef" / "front.sock"
    place.write_endpoint(**{key: "/elsewhere" if key == "run_dir" else f"ipc://{other}"})
    with Client(place.run) as client, pytest.raises(PraxistError) as caught:
        client.status()
    assert caught.value.code == "unsafe_path"


def test_a_link_or_a_pipe_for_an_endpoint_file_is_refused(place: Site) -> None:
    path = place.run / "resource_scheduler" / "endpoint.json"
    path.rename(place.run / "elsewhere.json")
    path.symlink_to(place.run / "elsewhere.json")
    with Client(place.run) as client, pytest.raises(PraxistError) as caught:
        client.status()
    assert caught.value.code == "unsafe_path"
    path.unlink()
    os.mkfifo(path)
    with Client(place.run) as client, pytest.raises(PraxistError) as caught:
        client.status()
    assert caught.value.code == "unsafe_path"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a socket to another user")
def test_a_squatter_is_not_talked_to(place: Site) -> None:
    place.start_gateway()
    os.chown(place.front, 12345, 12345)
    with Client(place.run) as client, pytest.raises(PraxistError) as caught:
        client.status()
    assert caught.value.code == "unsafe_path"


def test_a_wait_ends_with_the_job_or_with_its_time(place: Site) -> None:
    ended = threading.Event()

    def answer(request: Json) -> Json | None:
        if request["kind"] == "show_job":
            return {"kind": "job", "job": job_view()}
        if not ended.is_set():
            return None
        return {"kind": "job", "job": job_view(state="completed", exit_code=3, version=9)}

    place.broker(pong_or(answer))
    place.start_gateway()
    with Client(place.run) as client:
        assert client.show("j-1").state == "queued"
        with pytest.raises(PraxistError) as caught:
            client.wait("j-1", timeout_s=0.5)
        assert caught.value.code == "wait_timeout"
        ended.set()
        job = client.wait("j-1", timeout_s=60)
        assert (job.terminal, job.exit_code) == (True, 3)


def test_a_wait_outlives_a_scheduler_that_is_away(place: Site) -> None:
    def answer(request: Json) -> Json | None:
        return {"kind": "job", "job": job_view()} if request["kind"] == "show_job" else None

    broker = place.broker(pong_or(answer))
    place.start_gateway()

    def restart() -> None:
        wait_until(lambda: len(broker.requests) >= 2, "watch")
        (place.run / "resource_scheduler" / "endpoint.json").unlink()
        broker.close()
        assert place.end_gateway() == 0
        place.front = place.sockets / "front-2.sock"
        place.broker(
            pong_or(lambda request: {"kind": "job", "job": job_view(state="failed", exit_code=1)})
        )
        place.start_gateway()
        place.write_endpoint()

    with Client(place.run) as client:
        client.show("j-1")
        thread = threading.Thread(target=restart)
        thread.start()
        try:
            assert client.wait("j-1").exit_code == 1
        finally:
            thread.join()


def test_a_wait_gives_up_when_the_scheduler_stays_away(place: Site) -> None:
    place.broker(pong_or(lambda request: {"kind": "job", "job": job_view()}))
    place.start_gateway()
    with Client(place.run, reconnect_s=0.5) as client:
        client.show("j-1")
        (place.run / "resource_scheduler" / "endpoint.json").unlink()
        place.end_gateway()
        with pytest.raises(PraxistError) as caught:
            client.wait("j-1")
    assert caught.value.code == "scheduler_restarting"


def test_events_are_read_in_pages_and_followed_without_loss(place: Site) -> None:
    events = [
        {"sequence": n, "at": "x", "type": "job_queued", "job": "j-1", "attempt": None, "text": ""}
        for n in range(1, 701)
    ]

    def answer(request: Json) -> Json:
        after, limit = request["after_sequence"], request["limit"]
        page = [event for event in events if event["sequence"] > after][:limit]
        return {"kind": "events", "events": page, "epoch": 1, "last_sequence": len(events),
                "first_sequence": 1}  # fmt: skip

    broker = place.broker(pong_or(answer))
    place.start_gateway()
    with Client(place.run) as client:
        assert [e.sequence for e in client.events(after_sequence=5)] == list(range(6, 701))
        stream = client.events(after_sequence=699, follow=True)
        assert next(stream).sequence == 700

        def more() -> None:
            for n in (701, 702):
                events.append({**events[0], "sequence": n})
            broker.publish(b"events", b"{}")

        timer = threading.Timer(0.5, more)
        timer.start()
        assert [next(stream).sequence for _ in range(2)] == [701, 702]
        timer.join()
        stream.close()


def test_a_client_is_for_one_thread(place: Site) -> None:
    caught: list[PraxistError] = []
    with Client(place.run) as client:

        def use() -> None:
            try:
                client.status()
            except PraxistError as error:
                caught.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert caught[0].code == "usage"


def test_the_client_imports_no_models() -> None:
    code = (
        "import praxist_zmq, sys; praxist_zmq.Client;"
        "print([m for m in ('pydantic', 'rich', 'click', 'yaml', 'psutil') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize(("name", "told"), [("gone", "not exist"), ("file", "is no directory")])
def test_a_directory_that_is_not_there_is_refused_before_anything_is_sent(
    tmp_path: Path, name: str, told: str
) -> None:
    (tmp_path / "file").touch()
    client = Client(tmp_path)
    for send in (
        lambda: client.submit(command=["true"], peer="p", tag="t", cwd=tmp_path / name),
        lambda: client.retry("j-1", cwd=tmp_path / name),
    ):
        with pytest.raises(PraxistError) as refused:
            send()
        assert (refused.value.code, told in refused.value.detail) == ("bad_directory", True)
