"""The child of a Python worker: finds the function, calls it with its unit, writes the result.

Run by `units.target` as a script; imports nothing of the task before its place is known.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from types import ModuleType


def main(source: str, name: str, path: str) -> int:
    """Call `name` of `source`; the exit status."""
    sys.path[:] = json.loads(path)
    from praxist_zmq.units.unit import SCIENTIFIC, ScientificFailure, current

    unit = current()
    function = getattr(_load(source), name)
    try:
        result = function(unit)
    except ScientificFailure as failure:
        print(f"ScientificFailure: {failure}", file=sys.stderr)
        return SCIENTIFIC
    beside = f"{unit.result}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(beside, unit.result)
    return 0


def _load(source: str) -> ModuleType:
    kind, _, place = source.partition(":")
    if kind == "module":
        return importlib.import_module(place)
    spec = importlib.util.spec_from_file_location("praxist_unit_script", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
