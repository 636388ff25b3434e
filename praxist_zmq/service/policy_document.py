"""A contract's YAML text as nodes with places: the door, before any rule of the contract.

It reads the file within limits and composes nodes without building objects from them (no tag runs
code, no alias is unfolded). It tells duplicate keys, which PyYAML would drop in silence. It knows
no field of the contract.
Source: YAML 1.1 as PyYAML reads it, its set of allowed characters included.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..errors import PraxistError
from .policy_findings import NOWHERE, Finding, Findings, Place, meant, place_of, short_key

FILE_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 64
NODES_MAX = 200_000
ALIASES_MAX = 200
KEYS_MAX = 1_000
LISTED_MAX = 8
MERGE_TAG = "tag:yaml.org,2002:merge"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAKS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What PyYAML counts as the end of a line: lines must be split where it counts them."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping with its value."""

    name: str
    key: ScalarNode
    value: Node


def source_lines(text: str) -> list[str]:
    """The lines of a text, as findings count them."""
    return _BREAKS.split(text)


def read_text(path: Path, findings: Findings) -> str:
    """The file as text; what is no contract by its size or encoding is among the errors.

    Raises `path_unusable` when there is no readable regular file.
    """
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
        findings.error("PZ107", None, "", f"the file is over {FILE_BYTES_MAX} bytes")
        return ""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode("utf-8-sig", "replace")
        message = f"not UTF-8 text: the byte 0x{body[error.start]:02x}"
        findings.errors.append(
            Finding("PZ100", _at(before, 1), "", message, "save the file as UTF-8")
        )
        return body.decode("utf-8-sig", "replace")


def _at(before: str, length: int) -> Place:
    """The place after the text `before`."""
    lines = source_lines(before)
    column = len(lines[-1]) + 1
    return Place(len(lines), column, column + length)


def compose(text: str, findings: Findings) -> Node | None:
    """The root node, or None with the reason among the errors."""
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        message = f"not valid YAML: the character U+{ord(forbidden.group()):04X} is not allowed"
        findings.errors.append(Finding("PZ100", _at(text[: forbidden.start()], 1), "", message))
        return None
    try:
        excess = _over_limit(text)
        if excess is not None:
            findings.errors.append(excess)
            return None
        root: Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        what = f"not valid YAML: {error.problem or error.context or 'unreadable'}"
        place = _within(text, _place_of_mark(error.problem_mark or error.context_mark))
        findings.errors.append(Finding("PZ100", place, "", what[:300], _advice(text, place)))
        return None
    except yaml.YAMLError as error:
        findings.error("PZ100", None, "", f"not valid YAML: {str(error)[:200]}")
        return None
    if root is None:
        findings.error("PZ100", None, "", "the file holds nothing")
    return root


def _place_of_mark(mark: Any) -> Place:
    return NOWHERE if mark is None else Place(mark.line + 1, mark.column + 1, mark.column + 2)


def _within(text: str, place: Place) -> Place:
    """A place past the last words of a text becomes their end, so that it can be shown."""
    lines = source_lines(text.rstrip())
    if place.line <= len(lines):
        return place
    column = len(lines[-1]) + 1
    return Place(len(lines), column, column + 1)


def _advice(text: str, place: Place) -> str | None:
    """What usually causes unreadable YAML at such a place."""
    lines = source_lines(text)
    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    if line[: len(line) - len(line.lstrip())].count("\t"):
        return "indent with spaces; YAML takes no tabs"
    if line.rstrip() in ("---", "..."):
        return "a task file holds one document"
    return None


def _over_limit(text: str) -> Finding | None:
    """The first excess. Walks the events, which needs no recursion."""
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
                place = _place_of_mark(event.start_mark)
                return Finding("PZ107", place, "", f"over {limit} {what}")
    return None


def entries(node: MappingNode, path: str, findings: Findings) -> list[Entry]:
    """The keys of a mapping: duplicates are errors, `<<` is merged in as YAML has it."""
    own: dict[str, Entry] = {}
    merged: dict[str, Entry] = {}
    if len(node.value) > KEYS_MAX:
        findings.error("PZ107", node, path, f"over {KEYS_MAX} keys")
        return []
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            findings.error("PZ104", key, path, "a key must be plain text")
        elif key.tag == MERGE_TAG:
            for entry in _merge_sources(node, key, value, path, findings):
                merged.setdefault(entry.name, entry)
        elif key.value in own:
            first = own[key.value].key.start_mark.line + 1
            message = f"set twice; the first is on line {first}"
            findings.error("PZ103", key, join(path, key.value), message, "keep one of the two")
        else:
            own[key.value] = Entry(key.value, key, value)
    return [*own.values(), *(entry for name, entry in merged.items() if name not in own)]


def _merge_sources(
    node: MappingNode, merge: Node, value: Node, path: str, findings: Findings
) -> Iterator[Entry]:
    """The keys that `<<: value` brings into `node`; the earlier source wins. One level only, so
    that merges of merges cannot multiply."""
    for source in value.value if isinstance(value, SequenceNode) else [value]:
        if not isinstance(source, MappingNode) or source is node or len(source.value) > KEYS_MAX:
            message = "`<<` must name a mapping, or a list of mappings"
            findings.error("PZ109", merge, path, message)
            return
        for key, inner in source.value:
            if isinstance(key, ScalarNode) and key.tag == MERGE_TAG:
                findings.error("PZ109", key, path, "a merged mapping may not merge another")
            elif isinstance(key, ScalarNode):
                yield Entry(key.value, key, inner)


def known_entries(
    node: MappingNode, path: str, valid: Collection[str], what: str, findings: Findings
) -> dict[str, Entry]:
    """The entries with a valid key; every other key is wrong, and the nearest one is named."""
    found: dict[str, Entry] = {}
    for entry in entries(node, path, findings):
        key = join(path, entry.name)
        if entry.name in valid:
            found[entry.name] = entry
            findings.places[short_key(key)] = place_of(entry.value)
        else:
            help = nearest(entry.name, valid) or _listed(valid)
            findings.wrong(
                "PZ101", entry.key, key, f"unknown {what}", help, instead="it is left out"
            )
    return found


def _listed(valid: Collection[str]) -> str:
    if len(valid) > LISTED_MAX:
        return "`praxist-zmq config explain` lists the valid keys"
    return f"valid: {', '.join(valid)}"


def nearest(word: str, valid: Collection[str], cutoff: float = 0.6) -> str | None:
    """`did you mean ...?`, or None when nothing valid is near."""
    near = difflib.get_close_matches(word[:80].strip().lower(), valid, 1, cutoff)
    return meant(near[0]) if near else None


def join(path: str, name: str) -> str:
    """The path of the key `name` below `path`."""
    shown = name if name.isprintable() and len(name) <= 80 else repr(name[:80])
    return f"{path}.{shown}" if path else shown
