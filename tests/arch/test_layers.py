"""Imports point down, and each outside world has one door. See docs/style.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.arch.source import CHECKOUT, PACKAGE, Source, calls, imports, in_folder, package

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"__main__"}),
    frozenset({"__init__"}),
    frozenset({"cli", "web", "mcp"}),
    frozenset({"service", "client"}),
    frozenset({"core", "ledger", "transport", "host", "slurm"}),
    frozenset({"protocol"}),
    frozenset({"units"}),
    frozenset({"errors", "binding"}),
)
RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}

# The only folders that may import a module: its one door.
DOORS: dict[str, frozenset[str]] = {
    "zmq": frozenset({"transport"}),
    # units is for tasks: it starts what an evaluator starts, never an attempt.
    "time": frozenset({"host", "units"}),
    "subprocess": frozenset({"host", "units"}),
    "signal": frozenset({"host", "units"}),
    "psutil": frozenset({"host"}),
    "pynvml": frozenset({"host"}),
    "click": frozenset({"cli"}),
    "rich": frozenset({"cli"}),
}

# Modules that a short-lived client loads, where an import of pydantic costs more than the request.
LIGHT = (
    "errors.py",
    "binding.py",
    "protocol/envelope.py",
    "protocol/job_states.py",
    "protocol/limits.py",
    "host/paths.py",
    "host/plain_child.py",
    "host/protected.py",
    "service/peer_start.py",
    "client/__init__.py",
)


def unit_of(name: str) -> str | None:
    """The layer table's name for an imported name of ours; None for another's or a root name."""
    parts = name.split(".")
    if parts[0] != "praxist_zmq" or len(parts) == 1:
        return None
    top = PACKAGE / parts[1]
    if top.is_dir() or top.with_suffix(".py").is_file():
        return parts[1]
    return None  # an attribute of the package itself, such as __version__


def violations(source: Source) -> list[str]:
    """Imports of one file that do not point down."""
    found = []
    for node, name in imports(source):
        unit = unit_of(name)
        if unit is None or unit == source.unit:
            continue
        if unit not in RANK or RANK[unit] <= RANK[source.unit]:
            found.append(f"{source.at(node)}: {source.unit} must not import {unit} ({name})")
    return found


def test_every_folder_and_module_has_a_layer() -> None:
    units = {source.unit for source in package()}
    assert units - set(RANK) == set(), "give it a place in LAYERS and in docs/style.md"


def test_imports_point_down() -> None:
    found = [line for source in package() if source.unit in RANK for line in violations(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("module", sorted(DOORS))
def test_each_outside_module_has_one_door(module: str) -> None:
    found = [
        f"{source.at(node)}: only {'/'.join(DOORS[module])} imports {module}"
        for source in package()
        if source.unit not in DOORS[module]
        for node, name in imports(source)
        if name.split(".")[0] == module
    ]
    assert not found, "\n".join(found)


def test_only_the_ledger_syncs() -> None:
    found = [
        f"{source.at(node)}: {name}; only ledger/ syncs (see ledger.files)"
        for source in package()
        if source.unit != "ledger"
        for node, name in calls(source)
        if name.split(".")[-1] in ("fsync", "fdatasync", "sync_file_range")
    ]
    assert not found, "\n".join(found)


def test_only_the_step_commits_to_a_ledger() -> None:
    """Promise 1 has one place: nobody else in service/ appends, so nobody can send too early."""
    found = [
        f"{source.at(node)}: {name}; only service/step.py commits"
        for source in in_folder("service")
        if source.parts != ("service", "step")
        for node, name in calls(source)
        if name.endswith("ledger.commit")
    ]
    assert not found, "\n".join(found)


def test_only_the_step_gives_a_machines_sender_something_to_send() -> None:
    """Also a refusal: beside the step it would leave before what was asked earlier."""
    senders = {
        source.parts
        for source in in_folder("service")
        for _, name in calls(source)
        if name == "self._send"
    }
    assert senders == {("service", "step")}


def test_only_the_door_guards_and_binds() -> None:
    """A socket that was bound in another way might be bound before it is guarded."""
    binders = {
        source.parts
        for source in package()
        for _, name in calls(source)
        if name.split(".")[-1] in ("bind_checked", "guard")
    }
    assert binders == {("transport", "door")}


def test_light_modules_do_not_import_pydantic() -> None:
    light = {PACKAGE / name for name in LIGHT}
    found = [
        f"{source.at(node)}: {name}"
        for source in package()
        if source.path in light or source.unit == "transport"
        for node, name in imports(source)
        if name.split(".")[0] == "pydantic"
    ]
    assert not found, "\n".join(found)


def _module(path: str) -> str:
    """`client/__init__.py` -> `client`, `host/paths.py` -> `host.paths`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.mark.parametrize("unit", ["binding", "units"])
def test_what_tasks_load_needs_nothing_but_the_standard_library(unit: str) -> None:
    """Task harnesses load it in interpreters that lack the scheduler's dependencies."""
    sources = [source for source in package() if source.unit == unit]
    names = {name for source in sources for _, name in imports(source)}
    assert {name for name in names if unit_of(name) is not None} <= {
        name for name in names if unit_of(name) in ("binding", unit)
    }
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names | {"praxist_zmq"}
    program = f"import sys; import praxist_zmq.{unit}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", program],  # no site: no installed package can be found
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("praxist_zmq")}
    allowed = {"praxist_zmq", "praxist_zmq.binding"}
    assert {name for name in ours if not name.startswith("praxist_zmq.units")} <= allowed
    foreign = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert foreign - {"praxist_zmq", "__main__"} == set()


@pytest.mark.parametrize("module", [_module(path) for path in LIGHT])
def test_light_modules_stay_light_when_loaded(module: str) -> None:
    program = (
        f"import praxist_zmq.{module}, sys\n"
        "heavy = {'pydantic', 'rich', 'click', 'yaml', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, f'loads {sorted(heavy)}'\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_the_layer_test_sees_a_wrong_import(tmp_path: Path) -> None:
    """The rule's own test: a planted import up, sideways, relative or inside a function is seen."""
    import ast

    planted = {
        "core": "from ..ledger import log\n",
        "protocol": "def f():\n    import praxist_zmq.core.decision\n",
        "host": "from ..service import loop\n",
        "errors": "from .protocol import ids\n",
    }
    for unit, text in planted.items():
        path = PACKAGE / ("errors.py" if unit == "errors" else f"{unit}/planted.py")
        assert violations(Source(path, ast.parse(text), 1)), unit
