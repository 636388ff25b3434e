"""The benchmark's arithmetic and table; the measuring itself is never a test."""

from __future__ import annotations

import json

import pytest

from tests.bench.figures import Figure, as_json, number, quantile, spread, table


def test_a_ratio_is_the_value_over_its_limit() -> None:
    assert Figure("group", "name", 50.0, "/s", limit=200.0).ratio == 0.25
    assert Figure("group", "name", 50.0, "/s").ratio is None


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("g", "n", 50.0, "/s", 200.0, target=0.25), True),
        (Figure("g", "n", 49.0, "/s", 200.0, target=0.25), False),
        (Figure("g", "n", 3.0, "ms", 1.0, target=3.0, sense="most"), True),
        (Figure("g", "n", 3.1, "ms", 1.0, target=3.0, sense="most"), False),
        (Figure("g", "n", 2_999.0, "/s", target=3_000, target_of="value"), False),
        (Figure("g", "n", 2_999.0, "/s"), None),
    ],
)
def test_a_target_is_met_or_missed(figure: Figure, met: bool | None) -> None:
    assert figure.met is met
    assert as_json(figure)["met"] is met
    json.dumps(as_json(figure))


def test_quantiles_and_spreads() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([7.0], 0.99)) == (51, 100, 7)
    assert spread([3.0, 1.0, 2.0]) == {"min": 1.0, "median": 2.0, "max": 3.0}


def test_numbers_show_the_digits_that_count() -> None:
    shown = [number(value) for value in (None, 12_345.6, 123.4, 1.2345, 0.012345)]
    assert shown == ["", "12,346", "123", "1.23", "0.0123"]


def test_the_table_names_the_limit_and_the_verdict() -> None:
    shown = table(
        [
            Figure("jobs", "2 slots", 100.0, "/s", 400.0, "bare spawn", 0.15),
            Figure("jobs", "as such", 100.0, "/s", target=200, target_of="value"),
        ]
    )
    lines = shown.splitlines()
    assert len(lines) == 3
    assert "bare spawn" in lines[1]
    assert ">= 0.15x met" in lines[1]
    assert ">= 200 /s MISSED" in lines[2]
