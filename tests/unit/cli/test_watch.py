"""One frame of a watched view."""

from __future__ import annotations

import pytest

from praxist_zmq.cli import watch


@pytest.mark.parametrize("rows", [2, 6, 7, 30])
def test_a_frame_never_scrolls_the_screen(
    rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("COLUMNS", "60")
    watch._draw([*(f"row {number}" for number in range(rows - 1)), "wide " * 15])
    frame = capsys.readouterr().out
    assert frame.startswith("\x1b[H")
    assert frame.count("\n") == min(rows + 1, 7), "the wide row takes two lines"
    assert frame.endswith("\x1b[J\n"), "what an earlier frame left is cleared"
    assert ("more lines" in frame) == (rows + 1 > 7)


def test_rows_with_colour_are_not_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    row = "\x1b[31m" + "x" * 38 + "\x1b[0m"
    watch._draw([row])
    assert row in capsys.readouterr().out
