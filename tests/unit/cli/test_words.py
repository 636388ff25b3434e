"""Durations, spans, cutting, and text that tries to steer the terminal."""

from __future__ import annotations

import re

import pytest

from praxist_zmq.cli.duration import parse_duration
from praxist_zmq.cli.status_words import device_words
from praxist_zmq.cli.table import Column, render
from praxist_zmq.cli.words import (
    age,
    cells,
    count,
    cut,
    cut_middle,
    devices,
    fitted,
    named_devices,
    safe,
    span,
    wrapped,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("900", 900.0), ("900s", 900.0), ("15m", 900.0), ("1h30m", 5400.0), ("2d", 172_800.0),
        ("0.5", 0.5), ("1h0m5s", 3605.0), (" 5M ", 300.0),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-5", "1.5h", "5 m", "m5", "1m1h", "nan", "1e3", "٣", "99999999999", "400d"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|year"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"), (0, "0s"), (0.34, "0.3s"), (41, "41s"), (130, "2m10s"), (5040, "1h24m"),
        (273_600, "3d4h"),
    ],
)  # fmt: skip
def test_spans(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_ages() -> None:
    assert [age(value) for value in (None, 5, 190, 7300, 90_000)] == ["?", "5s", "3m", "2h", "1d"]


@pytest.mark.parametrize(
    "character",
    [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0)), "\u202e", "\u2066", "\u2028",
     "\u200b", "\ufeff", "\U000e0041", "\udcff"],
)  # fmt: skip
def test_nothing_steers_the_terminal(character: str) -> None:
    text = safe(f"a{character}b")
    assert character not in text
    assert text.isprintable()


def test_honest_text_is_left_alone() -> None:
    assert safe("mixup-a0.4/Größe 🙂 日本") == "mixup-a0.4/Größe 🙂 日本"


def test_cutting_counts_wide_characters() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 4) == "abc+"
    assert cut("日本語", 5) == "日本+"
    assert cells(cut("日本語", 4)) <= 4


def test_wrapping_keeps_within_the_line() -> None:
    lines = wrapped("note", "word " * 60)
    assert all(len(line) <= 100 for line in lines)
    assert lines[1].startswith("        word")


def test_devices() -> None:
    assert devices([]) == "cpu"
    assert devices(["GPU-8f1c02ab-aaaa-bbbb-cccc-000000000000"]) == "GPU 8f1c02ab"
    simulated = [f"GPU-00000000-0000-4000-8000-{n:012x}" for n in (0, 10)]
    assert devices(simulated) == "GPU 0,10 SIMULATED"


def test_a_table_never_reads_markup_and_hides_empty_columns() -> None:
    columns = (Column("A"), Column("B"), Column("C", least=4))
    lines = render(columns, [["[red]x[/]", "", ":smile: y"]], 60, colored=False)
    assert [line.split() for line in lines] == [["A", "C"], ["[red]x[/]", ":smile:", "y"]]


def test_a_narrow_table_drops_then_cuts() -> None:
    columns = (Column("ID"), Column("EXTRA", drop=0), Column("TAG", least=5))
    lines = render(columns, [["j-1", "x" * 30, "y" * 60]], 40, colored=False)
    assert lines[0].split() == ["ID", "TAG"]
    assert all(len(line) <= 40 for line in lines)
    assert lines[1].endswith("+")


def test_a_cut_in_the_middle_keeps_the_end() -> None:
    assert cut_middle("abcdefghij", 10) == "abcdefghij"
    assert cut_middle("abcdefghij", 7) == "ab+ghij"
    assert cut_middle("mixup/protoA/seed-14", 10) == "mix+eed-14"
    assert cells(cut_middle("日本語日本語日本語", 8)) <= 8
    assert cut_middle("abcdef", 1) == "+"


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_fitting_breaks_between_words_under_the_text(columns: int) -> None:
    line = "   Warnings   one two three four five six seven eight nine ten eleven twelve"
    parts = fitted(line, columns)
    assert all(cells(part) <= columns for part in parts)
    assert " ".join(part.strip() for part in parts).split() == line.split()
    assert fitted("short", columns) == ["short"]


def test_what_stands_in_backticks_is_not_broken() -> None:
    lines = wrapped("help", "word " * 12 + "`praxist-zmq up --run-dir /runs/a` makes it one " * 2)
    assert "\n".join(lines).count("`praxist-zmq up --run-dir /runs/a`") == 2
    assert all(len(line) <= 100 for line in lines)


def test_counts_have_their_plural() -> None:
    assert (count(1, "run"), count(2, "run"), count(0, "run")) == ("1 run", "2 runs", "0 runs")
    assert count(2, "experiment goes", "experiments go") == "2 experiments go"


def test_devices_in_a_text_have_one_name() -> None:
    text = "GPU-00000000-0000-4000-8000-000000000002, GPU-8f1c02ab-aaaa-bbbb-cccc-000000000000 free"
    assert named_devices(text) == "GPU 2, GPU 8f1c02ab free"


@pytest.mark.parametrize("columns", range(40, 130, 7))
@pytest.mark.parametrize("colored", [False, True])
def test_no_line_of_a_table_is_wider_than_the_terminal(columns: int, colored: bool) -> None:
    table = (Column("JOB"), Column("STATE", drop=0), Column("TAG", least=8), Column("DIR", least=4))
    rows = [["j-1", "running", "x" * 60, "/a/" * 20], ["j-60", "queued", "y" * 5, "/b"]]
    lines = render(table, rows, columns, colored=colored)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert len(plain) == 3
    assert all(cells(line) <= columns for line in plain)


def test_a_device_in_status_counts_what_is_declared_as_well_as_what_is_seen() -> None:
    device = {
        "index": 1, "state": "available", "jobs": ["j-1"], "exclusive": False, "external": [],
        "declared_utilization_pct": 45.0, "external_utilization_pct": 0.0, "utilization_pct": 0.0,
        "memory_total_mib": 49_152, "memory_used_mib": 643, "declared_memory_mib": 32_768,
        "external_memory_mib": 643,
    }  # fmt: skip
    assert device_words([device]) == ["1: 45/100 compute, 32.6/45.6 GiB, 1 job"]
    more = {**device, "memory_used_mib": 40_960, "utilization_pct": 90.0}
    assert device_words([more]) == ["1: 90/100 compute, 40.0/45.6 GiB, 1 job"]
