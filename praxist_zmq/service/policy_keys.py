"""The keys of a contract: type, default, range and meaning of each, from the models themselves.

One source for the reader's bounds, `config explain`, `config init`, the schema and the docs.
It reads no file.
Source: `protocol.policy`; what differs from a plain default is in `_DEFAULT_WORDS`.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from ..protocol.policy import Profile, SchedulerPolicy
from .policy_findings import SECTION, short_key
from .policy_values import SIZES

NOT_IN_CONTRACTS = "max_parallel_runs_per_peer"
"""A setting of `up` that the model holds and no contract may have."""
ANY_PROFILE = "profiles.NAME"
_DEFAULT_WORDS = {
    "initial_concurrent_experiments": "the minimum",
    "default_profile": "the first profile",
    "profiles": "one CPU profile",
    f"{ANY_PROFILE}.gpu_count": "1, or 0 for cpu",
    f"{ANY_PROFILE}.gpu_memory_gb": "unknown",
    f"{ANY_PROFILE}.gpu_utilization_pct": "unknown",
}
_CLAMPED_ELSEWHERE = ("initial_concurrent_experiments",)


@dataclass(frozen=True, slots=True)
class ContractKey:
    """One key of a contract."""

    path: str
    """Inside the contract; a profile's keys are below `profiles.NAME`."""
    type: str
    choices: tuple[str, ...]
    """Every value, where they are few."""
    default: Any
    default_words: str
    low: float
    """The least value, -inf for none; `over` says that it is excluded."""
    high: float
    over: bool
    meaning: str

    @property
    def name(self) -> str:
        """The key itself."""
        return self.path.rsplit(".", 1)[-1]

    @property
    def full_path(self) -> str:
        """The path in a task file."""
        return ".".join((*SECTION, self.path))

    @property
    def range_words(self) -> str:
        """The range in words; empty for none."""
        low = "" if math.isinf(self.low) else f"{'over' if self.over else 'at least'} {self.low:g}"
        high = "" if math.isinf(self.high) else f"at most {self.high:g}"
        if low and high:
            return f"{'over ' if self.over else ''}{self.low:g} to {self.high:g}"
        return ", ".join(word for word in (low, high) if word)


def shown(value: Any) -> str:
    """A value as a contract has it; a demand that is not declared is `unknown`."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}"
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)


def fields() -> dict[str, FieldInfo]:
    """The fields of the model that a contract may set."""
    found = dict(SchedulerPolicy.model_fields)
    del found[NOT_IN_CONTRACTS]
    return found


def bounds(info: FieldInfo) -> tuple[float, float]:
    """The range of a number's field: -inf and inf where it is open."""
    low, high = -math.inf, math.inf
    for mark in info.metadata:
        low = float(getattr(mark, "ge", getattr(mark, "gt", low)))
        high = float(getattr(mark, "le", high))
    return low, high


@cache
def contract_keys() -> dict[str, ContractKey]:
    """Every key by its path, in the order of the models."""
    found = [_key(name, info) for name, info in fields().items()]
    found += [_key(f"{ANY_PROFILE}.{name}", i) for name, i in Profile.model_fields.items()]
    return {key.path: key for key in found}


def _key(path: str, info: FieldInfo) -> ContractKey:
    default = info.get_default(call_default_factory=True)
    low, high = bounds(info)
    size = SIZES.get(path.rsplit(".", 1)[-1])
    high = high if size is None else size.most
    if path in _CLAMPED_ELSEWHERE:
        low = -math.inf
    schema = _type_schema(info)
    return ContractKey(
        path=path,
        type=_type_words(schema),
        choices=tuple(schema.get("enum") or schema.get("items", {}).get("enum") or ()),
        default=default,
        default_words=_DEFAULT_WORDS.get(path) or shown(default),
        low=low,
        high=high,
        over=any(hasattr(mark, "gt") for mark in info.metadata),
        meaning=info.description or "",
    )


def _type_schema(info: FieldInfo) -> dict[str, Any]:
    kind: Any = info.annotation
    schema: dict[str, Any] = TypeAdapter(kind).json_schema()
    options = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    return options[0] if options else schema


def _type_words(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(schema["enum"])
    if schema.get("type") == "array":
        return "list of " + ", ".join(schema["items"]["enum"])
    words = {"object": "mapping", "string": "text"}
    kind = str(schema.get("type"))
    return words.get(kind, kind)


def find_key(named: str) -> ContractKey | None:
    """The key somebody names: by path, full path, through a profile's name, or by its last part."""
    keys = contract_keys()
    path = short_key(named.strip().strip("."))
    parts = path.split(".")
    if parts[0] == "profiles" and len(parts) > 1:
        path = f"{ANY_PROFILE}.{parts[-1]}"
    return keys.get(path) or keys.get(f"{ANY_PROFILE}.{path}")


def nearest_key(named: str) -> str | None:
    """The valid key that looks most like what was named."""
    names = [key.name for key in contract_keys().values()]
    near = difflib.get_close_matches(named.rsplit(".", 1)[-1][:80].lower(), names, 1, 0.5)
    return near[0] if near else None
