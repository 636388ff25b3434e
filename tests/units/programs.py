"""Workers of the tests: commands of `work.py`, and functions for children."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from praxist_zmq.units import ScientificFailure, Unit

WORK = str(Path(__file__).with_name("work.py"))


def acting(*actions: str) -> Callable[[Unit], list[str]]:
    """Every unit does the same; `{key}` and `{attempt}` are its own."""

    def worker(unit: Unit) -> list[str]:
        filled = [
            action.replace("{key}", unit.key).replace("{attempt}", str(unit.attempt))
            for action in actions
        ]
        return [sys.executable, WORK, *filled]

    return worker


def shell(text: str) -> Callable[[Unit], list[str]]:
    """Every unit runs the same few words of shell: it starts quicker than Python."""
    return lambda unit: ["/bin/sh", "-c", text, "sh", unit.key, unit.result, str(unit.attempt)]


def score(unit: Unit) -> dict[str, object]:
    """A complete evaluation."""
    return {"score": len(unit.key), "device": unit.device}


def diverge(unit: Unit) -> None:
    """A unit whose science fails."""
    raise ScientificFailure(f"loss is nan in {unit.key}")


def odd(unit: Unit) -> object:
    """A result that JSON cannot hold."""
    return object()
