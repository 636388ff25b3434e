"""Contracts to begin with: what `config init` writes. Each is read without a finding.

Source: seed 000 "Task Contract" for the shape; meanings, defaults and ranges from `policy_keys`.
"""

from __future__ import annotations

from textwrap import wrap
from typing import Literal

from .policy_keys import ANY_PROFILE, ContractKey, contract_keys, shown
from .policy_schema import SCHEMA_FILE

TemplateSize = Literal["minimal", "usual", "full"]
_COLUMNS = 88
_HEAD = f"# yaml-language-server: $schema=./{SCHEMA_FILE}\n"
_START = """\
# The resource contract of a run. Start one with it:
#   praxist-zmq --run-dir RUN up --config THIS_FILE
"""
_MINIMAL = """\
compute_budget:
  resource_scheduler:
    mode: central
    max_concurrent_experiments: 4
    profiles:
      cpu_work:
        accelerator: cpu
"""
_USUAL = """\
# Check it:              praxist-zmq config check THIS_FILE
# What a key means:      praxist-zmq config explain KEY
compute_budget:
  resource_scheduler:
    mode: central

    # How many experiments may run at a time. The limit starts at the initial number and moves
    # between the minimum and the maximum with the kinds of host pressure that the profiles of
    # waiting and running experiments declare.
    initial_concurrent_experiments: 2
    min_concurrent_experiments: 1
    max_concurrent_experiments: 8

    # The profile of a submission that names none.
    default_profile: cpu_work

    # The kinds of experiment. An experiment never runs on another device class than its profile's.
    profiles:
      cpu_work:
        accelerator: cpu
        # Kinds of host pressure that hold it back: cpu, memory, io; [] for none.
        pressure_domains: [cpu, memory]

      # One GPU, shared with others as far as the declared demands allow. Leave out memory or
      # utilisation while it is unknown: the experiment then has its device alone.
      # gpu_work:
      #   accelerator: gpu
      #   gpu_count: 1
      #   gpu_memory_gb: 20
      #   gpu_utilization_pct: 45
      #   # Not cpu: data loaders keep the cores busy, and GPUs would wait for them.
      #   pressure_domains: [memory]
"""
_EXAMPLES = {
    "max_concurrent_experiments": "8",
    "initial_concurrent_experiments": "1",
    "default_profile": "gpu_work",
    f"{ANY_PROFILE}.accelerator": "gpu",
    f"{ANY_PROFILE}.gpu_count": "1",
    f"{ANY_PROFILE}.gpu_memory_gb": "20",
    f"{ANY_PROFILE}.gpu_utilization_pct": "45",
}


def template(size: TemplateSize) -> str:
    """The text of a contract to begin with."""
    if size == "minimal":
        return _HEAD + _START + _MINIMAL
    if size == "usual":
        return _HEAD + _START + _USUAL
    lines = [_HEAD + _START + "# Every key with its meaning, its type and its default."]
    lines += ["compute_budget:", "  resource_scheduler:"]
    for key in contract_keys().values():
        if key.path == "profiles":
            lines += [*_comment(key, "    "), "    profiles:", "      cpu_work:"]
            lines += ["        accelerator: cpu", "", "      gpu_work:"]
        elif key.path.startswith(f"{ANY_PROFILE}."):
            lines += [*_comment(key, "        "), f"        {key.name}: {_example(key)}"]
        else:
            lines += [*_comment(key, "    "), f"    {key.name}: {_example(key)}"]
    return "\n".join(lines) + "\n"


def _comment(key: ContractKey, indent: str) -> list[str]:
    facts = ", ".join(word for word in (key.type, key.range_words) if word)
    lines = wrap(f"{key.meaning}.", _COLUMNS - len(indent))
    lines += wrap(f"({facts}; default: {key.default_words})", _COLUMNS - len(indent))
    return ["", *(f"{indent}# {line}" for line in lines)]


def _example(key: ContractKey) -> str:
    if key.path in _EXAMPLES:
        return _EXAMPLES[key.path]
    return shown(key.default)
