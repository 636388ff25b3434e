"""core/ and protocol/ decide from values alone: no clock, files, randomness, sockets, logging."""

from __future__ import annotations

import ast

import pytest

from tests.arch.source import PACKAGE, Source, calls, imports, in_folder

FORBIDDEN_MODULES = frozenset(
    # the clock, randomness, the operating system, other processes and threads, logging
    {"time", "random", "uuid", "secrets", "os", "pathlib", "io", "shutil", "tempfile", "sys"}
    | {"platform", "socket", "select", "selectors", "subprocess", "signal", "threading"}
    | {"multiprocessing", "asyncio", "logging", "structlog"}
    # other layers' libraries
    | {"zmq", "psutil", "pynvml", "click", "rich", "yaml"}
)
FORBIDDEN_CALLS = frozenset({"open", "print", "input", "eval", "exec", "__import__", "breakpoint"})
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})

# os.fsencode is a pure function of its argument and the interpreter's start-up.
WAIVED = {("protocol/text.py", "os"), ("protocol/os_text.py", "os")}


def impurities(source: Source) -> list[str]:
    """What one file does that it may not."""
    name = str(source.path.relative_to(PACKAGE))
    found = [
        f"{source.at(node)}: imports {module.split('.')[0]}"
        for node, module in imports(source)
        if module.split(".")[0] in FORBIDDEN_MODULES and (name, module.split(".")[0]) not in WAIVED
    ]
    for node, called in calls(source):
        last = called.split(".")[-1]
        if called in FORBIDDEN_CALLS or ("." in called and last in CLOCK_CALLS):
            found.append(f"{source.at(node)}: calls {called}")
    return found


def test_core_and_protocol_are_pure() -> None:
    found = [line for source in in_folder("core", "protocol") for line in impurities(source)]
    assert not found, "time comes in as a Stamp, ids from sequence numbers:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "import time\n",
        "from os import environ\n",
        "def f():\n    import random\n",
        "x = open('f')\n",
        "from datetime import datetime\nx = datetime.now()\n",
    ],
)
def test_the_purity_test_sees_an_impurity(text: str) -> None:
    planted = Source(PACKAGE / "core" / "planted.py", ast.parse(text), 1)
    assert impurities(planted)
