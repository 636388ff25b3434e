"""Findings of a contract on the screen: the line as written, with carets under what is meant.

Columns are terminal columns: a tab is four, a wide character two, a mark on another none. What
the file holds is made safe before it is shown.
Source: the shape of compiler messages that name place, line and mend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..service.policy_document import source_lines
from ..service.policy_file import PolicyCheck
from ..service.policy_findings import Finding, short_key
from .output import bold
from .settings import Settings
from .words import cells, count, fitted, safe

TAB = "    "
SHOWN_MAX = 100
_CONTEXT = 20
"""Columns that stay in sight before the carets when a line is cut."""
Severity = Literal["error", "warning"]
_STYLES = {"error": "1;31", "warning": "1;33"}
_BLUE = "1;34"


@dataclass(frozen=True, slots=True)
class Told:
    """A finding with its severity."""

    severity: Severity
    finding: Finding

    @property
    def sentence(self) -> str:
        """Key and message."""
        key = short_key(self.finding.key)
        return safe(f"{key}: {self.finding.message}" if key else self.finding.message)


def told(check: PolicyCheck) -> list[Told]:
    """All findings in the order of the text; an error goes before a warning of the same place."""
    found = [Told("error", finding) for finding in check.errors]
    found += [Told("warning", finding) for finding in check.warnings]
    return sorted(found, key=lambda each: each.finding.order()[:2])


def full(
    name: str, check: PolicyCheck, found: Sequence[Told], columns: int, settings: Settings
) -> list[str]:
    """Each finding with its source line."""
    lines = source_lines(check.text)
    shown: list[str] = []
    for each in found[:SHOWN_MAX]:
        shown += [*_block(safe(name), each, lines, columns, settings), ""]
    if len(found) > SHOWN_MAX:
        shown += [f"... and {len(found) - SHOWN_MAX} more; `-o concise` has one a line", ""]
    return shown


def _block(
    name: str, each: Told, lines: Sequence[str], columns: int, settings: Settings
) -> list[str]:
    finding = each.finding
    word = f"{each.severity}[{finding.code}]"
    head, *rest = fitted(f"{word}: {each.sentence}", columns)
    head = bold(word, settings, _STYLES[each.severity]) + bold(head.removeprefix(word), settings)
    block = [head, *(bold(line, settings) for line in rest)]
    number = str(finding.line)
    gutter = " " * len(number)
    arrow, bar, equals = (bold(mark, settings, _BLUE) for mark in ("-->", "|", "="))
    if not finding.line:
        block.append(f" {arrow} {name}")
    else:
        block.append(f"{gutter}{arrow} {name}:{finding.line}:{finding.column}")
    if 0 < finding.line <= len(lines):
        room = max(columns - len(number) - 3, 20)
        source, carets = excerpt(lines[finding.line - 1], finding, room)
        block.append(f"{gutter} {bar}")
        block.append(f"{bold(number, settings, _BLUE)} {bar} {source}".rstrip())
        indent = carets[: len(carets) - len(carets.lstrip())]
        marked = bold(carets.lstrip(), settings, _STYLES[each.severity])
        block.append(f"{gutter} {bar} {indent}{marked}")
    if finding.help:
        head, *rest = fitted(f"{gutter} = help: {safe(finding.help)}", columns)
        block.append(head.replace("=", equals, 1))
        block += rest
    return block


def excerpt(line: str, finding: Finding, room: int) -> tuple[str, str]:
    """A source line and the line of carets below it, both at most `room` columns wide."""
    start = min(finding.column - 1, len(line))
    end = finding.place.end_column - 1 if finding.place.end_column else len(line.rstrip())
    end = min(max(end, start), len(line))
    before, meant, after = _shown(line[:start]), _shown(line[start:end]), _shown(line[end:])
    if cells(before) + min(cells(meant), room // 2) > room - 1:
        before = "..." + _tail(before, min(_CONTEXT, room // 3))
    space = room - cells(before)
    width = max(1, min(cells(meant), space))
    source = _head(before + meant + after, room)
    return source.rstrip(), " " * cells(before) + "^" * width


def _shown(text: str) -> str:
    return safe(text.replace("\t", TAB))


def _head(text: str, columns: int) -> str:
    """The head of a text; a cut is marked."""
    if cells(text) <= columns:
        return text
    kept = text[:columns]
    while cells(kept) > columns - 3:
        kept = kept[:-1]
    return kept + "..."


def _tail(text: str, columns: int) -> str:
    kept = text[-columns:]
    while cells(kept) > columns:
        kept = kept[1:]
    return kept


def concise(name: str, found: Iterable[Told]) -> list[str]:
    """One line a finding, for grep and editors: `FILE:LINE:COLUMN: CODE message`."""
    lines = []
    for each in found:
        finding = each.finding
        advice = f"; {safe(finding.help)}" if finding.help else ""
        place = f"{safe(name)}:{max(finding.line, 1)}:{max(finding.column, 1)}"
        kind = "" if each.severity == "error" else "warning: "
        lines.append(f"{place}: {finding.code} {kind}{each.sentence}{advice}")
    return lines


def github(name: str, found: Iterable[Told]) -> list[str]:
    """Workflow commands that a code host shows as annotations."""
    lines = []
    for each in found:
        finding, place = each.finding, each.finding.place
        facts: dict[str, object] = {
            "file": name,
            "line": max(place.line, 1),
            "col": max(place.column, 1),
        }
        if place.end_column:
            facts["endColumn"] = place.end_column
        facts["title"] = finding.code
        attributes = ",".join(f"{key}={_property(str(value))}" for key, value in facts.items())
        advice = f"; {safe(finding.help)}" if finding.help else ""
        lines.append(f"::{each.severity} {attributes}::{_data(each.sentence + advice)}")
    return lines


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def documents(found: Iterable[Told]) -> list[dict[str, object]]:
    """The findings as JSON bodies."""
    return [
        {
            "code": each.finding.code,
            "severity": each.severity,
            "line": each.finding.line or None,
            "column": each.finding.column or None,
            "end_column": each.finding.place.end_column or None,
            "key": each.finding.key or None,
            "message": each.finding.message,
            "help": each.finding.help,
        }
        for each in found
    ]


def summary(name: str, check: PolicyCheck) -> str:
    """The last line."""
    errors, warnings = len(check.errors), len(check.warnings)
    parts = [count(errors, "error")] if errors else []
    parts += [count(warnings, "warning")] if warnings else []
    if parts:
        return f"{', '.join(parts)} in {safe(name)}"
    policy = check.policy
    assert policy is not None, "a contract without errors has values"
    return (
        f"{safe(name)} is valid: {count(len(policy.profiles), 'profile')}, default "
        f"{safe(policy.default_profile)}, at most {policy.max_concurrent_experiments} at once"
    )
