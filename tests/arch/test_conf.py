"""The example files of conf/ are what the program reads."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import pytest
import yaml

from praxist_zmq.protocol.policy import SchedulerPolicy
from praxist_zmq.service.policy_file import read_policy
from tests.arch.source import CHECKOUT

CONTRACTS = sorted((CHECKOUT / "conf").glob("contract*.yaml"))


def test_there_are_examples() -> None:
    assert [path.name for path in CONTRACTS] == ["contract.cpu.yaml", "contract.example.yaml"]


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.name)
def test_a_contract_has_only_known_keys_and_values_in_range(path: Path) -> None:
    document: Any = yaml.safe_load(path.read_text("utf-8"))
    contract = document["compute_budget"]["resource_scheduler"]
    policy = SchedulerPolicy.model_validate(contract, strict=False)
    assert policy.default_profile in policy.profiles


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.name)
def test_a_contract_is_read_without_a_warning(path: Path) -> None:
    reading = read_policy(path)
    assert list(reading.warnings) == []
    assert reading.policy.default_profile in reading.policy.profiles


def test_the_unit_lets_experiments_outlive_the_service() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(CHECKOUT / "conf" / "praxist-zmq.service")
    service = unit["Service"]
    assert service["KillMode"] == "process"
    assert service["Type"] == "notify"
    assert " up " in service["ExecStart"]
    assert service["OOMPolicy"] == "continue"
    permanent = {"2", "65", "73", "74", "78"}
    assert permanent <= set(service["RestartPreventExitStatus"].split())
