"""The profiles of a contract: the declared shapes of experiments.

A demand that is not declared stays unknown, which means exclusive placement; it is never filled
in. A CPU profile holds no device figures, whatever was written.
Source: seed 000 "Task Contract"; profile fields as in the reference of the original system.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..protocol.ids import ProfileName
from ..protocol.policy import PressureDomain, Profile
from .policy_document import Entry, entries, join, known_entries, nearest
from .policy_findings import Findings, place_of, short_key
from .policy_values import (
    TEXT_TAG,
    bounded,
    float_value,
    int_value,
    is_percent,
    is_sane,
    kind_of,
)

GPU_COUNT_MAX = 1_024
LIST_MAX = 100
DOMAINS: tuple[str, ...] = get_args(PressureDomain)
ACCELERATORS: tuple[str, ...] = get_args(Profile.model_fields["accelerator"].annotation)
ON_LOST = ("hold", "requeue")
_DEFAULT_DOMAINS: tuple[str, ...] = Profile.model_fields["pressure_domains"].default
_FIELDS = tuple(Profile.model_fields)
_NAME: TypeAdapter[str] = TypeAdapter(ProfileName)
PROFILE_NAME_PATTERN: str = _NAME.json_schema()["pattern"]


def read_profiles(entry: Entry | None, parent: str, findings: Findings) -> dict[str, Profile]:
    """The profiles by name, in the order of the text; `default` when none is declared."""
    return _Profiles(findings).read(entry, join(parent, "profiles"))


class _Profiles:
    """One reading of the profiles; findings go to the shared list."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def read(self, entry: Entry | None, key: str) -> dict[str, Profile]:
        """All profiles. An invalid one still declares its name: no second error follows."""
        if entry is None:
            # Meant under a mistyped key, they are no second mistake where they are named.
            known = self._findings.tolerant or not self._findings.mistyped(key)
            return {"default": Profile()} if known else {}
        if not isinstance(entry.value, MappingNode):
            message = f"must be a mapping of profiles, not {kind_of(entry.value)}"
            self._findings.error("PZ104", entry.value, key, message)
            return {}
        profiles: dict[str, Profile] = {}
        declared = entries(entry.value, key, self._findings)
        for item in declared:
            path = join(key, item.name)
            self._findings.places[short_key(path)] = place_of(item.key)
            if not self._is_profile_name(item, path):
                continue
            profile = self._read_profile(item.value, path)
            if profile is not None:
                profiles[item.name] = profile
        if not profiles and not self._findings.errors:
            message = "none declared; one CPU profile `default` is"
            self._findings.warn("PZ123", entry.value, key, message)
            return {"default": Profile()}
        return profiles

    def _is_profile_name(self, item: Entry, path: str) -> bool:
        name = item.key.value
        if item.key.tag != TEXT_TAG:
            message = f"a profile's name must be text; YAML reads `{name[:40]}` as "
            help = f'quote it: "{name[:40]}"'
            self._wrong_profile("PZ106", item.key, path, message + kind_of(item.key), help)
            return False
        try:
            _NAME.validate_python(name)
        except ValidationError:
            message = "a profile's name must be 1 to 128 printable characters, no leading space"
            self._wrong_profile("PZ106", item.key, path, message, None)
            return False
        return True

    def _wrong_profile(
        self, code: str, node: Node, path: str, message: str, help: str | None
    ) -> None:
        instead = "the profile is left out"
        self._findings.wrong(code, node, path, message, help, instead=instead)

    def _read_profile(self, node: Node, path: str) -> Profile | None:
        """The profile; None for one that legacy mode leaves out."""
        if not isinstance(node, MappingNode):
            message = f"must be a mapping, not {kind_of(node)}"
            self._wrong_profile("PZ104", node, path, message, None)
            return None if self._findings.tolerant else Profile()
        found = known_entries(node, path, _FIELDS, "profile key", self._findings)
        accelerator = self._accelerator(found.get("accelerator"), path)
        demand: dict[str, Any] = {
            "gpu_count": self._gpu_count(found.get("gpu_count"), accelerator == "gpu", path)
        }
        for name, high in (("gpu_memory_gb", math.inf), ("gpu_utilization_pct", 100.0)):
            demand[name] = self._demand(found.get(name), join(path, name), high)
        values: dict[str, Any] = {"accelerator": accelerator or "cpu", "gpu_count": 0}
        if accelerator == "gpu":
            values.update(demand)
        elif accelerator == "cpu":
            self._without_effect([found[name] for name in demand if demand[name]], demand, path)
        if "pressure_domains" in found:
            values["pressure_domains"] = self._domains(
                found["pressure_domains"].value, join(path, "pressure_domains")
            )
        if "on_lost" in found:
            choice = self._choice(found["on_lost"].value, join(path, "on_lost"), ON_LOST)
            values["on_lost"] = choice or "hold"
        return Profile(**values)

    def _without_effect(self, void: list[Entry], demand: dict[str, Any], path: str) -> None:
        """What a CPU profile declares of devices: one finding, however much it is."""
        help = "a GPU profile has accelerator: gpu"
        if len(void) > 1:
            names = [entry.name for entry in void]
            message = (
                f"{', '.join(names[:-1])} and {names[-1]} have no effect in a CPU profile; "
                "they are left out"
            )
            self._findings.warn("PZ121", void[0].value, path, message, help)
        for entry in void if len(void) == 1 else ():
            message = "has no effect in a CPU profile; it is left out"
            if entry.name == "gpu_count":
                message = f"{demand['gpu_count']} in a CPU profile; 0 will be used"
            self._findings.warn("PZ121", entry.value, join(path, entry.name), message, help)

    def _accelerator(self, entry: Entry | None, path: str) -> str | None:
        """`cpu` or `gpu`. Anything else is an error in legacy mode too. None when it is not known
        what was meant, so that nothing is said of what would follow."""
        key = join(path, "accelerator")
        if entry is None:
            return None if self._findings.mistyped(key) else "cpu"
        return self._choice(entry.value, key, ACCELERATORS)

    def _choice(self, node: Node, key: str, choices: Sequence[str]) -> str | None:
        """One of a few words. Anything else is an error in legacy mode too, and None."""
        text = node.value if isinstance(node, ScalarNode) and node.tag == TEXT_TAG else ""
        if text.strip().lower() in choices:
            return text.strip().lower()
        shown = f'"{text[:40]}"' if text else kind_of(node)
        wanted = " or ".join(f'"{choice}"' for choice in choices)
        message = f"must be {wanted}, got {shown}"
        self._findings.error("PZ102", node, key, message, nearest(text, choices))
        return None

    def _gpu_count(self, entry: Entry | None, gpu: bool, path: str) -> int:
        default = 1 if gpu else 0
        if entry is None:
            return default
        key = join(path, "gpu_count")
        count = int_value(entry.value, key, self._findings)
        if count is None:
            return default
        if not gpu:
            return count
        if count > GPU_COUNT_MAX:
            message = f"must be at most {GPU_COUNT_MAX}, got {count}"
            self._findings.wrong("PZ102", entry.value, key, message)
            return default
        return int(bounded(count, 1, GPU_COUNT_MAX, entry.value, key, self._findings))

    def _demand(self, entry: Entry | None, key: str, high: float) -> float | None:
        """A declared demand: positive; None when it is not declared."""
        if entry is None:
            return None
        value = float_value(entry.value, key, self._findings, "leave it out when it is unknown")
        if value is None:
            return None
        if value <= 0:
            message = f"must be positive, got {value:g}"
            help = "leave it out when it is unknown"
            self._findings.wrong("PZ102", entry.value, key, message, help)
            return None
        if entry.name.endswith("_pct") and not is_percent(value, entry.value, key, self._findings):
            return None
        if not is_sane(value, entry.name, entry.value, key, self._findings):
            return None
        return bounded(value, 0, high, entry.value, key, self._findings)

    def _domains(self, node: Node, key: str) -> tuple[str, ...]:
        """The domains in order, each once. An empty list means none."""
        if not isinstance(node, SequenceNode):
            message = f"must be a list of {', '.join(DOMAINS)}, not {kind_of(node)}"
            help = f"write [{node.value}]" if getattr(node, "value", None) in DOMAINS else None
            self._findings.wrong("PZ104", node, key, message, help)
            return _DEFAULT_DOMAINS
        if len(node.value) > LIST_MAX:
            self._findings.error("PZ107", node, key, f"over {LIST_MAX} items")
        domains: list[str] = []
        for item in node.value[:LIST_MAX]:
            domain = self._domain(item, key)
            if domain == "gpu":
                message = "`gpu` is accepted as a pressure domain and has no effect"
                self._findings.warn("PZ121", item, key, message)
            if domain is not None and domain not in domains:
                domains.append(domain)
        return tuple(domains)

    def _domain(self, item: Node, key: str) -> str | None:
        is_text = isinstance(item, ScalarNode) and item.tag == TEXT_TAG
        domain = item.value.strip().lower() if is_text else ""
        if domain in DOMAINS:
            return domain
        help = nearest(domain, DOMAINS, 0.5) or f"valid: {', '.join(DOMAINS)}"
        shown = f'"{item.value[:40]}"' if is_text else kind_of(item)
        message = f"unknown pressure domain {shown}"
        self._findings.wrong("PZ102", item, key, message, help, instead="it is left out")
        return None
