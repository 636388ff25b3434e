"""A Python function as a worker: each unit calls it in a fresh interpreter.

Decides how the child finds the function again: by module and name, or by the script's file. A
fresh interpreter, not a fork: CUDA does not survive one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .unit import Unit, UnitsError

_CALL = Path(__file__).with_name("call.py")


def in_python(function: Callable[[Unit], Any]) -> Callable[[Unit], list[str]]:
    """A worker for `run` that calls `function(unit)` in a child; what it returns is the result.

    The function has to be found again by its name: one at the top of a module, or of the script,
    which then keeps its own work under `if __name__ == "__main__":`. It returns what JSON can
    hold, and raises `ScientificFailure` when the unit ran and its science failed. Raises
    UnitsError for a function that cannot be found again.
    """
    name = getattr(function, "__qualname__", "")
    mend = "give a function defined at the top of a module or script"
    if not name.isidentifier():
        raise UnitsError(f"{name or function!r} is not at the top of its module", "worker", mend)
    source = _source(function, mend)
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])
    words = [sys.executable, "-P", str(_CALL), source, name, path]
    return lambda unit: list(words)


def _source(function: Callable[[Unit], Any], mend: str) -> str:
    """`module:NAME`, or `file:PATH` for the script itself."""
    if function.__module__ != "__main__":
        return f"module:{function.__module__}"
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return f"module:{spec.name}"
    file = getattr(main, "__file__", None)
    if file is None:
        raise UnitsError("its program has no file", "worker", mend)
    return f"file:{os.path.abspath(file)}"
