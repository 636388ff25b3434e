"""The schema takes what the reader takes without a word, and refuses what it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from praxist_zmq.service.policy_file import check_policy
from praxist_zmq.service.policy_keys import NOT_IN_CONTRACTS, contract_keys
from praxist_zmq.service.policy_schema import task_schema
from praxist_zmq.service.policy_template import template
from tests.arch.source import CHECKOUT

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}
UNDERSTOOD = {
    "$schema", "$defs", "$ref", "title", "description", "type", "enum", "anyOf", "pattern",
    "minimum", "maximum", "exclusiveMinimum", "properties", "additionalProperties",
    "propertyNames", "items", "required", "not", "if", "then",
}  # fmt: skip


def _is(value: Any, names: list[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, TYPES[name]) for name in names)


def fits(value: Any, schema: Any, root: dict[str, Any]) -> bool:
    """A validator for the part of JSON Schema that the schema uses (a word beyond it fails)."""
    if schema is False:
        return False
    assert set(schema) <= UNDERSTOOD, set(schema) - UNDERSTOOD
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    names = schema.get("type", list(TYPES))
    if not _is(value, names if isinstance(names, list) else [names]):
        return False
    if "not" in schema and fits(value, schema["not"], root):
        return False
    if "if" in schema and fits(value, schema["if"], root) and not fits(value, schema["then"], root):
        return False
    if isinstance(value, dict) and not set(schema.get("required", ())) <= set(value):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "anyOf" in schema and not any(fits(value, option, root) for option in schema["anyOf"]):
        return False
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            return False
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            return False
    if isinstance(value, list):
        return all(fits(item, schema.get("items", {}), root) for item in value)
    return not isinstance(value, dict) or _fits_object(value, schema, root)


def _fits_object(value: dict[Any, Any], schema: dict[str, Any], root: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    rest = schema.get("additionalProperties", {})
    return all(
        isinstance(name, str)
        and fits(name, schema.get("propertyNames", {}), root)
        and fits(inner, known.get(name, rest), root)
        for name, inner in value.items()
    )


def taken(contract: str) -> bool:
    schema = task_schema()
    value = {"task": {"any": 1}, "compute_budget": {"resource_scheduler": yaml.safe_load(contract)}}
    return fits(value, schema, schema)


def taken_alone(contract: str) -> bool:
    """The contract as a file of its own, with the section's name and without."""
    schema, value = task_schema(), yaml.safe_load(contract)
    flat = fits(value, schema, schema)
    assert fits({"resource_scheduler": value}, schema, schema) == flat
    return flat


GOOD = [
    "{mode: central}",
    "{mode: Central, max_concurrent_experiments: '8', supply_signal_enabled: 'Yes'}",
    "{mode: central, cpu_low_pct: '6e1', mature_supply_fraction: 0, deadline_admission: off}",
    "{mode: central, profiles: {a: {}, b: {accelerator: GPU, gpu_memory_gb: 0.5}}}",
    "{mode: central, profiles: {a: {pressure_domains: []}, b: {pressure_domains: [CPU, io]}}}",
]
BAD = [
    "{mode: centrall}",
    "{mode: central, suply_lease_seconds: 600}",
    "{mode: central, max_concurrent_experiments: 2.5}",
    "{mode: central, max_concurrent_experiments: true}",
    "{mode: central, max_concurrent_experiments: eight}",
    "{mode: central, cpu_low_pct: ~}",
    "{mode: central, cpu_low_pct: nan}",
    "{mode: central, deadline_admission: 1}",
    "{mode: central, deadline_admission: yess}",
    "{mode: central, profiles: []}",
    "{mode: central, profiles: {a: ~}}",
    "{mode: central, profiles: {' a': {}}}",
    "{mode: central, profiles: {a: {accelerator: tpu}}}",
    "{mode: central, profiles: {a: {accelerator: gpu, gpu_memory_gb: 0}}}",
    "{mode: central, profiles: {a: {accelerator: gpu, gpu_memory_gb: ~}}}",
    "{mode: central, profiles: {a: {accelerator: gpu, gpu_count: 2000}}}",
    "{mode: central, profiles: {a: {pressure_domains: [i0]}}}",
    "{mode: central, profiles: {a: {pressure_domains: cpu}}}",
    "{mode: central, profiles: {a: {vram: 3}}}",
    "[]",
    "~",
]
OUT_OF_RANGE = ["{mode: central, supply_lease_seconds: 60}", "{mode: central, cpu_low_pct: 101}"]


@pytest.mark.parametrize("contract", GOOD)
def test_a_good_contract_is_taken(contract: str) -> None:
    check = check_policy(f"resource_scheduler: {contract}\n")
    assert (check.errors, check.warnings) == ([], [])
    assert taken(contract)
    assert taken_alone(contract)


@pytest.mark.parametrize("contract", BAD)
def test_what_the_reader_refuses_is_refused(contract: str) -> None:
    assert check_policy(f"resource_scheduler: {contract}\n").errors
    assert not taken(contract)
    if contract.startswith("{"):
        assert not taken_alone(contract)


@pytest.mark.parametrize("contract", OUT_OF_RANGE)
def test_what_the_reader_warns_of_is_marked_too(contract: str) -> None:
    assert check_policy(f"resource_scheduler: {contract}\n").warnings
    assert not taken(contract)


@pytest.mark.parametrize("path", sorted((CHECKOUT / "conf").glob("contract*.yaml")))
def test_the_examples_are_taken(path: Path) -> None:
    schema = task_schema()
    assert fits(yaml.safe_load(path.read_text()), schema, schema)


def test_the_templates_are_taken_and_other_owners_are_left_alone() -> None:
    schema = task_schema()
    for size in ("minimal", "usual", "full"):
        assert fits(yaml.safe_load(template(size)), schema, schema)  # type: ignore[arg-type]
    assert fits({"anything": [1], "compute_budget": {"hours": 4}}, schema, schema)
    strict = [name for name, inner in schema["$defs"].items() if "additionalProperties" in inner]
    assert strict == ["contract", "profile"]
    assert "additionalProperties" not in schema


def test_every_key_has_words_and_no_setting_of_up_is_in_it() -> None:
    defs = task_schema()["$defs"]
    known = [*defs["contract"]["properties"], *defs["profile"]["properties"]]
    assert sorted(known) == sorted(key.name for key in contract_keys().values())
    assert NOT_IN_CONTRACTS not in known
    for part in defs.values():
        assert all(inner["description"] for inner in part["properties"].values())
