"""Log lines that never do harm, and last words that are found again."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.service import service_log
from praxist_zmq.service.service_log import configure_log, find_fatal, open_log, tail


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_json_object_a_line_whatever_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    descriptor = open_log(path)
    log = configure_log("broker", path, descriptor)
    log.info("two\nlines \x1b[31m \udcff", extra={"fields": {"job": "j-1"}})
    log.debug("not shown")
    os.close(descriptor)
    (line,) = lines(path)
    assert (line["process"], line["level"], line["job"]) == ("broker", "info", "j-1")
    assert line["pid"] == os.getpid()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_and_a_dead_pipe_lose_lines_and_nothing_else(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    log = configure_log("broker", None, full)
    log.info("lost")
    read_end, write_end = os.pipe()
    os.close(read_end)
    os.dup2(write_end, full)
    log.info("lost")
    path = tmp_path / "log"
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), full)
    log.info("kept")
    os.close(full)
    log.info("lost with a closed descriptor")
    assert [line.get("lost_lines") or line["message"] for line in lines(path)] == [2, "kept"]


def test_turns_over_and_keeps_three_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_log, "LOG_BYTES_MAX", 2000)
    path = tmp_path / "gateway.log"
    descriptor = open_log(path)
    log = configure_log("gateway", path, descriptor)
    for number in range(200):
        log.info("line %d", number)
    os.close(descriptor)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["gateway.log", "gateway.log.1", "gateway.log.2"]
    assert all(file.stat().st_size < 2300 for file in tmp_path.iterdir())
    assert lines(path)[-1]["message"] == "line 199"


def test_a_full_file_of_another_process_is_turned_over_at_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_log, "LOG_BYTES_MAX", 10)
    path = tmp_path / "x.log"
    path.write_text("x" * 11)
    os.close(open_log(path))
    assert path.read_text() == ""
    assert (tmp_path / "x.log.1").read_text() == "x" * 11


@pytest.mark.parametrize("what", ["fifo", "link", "directory"])
def test_what_is_not_a_file_of_ours_is_refused_without_hanging(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x.log"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(tmp_path / "target")
    else:
        path.mkdir()
    with pytest.raises(PraxistError, match=r"x\.log"):
        open_log(path)
    assert tail(path) == ""
    assert not (tmp_path / "target").exists()


def test_last_words_are_those_of_the_process_meant(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    fatal = {"code": "ledger_damaged", "detail": "record 7"}
    path.write_text(
        json.dumps({"pid": 10, "fatal": fatal})
        + "\n[1]\nnot json\n"
        + json.dumps({"pid": 11, "fatal": "forged"})
        + "\n"
        + json.dumps({"pid": 12, "message": "x"})
    )
    assert find_fatal(path, 10) == fatal
    assert find_fatal(path, 11) is None
    assert find_fatal(path, 12) is None
    assert find_fatal(tmp_path / "none", 10) is None
