"""`from praxist_zmq import ...`: what is there, and that it costs only what is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import praxist_zmq
from praxist_zmq.client import Client
from praxist_zmq.errors import PraxistError

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_PYDANTIC = """
import sys
sys.modules["pydantic"] = None
import praxist_zmq
assert "zmq" not in sys.modules and "praxist_zmq.errors" not in sys.modules
from praxist_zmq import PraxistError
assert "zmq" not in sys.modules
from praxist_zmq import Client
try:
    Client(sys.argv[1]).status()
except PraxistError as error:
    print(error.code)
"""


def test_the_names_are_those_of_their_modules() -> None:
    assert praxist_zmq.Client is Client
    assert praxist_zmq.PraxistError is PraxistError
    assert set(praxist_zmq.__all__) == {"Client", "PraxistError", "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        getattr(praxist_zmq, "Other")  # noqa: B009 (mypy knows that it is not there)


def test_they_load_when_used_and_without_pydantic(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYDANTIC, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("no_scheduler\n", "")
