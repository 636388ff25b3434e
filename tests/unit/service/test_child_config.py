"""The child's side of the protocol with its supervisor."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.spawn import CONFIG_BYTES_MAX
from praxist_zmq.service.child_config import (
    ChildConfig,
    read_child_config,
    report_fatal,
    report_progress,
    report_ready,
    supervisor_gone,
)

Pipe = tuple[int, int]


def close(*descriptors: int) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            continue


@pytest.fixture
def stdin() -> Iterator[Pipe]:
    pipe = os.pipe()
    yield pipe
    close(*pipe)


@pytest.fixture
def messages() -> Iterator[Pipe]:
    pipe = os.pipe()
    yield pipe
    close(*pipe)


def document(ready_fd: int, **more: object) -> dict[str, object]:
    return {
        "run_dir": "/runs/a",
        "run_id": "a",
        "front": "/s/front",
        "events": "/s/events",
        "core": "/s/core",
        "samples": "/s/samples",
        "host_dir": "/s/host",
        "secret": "00" * 32,
        "ready_fd": ready_fd,
        "supervisor": {"boot_id": "b", "pid_namespace": 1, "pid": 2, "start_ticks": 3},
        **more,
    }


def line(content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"


def config(ready_fd: int) -> ChildConfig:
    return ChildConfig.model_validate_json(line(document(ready_fd)))


def test_reads_the_first_line_and_sees_the_end_of_the_supervisor(
    stdin: Pipe, messages: Pipe
) -> None:
    os.write(stdin[1], line(document(messages[1], sim={"gpus": 2, "memory_gib": 80.0})))
    found = read_child_config(stdin[0])
    assert found.sim is not None
    assert (found.sim.gpus, found.policy, found.reopen) == (2, None, False)
    assert str(found.log_path("broker")) == "/runs/a/resource_scheduler/log/broker.log"
    assert found.secret_bytes == bytes(32)
    assert not supervisor_gone(stdin[0])
    os.close(stdin[1])
    assert supervisor_gone(stdin[0])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}\n",
        b"[" * 5000 + b"\n",
        b"\xff\n",
        line(document(3, unknown=1)),
        line(document(2)),
        line(document(3, secret="zz")),
        line(document(3, sim={"gpus": "two", "memory_gib": 1.0})),
        line(document(60_000)),
        b'{"run_dir": "half',
    ],
)
def test_a_wrong_configuration_is_refused(stdin: Pipe, raw: bytes) -> None:
    os.write(stdin[1], raw)
    os.close(stdin[1])
    with pytest.raises(PraxistError) as caught:
        read_child_config(stdin[0])
    assert caught.value.code == "start_failed"


def test_an_endless_line_is_refused() -> None:
    endless = os.open("/dev/zero", os.O_RDONLY)
    with pytest.raises(PraxistError, match="too long"):
        read_child_config(endless)
    os.close(endless)
    assert CONFIG_BYTES_MAX < 2**20


def test_says_progress_then_ready_and_closes(messages: Pipe) -> None:
    ours = config(messages[1])
    report_progress(ours, "replaying")
    report_ready(ours, pid=7)
    told = [json.loads(text) for text in os.read(messages[0], 4096).splitlines()]
    assert told == [{"progress": "replaying"}, {"ready": {"pid": 7}}]
    assert os.read(messages[0], 1) == b""


def test_last_words_never_go_to_a_file_that_got_the_number(messages: Pipe) -> None:
    told, number = messages
    innocent_read, innocent_write = os.pipe()
    ours = config(number)
    report_ready(ours)
    os.dup2(innocent_write, number)
    report_fatal(ours, PraxistError("internal", "too late for the descriptor"))
    close(innocent_write, number)
    written = os.read(innocent_read, 4096)
    close(innocent_read)
    assert written == b""
    assert os.read(told, 4096).count(b"\n") == 1


def test_last_words_to_a_supervisor_that_is_gone_are_no_failure(messages: Pipe) -> None:
    os.close(messages[0])
    report_progress(config(messages[1]), "nobody listens")
    report_fatal(config(messages[1]), PraxistError("internal", "nobody listens"))
