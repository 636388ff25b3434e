"""The profiles of a contract: the declared shapes of experiments.

A demand that is not declared stays unknown, which means exclusive placement; it is never filled
in. A CPU profile holds no device figures, whatever was written.
Source: seed 000 "Task Contract"; profile fields as in the reference of the original system.
"""

from __future__ import annotations

import math
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from yaml.nodes import MappingNode, Node, SequenceNode

from ..protocol.ids import ProfileName
from ..protocol.policy import PressureDomain, Profile
from .policy_document import Entry, Findings, entries, join, known_entries, nearest
from .policy_values import bounded, float_value, int_value, kind_of, text_value

GPU_COUNT_MAX = 1_024
LIST_MAX = 100
DOMAINS: tuple[str, ...] = get_args(PressureDomain)
_FIELDS = tuple(Profile.model_fields)
_NAME: TypeAdapter[str] = TypeAdapter(ProfileName)


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
            return {"default": Profile()}
        if not isinstance(entry.value, MappingNode):
            message = f"must be a mapping of profiles, not {kind_of(entry.value)}"
            self._findings.error(entry.value, key, message)
            return {}
        profiles: dict[str, Profile] = {}
        declared = entries(entry.value, key, self._findings)
        for item in declared:
            path = join(key, item.name)
            if self._is_profile_name(item, path):
                profiles[item.name] = self._read_profile(item.value, path)
        if not entry.value.value:
            self._findings.warn(entry.value, key, "none declared; one CPU profile `default` is")
            return {"default": Profile()}
        return profiles

    def _is_profile_name(self, item: Entry, path: str) -> bool:
        name = text_value(item.key, path, self._findings)
        if name is None:
            return False
        try:
            _NAME.validate_python(name)
        except ValidationError:
            message = "a profile's name must be 1 to 128 printable characters, no leading space"
            self._findings.error(item.key, path, message)
            return False
        return True

    def _read_profile(self, node: Node, path: str) -> Profile:
        if not isinstance(node, MappingNode):
            self._findings.error(node, path, f"must be a mapping, not {kind_of(node)}")
            return Profile()
        found = known_entries(node, path, _FIELDS, "profile key", self._findings)
        accelerator = self._accelerator(found.get("accelerator"), path)
        values: dict[str, Any] = {"accelerator": accelerator}
        values["gpu_count"] = self._gpu_count(found.get("gpu_count"), accelerator == "gpu", path)
        for name, high in (("gpu_memory_gb", math.inf), ("gpu_utilization_pct", 100.0)):
            demand = self._demand(found.get(name), join(path, name), high)
            if demand is not None and accelerator == "gpu":
                values[name] = demand
            elif demand is not None:
                message = "has no effect in a CPU profile; it is left out"
                self._findings.warn(found[name].value, join(path, name), message)
        if "pressure_domains" in found:
            values["pressure_domains"] = self._domains(
                found["pressure_domains"].value, join(path, "pressure_domains")
            )
        return Profile(**values)

    def _accelerator(self, entry: Entry | None, path: str) -> str:
        if entry is None:
            return "cpu"
        key = join(path, "accelerator")
        text = text_value(entry.value, key, self._findings)
        if text is None:
            return "cpu"
        if text.strip().lower() in ("cpu", "gpu"):
            return text.strip().lower()
        self._findings.error(entry.value, key, f'must be "cpu" or "gpu", got "{text[:40]}"')
        return "cpu"

    def _gpu_count(self, entry: Entry | None, gpu: bool, path: str) -> int:
        default = 1 if gpu else 0
        if entry is None:
            return default
        key = join(path, "gpu_count")
        count = int_value(entry.value, key, self._findings)
        if count is None:
            return default
        if not gpu:
            if count != 0:
                message = f"{count} in a CPU profile; 0 will be used"
                self._findings.warn(entry.value, key, message, "a GPU profile has accelerator: gpu")
            return 0
        if count > GPU_COUNT_MAX:
            self._findings.error(entry.value, key, f"must be at most {GPU_COUNT_MAX}")
            return default
        return int(bounded(count, 1, GPU_COUNT_MAX, entry.value, key, self._findings))

    def _demand(self, entry: Entry | None, key: str, high: float) -> float | None:
        """A declared demand: positive; None when it is not declared."""
        if entry is None:
            return None
        value = float_value(entry.value, key, self._findings)
        if value is None:
            return None
        if value <= 0:
            message = f"must be positive, got {value:g}"
            self._findings.error(entry.value, key, message, "leave it out when it is unknown")
            return None
        return bounded(value, 0, high, entry.value, key, self._findings)

    def _domains(self, node: Node, key: str) -> tuple[str, ...]:
        if not isinstance(node, SequenceNode):
            message = f"must be a list of {', '.join(DOMAINS)}, not {kind_of(node)}"
            self._findings.error(node, key, message)
            return ()
        if len(node.value) > LIST_MAX:
            self._findings.error(node, key, f"over {LIST_MAX} items")
        domains: list[str] = []
        for item in node.value[:LIST_MAX]:
            text = text_value(item, key, self._findings)
            if text is None:
                continue
            domain = text.strip().lower()
            if domain not in DOMAINS:
                help = nearest(domain, DOMAINS, 0.5) or f"valid: {', '.join(DOMAINS)}"
                self._findings.error(item, key, f'unknown pressure domain "{text[:40]}"', help)
            elif domain not in domains:
                domains.append(domain)
        if "gpu" in domains:
            self._findings.warn(node, key, "`gpu` is accepted and has no effect here")
        return tuple(domains)
