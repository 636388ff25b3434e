"""Reads a run's resource contract: a task file, or its `resource_scheduler` section alone.

Every mistake is found in one go, each with line, column and key; what the contract's rules put
right (values outside a range) is a warning that says what the value became. It never guesses:
an unknown key is an error with the nearest valid one. Only in legacy mode is what is malformed
replaced by its default, with a warning; such a contract can be checked and is not served.
Source: seed 000 "Task Contract" (`compute_budget.resource_scheduler`), seed 001; defaults, bounds
and types as in the reference of the original system.
"""

from __future__ import annotations

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
    MERGE_TAG,
    Entry,
    compose,
    join,
    known_entries,
    nearest,
    read_text,
)
from .policy_findings import SECTION, Finding, Findings, Place
from .policy_keys import bounds, fields
from .policy_profiles import read_profiles
from .policy_values import (
    TEXT_TAG,
    bool_value,
    bounded,
    float_value,
    int_value,
    is_percent,
    is_sane,
    kind_of,
)

ERRORS_TOLD = 20

_FIELDS = fields()
_MODES = ("central", "legacy")
_HIGH_MARKS = ("cpu_high_pct", "memory_high_pct", "io_pressure_high_pct")
_INITIAL = "initial_concurrent_experiments"


@dataclass(frozen=True, slots=True)
class PolicyCheck:
    """Everything that is to say about a contract; `policy` is None when it is invalid."""

    policy: SchedulerPolicy | None
    errors: list[Finding]
    warnings: list[Finding]
    places: dict[str, Place]
    """Where the values stand, by the key's path inside the contract."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """A valid contract, and what was put right in it (one line each)."""

    policy: SchedulerPolicy
    warnings: list[str]


def read_policy(path: str | os.PathLike[str]) -> PolicyReading:
    """The contract in the file `path`, to be served.

    Raises PraxistError `contract_invalid` with all mistakes in its detail (the first 20), or
    `path_unusable` when there is no readable regular file.
    """
    file = Path(path)
    check = check_file(file)
    if check.policy is None:
        raise invalid(file, check.errors)
    if check.policy.mode != "central":
        raise invalid(file, [not_served(check)])
    return PolicyReading(check.policy, [finding.text() for finding in check.warnings])


def check_file(path: Path) -> PolicyCheck:
    """Check the contract in a file. Raises `path_unusable` when it cannot be read."""
    findings = Findings()
    text = read_text(path, findings)
    return _result(None, findings, text) if findings.errors else check_policy(text)


def check_policy(text: str) -> PolicyCheck:
    """Check the text of a contract; findings come in the order of the text."""
    findings = Findings()
    policy: SchedulerPolicy | None = None
    root = compose(text, findings)
    if root is not None:
        found = _find_section(root, findings)
        if found is not None:
            policy = _Contract(found[1], findings).read(found[0])
    return _result(policy, findings, text)


def _result(policy: SchedulerPolicy | None, findings: Findings, text: str) -> PolicyCheck:
    errors = sorted(findings.errors, key=Finding.order)
    warnings = sorted(findings.warnings, key=Finding.order)
    return PolicyCheck(None if errors else policy, errors, warnings, findings.places, text)


def not_served(check: PolicyCheck) -> Finding:
    """That `up` does not serve a legacy contract, at the place of its mode."""
    message = "`up` does not serve legacy mode: there peers start their experiments themselves"
    place = check.places.get("mode", Place())
    return Finding("PZ108", place, "mode", message, "set `mode: central` to use the scheduler")


def invalid(path: Path, errors: list[Finding]) -> PraxistError:
    """The error that refuses a contract, with its first mistakes."""
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    told = [f"{path}:{error.text()}" for error in errors[:ERRORS_TOLD]]
    if len(errors) > ERRORS_TOLD:
        told.append(f"and {len(errors) - ERRORS_TOLD} more")
    see = f"`praxist-zmq config check {path}` shows each in its line"
    return PraxistError("contract_invalid", "\n".join([count, *told]), [see])


# -- the place of the contract ----------------------------------------------------------------


def _find_section(root: Node, findings: Findings) -> tuple[MappingNode, str] | None:
    """The contract's mapping and its path; None with an error when it cannot be told.

    A task file without one gives an empty mapping: all defaults, with a warning.
    """
    if not isinstance(root, MappingNode):
        findings.error("PZ104", root, "", f"the file must hold a mapping, not {kind_of(root)}")
        return None
    node, path = root, ""
    keys = _names(root)
    steps = SECTION if SECTION[0] in keys else SECTION[1:] if SECTION[1] in keys else ()
    if not steps:
        if any(name in _FIELDS for name in keys):
            return root, ""
        return _without_section(root, "", SECTION, findings)
    for depth, step in enumerate(steps):
        keyed = [(key, value) for key, value in node.value if _name(key) == step]
        found = [value for _key, value in keyed]
        if not found:
            return _without_section(node, path, (step,), findings)
        if len(found) > 1:
            first = keyed[0][0].start_mark.line + 1
            message = f"set twice; the first is on line {first}"
            findings.error("PZ103", keyed[1][0], step, message, "keep one of the two")
        path = f"{path}.{step}" if path else step
        value = found[0]
        if not isinstance(value, MappingNode):
            if depth < len(steps) - 1 and kind_of(value) == "nothing":
                return _without_section(node, path, (steps[-1],), findings)
            help = _indentation(node, value)
            findings.error("PZ104", value, path, f"must be a mapping, not {kind_of(value)}", help)
            return None
        node = value
    return node, path


def _indentation(parent: MappingNode, value: Node) -> str | None:
    """The usual reason of an empty section: its keys stand beside it."""
    beside = kind_of(value) == "nothing" and any(name in _FIELDS for name in _names(parent))
    return "indent its keys below it" if beside else None


def _without_section(
    node: MappingNode, path: str, wanted: tuple[str, ...], findings: Findings
) -> tuple[MappingNode, str] | None:
    for key, _value in node.value[:KEYS_MAX]:
        help = nearest(_name(key), wanted, 0.8)
        if help:
            findings.error("PZ101", key, join(path, _name(key)), "unknown key", help)
            return None
    for key, _value in node.value[:KEYS_MAX]:
        if key.tag == MERGE_TAG:
            # It may well bring the contract in; taking defaults instead would be a guess.
            message = f"`<<` is not followed in the search for {'.'.join(wanted)}"
            findings.error("PZ109", key, path, message, "write the key out; its value may be `*x`")
            return None
    message = f"no {'.'.join(SECTION)} here; documented defaults will be used"
    findings.warn("PZ123", node.value[0][0] if node.value else node, path, message)
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
        self._findings.tolerant = _is_legacy(node)
        found = known_entries(node, self._path, _FIELDS, "key", self._findings)
        values: dict[str, Any] = {"mode": self._mode(node, found.get("mode"))}
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
        key, node = join(self._path, name), entry.value
        kind = _FIELDS[name].annotation
        if kind is bool:
            return bool_value(node, key, self._findings)
        if kind is not int and kind is not float:
            return None
        read = int_value if kind is int else float_value
        value = read(node, key, self._findings)
        if value is None or name == _INITIAL:
            return value
        if name.endswith("_pct") and not is_percent(value, node, key, self._findings):
            return None
        if not is_sane(value, name, node, key, self._findings):
            return None
        return kind(bounded(value, *bounds(_FIELDS[name]), node, key, self._findings))

    def _mode(self, node: MappingNode, entry: Entry | None) -> str:
        key = join(self._path, "mode")
        if entry is None and any(each.code == "PZ123" for each in self._findings.warnings):
            return "central"  # there is no contract at all, and that is told
        if entry is None and self._findings.mistyped(key):
            return "central"
        if entry is None:
            message = "not set; this scheduler serves central mode, so `central` will be used"
            self._findings.warn("PZ123", _first_line(node), key, message, "set `mode: central`")
            return "central"
        mode = _text(entry.value).strip().lower()
        if mode not in _MODES:
            help = nearest(mode, _MODES)
            message = f'must be "central" or "legacy", got {_shown(entry.value)}'
            self._findings.error("PZ102", entry.value, key, message, help)
            return "central"
        return mode

    def _concurrency(self, values: dict[str, Any], found: Mapping[str, Entry]) -> None:
        """min is lowered to max, the initial limit (default: min) is brought between them."""
        bounding = ("max_concurrent_experiments", "min_concurrent_experiments")
        if not self._findings.tolerant and any(self._is_wrong(n, values, found) for n in bounding):
            return  # one of them is wrong, and what follows from it is no second mistake
        highest, lowest = (values.setdefault(name, 1) for name in bounding)
        if lowest > highest:
            lowest = values["min_concurrent_experiments"] = highest
            entry = found["min_concurrent_experiments"]
            key = join(self._path, entry.name)
            message = f"{_text(entry.value, any_tag=True)} is over the maximum, {highest}"
            where = found.get("max_concurrent_experiments")
            if where is not None:
                message += f" (line {where.value.start_mark.line + 1})"
            self._findings.warn("PZ125", entry.value, key, f"{message}; {highest} will be used")
        value = values.get(_INITIAL, lowest)
        if _INITIAL in values:
            key, node = join(self._path, _INITIAL), found[_INITIAL].value
            value = bounded(value, lowest, highest, node, key, self._findings)
        values[_INITIAL] = int(value)

    def _is_wrong(self, name: str, values: dict[str, Any], found: Mapping[str, Entry]) -> bool:
        """Whether a key has no value because of a mistake that is told."""
        if name in found:
            return name not in values
        return self._findings.mistyped(join(self._path, name))

    def _marks(self, values: dict[str, Any], found: Mapping[str, Entry]) -> None:
        zero = [n for n in _HIGH_MARKS if n in found and values.get(n) == 0]
        for name in zero:
            domain = name.partition("_")[0]
            message = f"0 is always reached: nothing that declares {domain} would ever start"
            help = "write a mark over 0"
            self._findings.warn("PZ126", found[name].value, join(self._path, name), message, help)
        names = ("cpu_low_pct", "cpu_high_pct")
        if "cpu_high_pct" in zero:
            return
        if not self._findings.tolerant and any(self._is_wrong(n, values, found) for n in names):
            return
        low = values.get("cpu_low_pct", _FIELDS["cpu_low_pct"].default)
        high = values.get("cpu_high_pct", _FIELDS["cpu_high_pct"].default)
        entry = found.get("cpu_low_pct") or found.get("cpu_high_pct")
        if entry is not None and low >= high:
            message = f"{low:g} is not below cpu_high_pct {high:g}"
            if entry.name == "cpu_high_pct":
                message = f"{high:g} is not above cpu_low_pct {low:g}"
            help = "leave a band between them, or the limit will swing"
            self._findings.warn("PZ122", entry.value, join(self._path, entry.name), message, help)

    def _default(self, entry: Entry | None, profiles: dict[str, Profile]) -> str:
        """The default profile. Blank or undeclared is an error in legacy mode too."""
        first = next(iter(profiles), "default")
        if entry is None:
            return first
        key, node = join(self._path, "default_profile"), entry.value
        name = _text(node).strip()
        if not name:
            blank = isinstance(node, ScalarNode) and not node.value.strip()
            message = "is blank" if blank else f"must be a profile's name, got {_shown(node)}"
            help = "name a declared profile" if blank else "quote it if it is the name"
            self._findings.error("PZ105", node, key, message, help)
        elif profiles and name not in profiles:
            help = nearest(name, profiles) or f"declared: {', '.join(list(profiles)[:10])}"
            message = f'"{name[:80]}" is declared nowhere'
            self._findings.error("PZ105", node, key, message, help)
        return name


def _is_legacy(node: MappingNode) -> bool:
    modes = [_text(value) for key, value in node.value if _name(key) == "mode"]
    return len(modes) == 1 and modes[0].strip().lower() == "legacy"


def _text(node: Node, *, any_tag: bool = False) -> str:
    """A text as it stands; empty for what is none (with `any_tag`, any scalar as written)."""
    is_text = isinstance(node, ScalarNode) and (any_tag or node.tag == TEXT_TAG)
    return str(node.value) if is_text else ""


def _shown(node: Node) -> str:
    return f'"{_text(node)[:40]}"' if _text(node) else kind_of(node)


def _first_line(node: MappingNode) -> Node:
    """What to point at when something is missing in a mapping: its first key."""
    return node.value[0][0] if node.value else node
