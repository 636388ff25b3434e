"""Reads a run's resource contract: a task file, or its `resource_scheduler` section alone.

Every mistake is found in one go, each with line, column and key; what the contract's rules put
right (values outside a range) is a warning that says what the value became. It never guesses:
an unknown key is an error with the nearest valid one.
Source: seed 000 "Task Contract" (`compute_budget.resource_scheduler`), seed 001; defaults, bounds
and types as in the reference of the original system.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from ..errors import PraxistError
from ..protocol.policy import Profile, SchedulerPolicy
from .policy_document import (
    KEYS_MAX,
    Entry,
    Finding,
    Findings,
    compose,
    join,
    known_entries,
    nearest,
    read_text,
)
from .policy_profiles import read_profiles
from .policy_values import bool_value, bounded, float_value, int_value, kind_of, text_value

SECTION = ("compute_budget", "resource_scheduler")
ERRORS_TOLD = 20

_ANY = math.inf
_INTEGERS: dict[str, tuple[float, float]] = {
    "max_concurrent_experiments": (1, _ANY),
    "min_concurrent_experiments": (1, _ANY),
    "initial_concurrent_experiments": (-_ANY, _ANY),
    "exploration_reserve": (0, _ANY),
    "infrastructure_retries": (0, _ANY),
    "supply_idle_samples": (2, 12),
    "supply_lease_seconds": (180, 3600),
}
_FLOATS: dict[str, tuple[float, float]] = {
    "cpu_low_pct": (0, 100),
    "cpu_high_pct": (0, 100),
    "memory_high_pct": (0, 100),
    "io_pressure_high_pct": (0, 100),
    "adjustment_interval_seconds": (2, _ANY),
    "mature_supply_fraction": (0, 1),
    "mature_supply_redundancy": (0, 10),
    "mature_assessment_min_completion_probability": (0.25, 1),
}
_BOOLEANS = ("deadline_admission", "supply_signal_enabled")
_FIELDS = tuple(
    name for name in SchedulerPolicy.model_fields if name != "max_parallel_runs_per_peer"
)


@dataclass(frozen=True, slots=True)
class PolicyCheck:
    """Everything that is to say about a contract; `policy` is None when it is invalid."""

    policy: SchedulerPolicy | None
    errors: list[Finding]
    warnings: list[Finding]


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """A valid contract, and what was put right in it (one line each)."""

    policy: SchedulerPolicy
    warnings: list[str]


def read_policy(path: str | os.PathLike[str]) -> PolicyReading:
    """The contract in the file `path`.

    Raises PraxistError `contract_invalid` with all mistakes in its detail (the first 20), or
    `path_unusable` when there is no readable regular file.
    """
    file = Path(path)
    check = check_policy(read_text(file))
    if check.policy is None:
        raise _invalid(file, check.errors)
    return PolicyReading(check.policy, [finding.text() for finding in check.warnings])


def check_policy(text: str) -> PolicyCheck:
    """Check the text of a contract; findings come in the order of the text."""
    findings = Findings()
    policy: SchedulerPolicy | None = None
    root = compose(text, findings)
    if root is not None:
        found = _find_section(root, findings)
        if found is not None:
            policy = _Contract(found[1], findings).read(found[0])
    errors, warnings = sorted(findings.errors, key=_place), sorted(findings.warnings, key=_place)
    return PolicyCheck(None if errors else policy, errors, warnings)


def _place(finding: Finding) -> tuple[int, int, str]:
    return (finding.line, finding.column, finding.message)


def _invalid(path: Path, errors: list[Finding]) -> PraxistError:
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    told = [f"{path}:{error.text()}" for error in errors[:ERRORS_TOLD]]
    if len(errors) > ERRORS_TOLD:
        told.append(f"and {len(errors) - ERRORS_TOLD} more")
    return PraxistError("contract_invalid", "\n".join([count, *told]))


# -- the place of the contract ----------------------------------------------------------------


def _find_section(root: Node, findings: Findings) -> tuple[MappingNode, str] | None:
    """The contract's mapping and its path; None with an error when it cannot be told.

    A task file without one gives an empty mapping: all defaults, with a warning.
    """
    if not isinstance(root, MappingNode):
        findings.error(root, "", f"the file must hold a mapping, not {kind_of(root)}")
        return None
    node, path = root, ""
    keys = _names(root)
    steps = SECTION if SECTION[0] in keys else SECTION[1:] if SECTION[1] in keys else ()
    if not steps:
        if any(name in _FIELDS for name in keys):
            return root, ""
        return _without_section(root, "", SECTION, findings)
    for depth, step in enumerate(steps):
        found = [value for key, value in node.value if _name(key) == step]
        if not found:
            return _without_section(node, path, (step,), findings)
        if len(found) > 1:
            findings.error(found[1], step, "set twice", "keep one of the two")
        path = f"{path}.{step}" if path else step
        value = found[0]
        if not isinstance(value, MappingNode):
            if depth < len(steps) - 1 and kind_of(value) == "nothing":
                return _without_section(node, path, (steps[-1],), findings)
            findings.error(value, path, f"must be a mapping, not {kind_of(value)}")
            return None
        node = value
    return node, path


def _without_section(
    node: MappingNode, path: str, wanted: tuple[str, ...], findings: Findings
) -> tuple[MappingNode, str] | None:
    for key, _value in node.value[:KEYS_MAX]:
        help = nearest(_name(key), wanted, 0.8)
        if help:
            findings.error(key, join(path, _name(key)), "unknown key", help)
            return None
    findings.warn(node, path, f"no {'.'.join(SECTION)} here; documented defaults will be used")
    return MappingNode("tag:yaml.org,2002:map", [], node.start_mark, node.end_mark), path


def _name(key: Node) -> str:
    return str(key.value) if isinstance(key, ScalarNode) else ""


def _names(node: MappingNode) -> set[str]:
    return {_name(key) for key, _value in node.value}


# -- the contract -------------------------------------------------------------------------------


class _Contract:
    """One reading of one contract. Collects values; findings go to the shared list."""

    def __init__(self, path: str, findings: Findings) -> None:
        self._path = path
        self._findings = findings

    def read(self, node: MappingNode) -> SchedulerPolicy | None:
        """The policy, or None when there are errors."""
        found = known_entries(node, self._path, _FIELDS, "key", self._findings)
        values: dict[str, Any] = {}
        self._read_mode(node, found.get("mode"))
        for name, entry in found.items():
            value = self._plain(name, entry)
            if value is not None:
                values[name] = value
        self._concurrency(values, found)
        self._marks(values, found)
        values["profiles"] = read_profiles(found.get("profiles"), self._path, self._findings)
        values["default_profile"] = self._default(found.get("default_profile"), values["profiles"])
        if self._findings.errors:
            return None
        return SchedulerPolicy(**values)

    def _plain(self, name: str, entry: Entry) -> Any:
        """The value of a field that stands for itself, within its range."""
        key = join(self._path, name)
        if name in _BOOLEANS:
            return bool_value(entry.value, key, self._findings)
        ranges: Mapping[str, tuple[float, float]] = _INTEGERS if name in _INTEGERS else _FLOATS
        if name not in ranges:
            return None
        read = int_value if name in _INTEGERS else float_value
        value = read(entry.value, key, self._findings)
        if value is None:
            return None
        kept = bounded(value, *ranges[name], entry.value, key, self._findings)
        return int(kept) if name in _INTEGERS else float(kept)

    def _read_mode(self, node: MappingNode, entry: Entry | None) -> None:
        key = join(self._path, "mode")
        if entry is None:
            message = "not set; this scheduler serves central mode, so `central` will be used"
            self._findings.warn(node, key, message, "set `mode: central`")
            return
        text = text_value(entry.value, key, self._findings)
        mode = (text or "").strip().lower()
        if text is None or mode == "central":
            return
        if mode == "legacy":
            message = "legacy mode is not served by a central scheduler"
            self._findings.error(entry.value, key, message, "set `mode: central`")
            return
        help = nearest(mode, ("central", "legacy"))
        self._findings.error(entry.value, key, 'must be "central" or "legacy"', help)

    def _concurrency(self, values: dict[str, Any], found: Mapping[str, Entry]) -> None:
        """min is lowered to max, the initial limit (default: min) is brought between them."""
        highest = values.setdefault("max_concurrent_experiments", 1)
        lowest = values.setdefault("min_concurrent_experiments", 1)
        for name, low in (
            ("min_concurrent_experiments", 1),
            ("initial_concurrent_experiments", min(lowest, highest)),
        ):
            value = values.get(name, low)
            if name in found and name in values:
                key = join(self._path, name)
                value = bounded(value, low, highest, found[name].value, key, self._findings)
            values[name] = int(value)

    def _marks(self, values: dict[str, Any], found: Mapping[str, Entry]) -> None:
        low = values.get("cpu_low_pct", SchedulerPolicy.model_fields["cpu_low_pct"].default)
        high = values.get("cpu_high_pct", SchedulerPolicy.model_fields["cpu_high_pct"].default)
        entry = found.get("cpu_low_pct") or found.get("cpu_high_pct")
        if entry is not None and low >= high:
            message = f"cpu_low_pct {low:g} is not below cpu_high_pct {high:g}"
            help = "leave a band between them, or the limit will swing"
            self._findings.warn(entry.value, join(self._path, entry.name), message, help)

    def _default(self, entry: Entry | None, profiles: dict[str, Profile]) -> str:
        first = next(iter(profiles), "default")
        if entry is None:
            return first
        key = join(self._path, "default_profile")
        text = text_value(entry.value, key, self._findings)
        if text is None:
            return first
        name = text.strip()
        if not name:
            self._findings.error(entry.value, key, "is blank", "name a declared profile")
        elif profiles and name not in profiles:
            help = nearest(name, profiles) or f"declared: {', '.join(list(profiles)[:10])}"
            self._findings.error(entry.value, key, f'"{name[:80]}" is declared nowhere', help)
        return name
