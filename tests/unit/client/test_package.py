"""`from praxist_zmq import ...`: what is there, and that it costs only what is used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import praxist_zmq
from praxist_zmq.client import Client
from praxist_zmq.client.submission import submit_request
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


def test_what_the_client_page_says_of_a_class_is_there() -> None:
    """`Name` with `a`, `b` and `c`: each is an attribute of what has that name."""
    page = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
    said = re.findall(r"`(\w+)`\s+with\s+((?:`\w+`(?:,\s+|\s+and\s+)?)+)", page)
    assert "PraxistError" in dict(said)
    for name, attributes in said:
        found = getattr(praxist_zmq, name)
        subject = found("usage", "x") if name == "PraxistError" else found
        for attribute in re.findall(r"`(\w+)`", attributes):
            assert hasattr(subject, attribute), f"{name}.{attribute}"


def test_the_working_directory_is_told_where_the_environment_tells_one(tmp_path: Path) -> None:
    def told(environment: dict[str, str], cwd: Path | None) -> dict[str, Any]:
        asked = submit_request(tag="t", peer="p", command=["x"], environment=environment, cwd=cwd)
        return dict(asked["environment"])

    assert told({"PWD": "/elsewhere", "A": "b"}, tmp_path) == {"PWD": str(tmp_path), "A": "b"}
    assert told({"A": "b"}, tmp_path) == {"A": "b"}, "an empty environment stays empty"
    assert told({"PWD": "/a/link"}, None) == {"PWD": "/a/link"}, "as the shell says it"
