"""The last lines of a log with progress bars in it, in a pipe, on a terminal and on a page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from praxist_zmq.cli import log_tail
from praxist_zmq.cli.log_tail import PAGE_COLUMNS, ScreenSink, last_lines, read_last_lines

BARS = b"".join(b"\r%3d%%|##| %d/100000" % (i // 1000, i) for i in range(100_000))
LOG = b"ready\r\n" + BARS + b"\nsaved\n" + b"\r 1%|\r 2%|"


def test_the_last_lines_have_no_state_that_was_painted_over(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(LOG)
    source = os.open(log, os.O_RDONLY)
    try:
        content, cut_off = read_last_lines(source, 40)
        assert content == b"ready\n 99%|##| 99999/100000\nsaved\n 2%|"
        assert not cut_off
        assert read_last_lines(source, 2) == (b"saved\n 2%|", False)
        assert read_last_lines(source, 40, 10) == (b"saved\n 2%|", True)
        assert read_last_lines(source, 0) == (b"", False)
    finally:
        os.close(source)


def test_a_page_shows_no_line_wider_than_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(LOG + b"\n" + b"x" * 33_000 + b"\nlast\n")
    wide, last = last_lines(log, 2)
    assert len(wide) == PAGE_COLUMNS
    assert last == "last"


def test_a_terminal_is_shown_the_last_state_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(log_tail, "write_all", lambda _, content: written.append(content.decode()))
    sink = ScreenSink()
    sink.write(b"a\r\nload")
    sink.settle()
    sink.write(b"ing\r1%\r2%")
    sink.settle()
    sink.write(b"\r3%")
    sink.write(b"\r4%\nend\n")
    sink.settle()
    assert written == ["a\n", "load", "\r\x1b[K2%", "\r\x1b[K4%\nend\n"]
