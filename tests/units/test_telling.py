"""Progress told over the wire by hand: bounded in time, whatever is at the other end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.protocol import envelope, ids, limits
from praxist_zmq.units import UnitsError, progress, telling
from praxist_zmq.units.telling import ProgressTold, tell_progress
from tests.support.zmtp import GREETING, READY, frame


@pytest.fixture
def place() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="pu-", dir="/tmp"))
    (directory / "resource_scheduler").mkdir()
    yield directory
    shutil.rmtree(directory)


def publish(place: Path, **more: Any) -> None:
    content = {"endpoint": f"ipc://{place}/front", **more}
    (place / "resource_scheduler" / "endpoint.json").write_text(json.dumps(content))


def told(place: Path, timeout_s: float = 5.0, **more: str) -> ProgressTold:
    environ = {"PRAXIST_RUN_DIR": str(place), "PRAXIST_EXPERIMENT_ATTEMPT_ID": "j-1.1", **more}
    return tell_progress(1, 2, "x", environ=environ, timeout_s=timeout_s)


def answer(reply: Any, preamble: bytes = envelope.PREAMBLE) -> bytes:
    body = json.dumps({"request_id": None, "reply": reply}).encode()
    return frame(preamble, more=True) + frame(body)


def serve(place: Path, *parts: bytes, wait: bool = False) -> Callable[[], bytes]:
    """A fake scheduler for one connection: sends the parts, one after each thing it hears.

    With `wait` it says no more then, until the other side closes."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(place / "front"))
    door.listen(1)
    heard: list[bytes] = []

    def work() -> None:
        connection, _ = door.accept()
        for part in parts:
            heard.append(connection.recv(65_536))
            connection.sendall(part)
        if wait:
            heard.append(connection.recv(65_536))
            connection.recv(65_536)
        connection.close()
        door.close()

    thread = threading.Thread(target=work)
    thread.start()

    def joined() -> bytes:
        thread.join()
        return b"".join(heard)

    return joined


def test_the_rules_are_the_protocols() -> None:
    assert telling.PREAMBLE == envelope.PREAMBLE
    assert telling.TEXT_BYTES_MAX == limits.PROGRESS_TEXT_BYTES_MAX
    assert telling.STEPS_MAX == limits.PROGRESS_STEPS_MAX
    pattern = ids.AttemptId.__metadata__[0].pattern  # type: ignore[attr-defined]
    assert pattern == f"^{telling._ATTEMPT.pattern}$"


def test_outside_an_attempt_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRAXIST_EXPERIMENT_ATTEMPT_ID", raising=False)
    assert progress(1, 2) is False
    assert tell_progress(1, 2, environ={"PRAXIST_RUN_DIR": "/"}).reception == "outside"


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [(3, 2, ""), (-1, 2, ""), (0, 0, ""), (True, 2, ""), (1.0, 2, ""), (1, 10**13, ""),
     (1, 2, "a\nb"), (1, 2, "x" * 1025), (1, 2, "ü" * 513), (1, 2, "\udcff")],
)  # fmt: skip
def test_malformed_progress_is_an_error(done: Any, total: Any, text: str) -> None:
    with pytest.raises(UnitsError):
        progress(done, total, text)


def test_a_whole_exchange(place: Path) -> None:
    publish(place)
    shown = {"done": 1, "total": 2, "text": "x", "at": "t"}
    reply = answer({"kind": "progress_noted", "taken": True, "progress": shown})
    ping = b"\x04\x07\x04PING\0\0"
    heard = serve(place, GREETING + READY, ping + reply)
    assert told(place) == ProgressTold("taken", shown=shown)
    assert str(os.getpgrp()).encode() in heard()


def test_a_refusal_is_told(place: Path) -> None:
    publish(place)
    refusal = {"kind": "refusal", "code": "unknown_job", "detail": "ended"}
    heard = serve(place, GREETING + READY, answer(refusal))
    assert told(place) == ProgressTold("refused", "ended", "unknown_job")
    heard()


@pytest.mark.parametrize(
    "parts",
    [
        (b"",),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100,),
        (GREETING + b"\x04\x06\x05ERROR",),
        (GREETING + READY, b"\x02" + b"\xff" * 8),
        (GREETING + READY, frame(envelope.PREAMBLE, more=True) + frame(b"{")),
        (GREETING + READY, answer([])),
        (GREETING + READY, answer({"kind": "pong"}, b"other/1")),
    ],
)
def test_strange_answers_are_no_errors(place: Path, parts: tuple[bytes, ...]) -> None:
    publish(place)
    heard = serve(place, *parts)
    assert told(place).reception == "unreachable"
    heard()


def test_silence_ends_in_time(place: Path) -> None:
    publish(place)
    heard = serve(place, GREETING + READY, wait=True)
    assert told(place, 0.2) == ProgressTold("unreachable", "the scheduler does not answer in time")
    heard()


def test_what_is_published_is_not_believed_blindly(place: Path) -> None:
    file = place / "resource_scheduler" / "endpoint.json"
    assert told(place).reception == "unreachable"
    for text in ("", "[]", "{", '{"endpoint": 3}', '{"endpoint": "tcp://h:1"}', "[" * 60_000):
        file.write_text(text)
        assert told(place).reception == "unreachable"
    file.unlink()
    os.mkfifo(file)
    assert told(place).reception == "unreachable"
    file.unlink()
    file.symlink_to("/dev/zero")
    assert told(place).reception == "unreachable"
    file.unlink()
    publish(place)
    assert told(place).reception == "unreachable", "no socket there"
