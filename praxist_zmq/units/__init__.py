"""Runs the independent units of one evaluation on every device that its attempt was given.

For task harnesses: seeds, folds, scenarios, benchmark cases or restart trials, each in a child
process of the evaluator, in its process group and session, so that a stop of the attempt reaches
them. It submits nothing, picks no device outside the assignment, and writes no scheduler's file.
Progress is told to the scheduler as telemetry.

Nothing but the standard library and `praxist_zmq.binding`: a task's interpreter can load it
without the scheduler's dependencies. Source: the contract's natural-unit parallelism;
docs/units.md has examples.
"""

from __future__ import annotations

from .outcome import Outcome, UnitAttempt, UnitOutcome
from .runner import run
from .target import in_python
from .telling import progress
from .unit import SCIENTIFIC, TEMPORARY, ScientificFailure, Unit, UnitsError, current

__all__ = [
    "SCIENTIFIC",
    "TEMPORARY",
    "Outcome",
    "ScientificFailure",
    "Unit",
    "UnitAttempt",
    "UnitOutcome",
    "UnitsError",
    "current",
    "in_python",
    "progress",
    "run",
]
