"""A contract's YAML text as nodes with places: the door, before any rule of the contract.

It reads the file within limits, composes nodes without building objects from them (no tag runs
code, no alias is unfolded), and finds the mapping that is the contract in a whole task file. It
tells duplicate keys, which PyYAML would drop in silence. It knows no field of the contract.
Source: YAML 1.1 as PyYAML reads it; seed 000 for the place of the contract in a task file.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..errors import PraxistError

FILE_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 64
NODES_MAX = 200_000
ALIASES_MAX = 200
KEYS_MAX = 1_000
MERGE_TAG = "tag:yaml.org,2002:merge"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing to say about a contract, and where. Line and column count from 1; 0 is nowhere."""

    line: int
    column: int
    key: str
    """The key's path, as `compute_budget.resource_scheduler.profiles.gpu_work`; may be empty."""
    message: str
    help: str | None = None

    def text(self) -> str:
        """In one line: place, key, message, help."""
        place = f"{self.line}:{self.column}: " if self.line else ""
        key = f"{self.key}: " if self.key else ""
        advice = f"; {self.help}" if self.help else ""
        return f"{place}{key}{self.message}{advice}"


@dataclass(slots=True)
class Findings:
    """Errors and warnings of one contract, as they are found."""

    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def error(self, node: Node | None, key: str, message: str, help: str | None = None) -> None:
        """Note what makes the contract invalid."""
        self.errors.append(_finding(node, key, message, help))

    def warn(self, node: Node | None, key: str, message: str, help: str | None = None) -> None:
        """Note what is put right in silence elsewhere."""
        self.warnings.append(_finding(node, key, message, help))


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping with its value."""

    name: str
    key: ScalarNode
    value: Node


def _finding(node: Node | None, key: str, message: str, help: str | None) -> Finding:
    mark = node.start_mark if node is not None else None
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
    return Finding(line, column, key, message, help)


def read_text(path: Path) -> str:
    """The file as text. Raises `path_unusable`, or `contract_invalid` for size and encoding."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise PraxistError("path_unusable", f"{path}: not a regular file")
            with open(descriptor, "rb", closefd=False) as stream:
                body = stream.read(FILE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PraxistError("path_unusable", f"{path}: {error.strerror or error}") from None
    if len(body) > FILE_BYTES_MAX:
        raise PraxistError("contract_invalid", f"{path}: over {FILE_BYTES_MAX} bytes")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise PraxistError("contract_invalid", f"{path}:{line}: not UTF-8 text") from None


def compose(text: str, findings: Findings) -> Node | None:
    """The root node, or None with the reason among the errors."""
    try:
        _check_limits(text)
        root: Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        what = f"not valid YAML: {error.problem or error.context or 'unreadable'}"
        findings.errors.append(Finding(line, column, "", what[:300]))
        return None
    except yaml.YAMLError as error:
        findings.errors.append(Finding(0, 0, "", f"not valid YAML: {str(error)[:200]}"))
        return None
    if root is None:
        findings.error(None, "", "the file holds nothing")
    return root


def _check_limits(text: str) -> None:
    """Walk the events, which needs no recursion. Raises MarkedYAMLError at the first excess."""
    depth = nodes = aliases = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        nodes += isinstance(event, yaml.NodeEvent)
        for count, limit, what in (
            (depth, DEPTH_MAX, "levels"),
            (nodes, NODES_MAX, "nodes"),
            (aliases, ALIASES_MAX, "aliases"),
        ):
            if count > limit:
                mark: Any = event.start_mark
                raise yaml.MarkedYAMLError(problem=f"over {limit} {what}", problem_mark=mark)


def entries(node: MappingNode, path: str, findings: Findings) -> list[Entry]:
    """The keys of a mapping: duplicates are errors, `<<` is merged in as YAML has it."""
    own: dict[str, Entry] = {}
    merged: dict[str, Entry] = {}
    if len(node.value) > KEYS_MAX:
        findings.error(node, path, f"over {KEYS_MAX} keys")
        return []
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            findings.error(key, path, "a key must be plain text")
        elif key.tag == MERGE_TAG:
            for entry in _merge_sources(node, value, path, findings):
                merged.setdefault(entry.name, entry)
        elif key.value in own:
            first = own[key.value].key.start_mark.line + 1
            message = f"set twice; the first is on line {first}"
            findings.error(key, join(path, key.value), message, "keep one of the two")
        else:
            own[key.value] = Entry(key.value, key, value)
    return [*own.values(), *(entry for name, entry in merged.items() if name not in own)]


def _merge_sources(
    node: MappingNode, value: Node, path: str, findings: Findings
) -> Iterator[Entry]:
    """The keys that `<<: value` brings into `node`; the earlier source wins. One level only, so
    that merges of merges cannot multiply."""
    for source in value.value if isinstance(value, SequenceNode) else [value]:
        if not isinstance(source, MappingNode) or source is node or len(source.value) > KEYS_MAX:
            findings.error(value, path, "`<<` must name a mapping, or a list of mappings")
            return
        for key, inner in source.value:
            if isinstance(key, ScalarNode) and key.tag == MERGE_TAG:
                findings.error(key, path, "a merged mapping may not merge another")
            elif isinstance(key, ScalarNode):
                yield Entry(key.value, key, inner)


def known_entries(
    node: MappingNode, path: str, valid: Collection[str], what: str, findings: Findings
) -> dict[str, Entry]:
    """The entries with a valid key; every other key is an error that names the nearest one."""
    found: dict[str, Entry] = {}
    for entry in entries(node, path, findings):
        if entry.name in valid:
            found[entry.name] = entry
        else:
            help = nearest(entry.name, valid) or f"valid: {', '.join(valid)}"
            findings.error(entry.key, join(path, entry.name), f"unknown {what}", help)
    return found


def nearest(word: str, valid: Collection[str], cutoff: float = 0.6) -> str | None:
    """`did you mean ...?`, or None when nothing valid is near."""
    near = difflib.get_close_matches(word[:80].strip().lower(), valid, 1, cutoff)
    return f"did you mean `{near[0]}`?" if near else None


def join(path: str, name: str) -> str:
    """The path of the key `name` below `path`."""
    shown = name if name.isprintable() and len(name) <= 80 else repr(name[:80])
    return f"{path}.{shown}" if path else shown
