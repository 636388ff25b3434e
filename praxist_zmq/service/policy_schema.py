"""The JSON Schema of a task file, for editors: what the reader takes without a word.

Strict inside the contract only, because a task file has other owners. It says what one value may
be; what concerns two values together (a default profile that is declared nowhere) only the reader
sees. Never reads a file.
Source: `policy_keys`; JSON Schema draft 2020-12.
"""

from __future__ import annotations

import math
from typing import Any

from .policy_findings import SECTION
from .policy_keys import ANY_PROFILE, ContractKey, contract_keys
from .policy_profiles import PROFILE_NAME_PATTERN
from .policy_values import FALSE_WORDS, TRUE_WORDS

SCHEMA_FILE = "praxist-task.schema.json"
_SPACE = r"^[ \t]*"
_END = r"[ \t]*$"
_INTEGER = _SPACE + "[-+]?[0-9]+" + _END
_NUMBER = _SPACE + r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?" + _END
Schema = dict[str, Any]


def task_schema() -> Schema:
    """The schema of a whole task file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A task with a praxist-zmq resource contract",
        "type": "object",
        "properties": {
            "compute_budget": {
                "type": ["object", "null"],
                "properties": {"resource_scheduler": {"$ref": "#/$defs/contract"}},
            },
            "resource_scheduler": {"$ref": "#/$defs/contract"},
        },
        "if": _flat(),
        "then": {"$ref": "#/$defs/contract"},
        "$defs": {"contract": _contract(), "profile": _profile()},
    }


def _flat() -> Schema:
    """A file that is a contract alone: neither section, and a key of the contract."""
    names = [key.name for key in contract_keys().values() if not key.path.startswith(ANY_PROFILE)]
    sections = [{"required": [name]} for name in SECTION]
    return {"not": {"anyOf": sections}, "anyOf": [{"required": [name]} for name in names]}


def _contract() -> Schema:
    keys = [key for key in contract_keys().values() if not key.path.startswith(ANY_PROFILE)]
    properties = {key.name: _value(key) for key in keys}
    properties["profiles"] = {
        **_described("profiles"),
        "type": "object",
        "propertyNames": _name_pattern(),
        "additionalProperties": {"$ref": "#/$defs/profile"},
    }
    properties["default_profile"] = {**_described("default_profile"), **_name_pattern()}
    return {
        "title": "The contract",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _profile() -> Schema:
    keys = [key for key in contract_keys().values() if key.path.startswith(f"{ANY_PROFILE}.")]
    return {
        "title": "The declared shape of one kind of experiment",
        "type": "object",
        "properties": {key.name: _value(key) for key in keys},
        "additionalProperties": False,
    }


def _described(path: str) -> Schema:
    key = contract_keys()[path]
    words = [key.meaning, key.range_words, f"default: {key.default_words}"]
    return {"description": ". ".join(word for word in words if word) + "."}


def _name_pattern() -> Schema:
    return {"type": "string", "pattern": PROFILE_NAME_PATTERN}


def _value(key: ContractKey) -> Schema:
    """The schema of a plain key. Bounds hold for numbers, patterns for numbers written as text."""
    head = _described(key.path)
    match key.type:
        case "boolean":
            words = (*TRUE_WORDS, *FALSE_WORDS)
            return {**head, "type": ["boolean", "string"], "pattern": _any_case(words)}
        case "integer":
            return {**head, "type": ["integer", "string"], "pattern": _INTEGER, **_bounds(key)}
        case "number":
            return {**head, "type": ["number", "string"], "pattern": _NUMBER, **_bounds(key)}
        case kind if kind.startswith("list of "):
            return {**head, "type": "array", "items": _one_of(key.choices)}
    return {**head, **_one_of(key.choices)}


def _bounds(key: ContractKey) -> Schema:
    found: Schema = {}
    if not math.isinf(key.low):
        found["exclusiveMinimum" if key.over else "minimum"] = _plain(key.low)
    if not math.isinf(key.high):
        found["maximum"] = _plain(key.high)
    if key.name.endswith("_pct"):
        found["not"] = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    return found


def _plain(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def _one_of(choices: tuple[str, ...]) -> Schema:
    """The choices for an editor to offer, and any way of writing them."""
    return {"anyOf": [{"enum": list(choices)}, {"type": "string", "pattern": _any_case(choices)}]}


def _any_case(words: tuple[str, ...]) -> str:
    """A pattern for the words in capitals or not; JSON Schema has no flag for it."""
    spelled = ["".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in word) for word in words]
    return f"{_SPACE}({'|'.join(spelled)}){_END}"
