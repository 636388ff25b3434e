"""The zygote and the shim, without a launcher."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from praxist_zmq.host.nursery import CLEAN_ENVIRONMENT
from praxist_zmq.host.shim import LAUNCH, LENGTH, candidates, launch_frame, quoted

ROOT = Path(__file__).resolve().parents[3]


def test_the_zygote_imports_only_what_a_shim_needs() -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1]); import praxist_zmq.host.zygote;"
        "print(*sorted(sys.modules))"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(ROOT)]
    shown = subprocess.run(
        command, env=CLEAN_ENVIRONMENT, check=True, capture_output=True, text=True
    )
    loaded = shown.stdout.split()
    assert "praxist_zmq.host.shim" in loaded
    unwanted = (
        "site",
        "typing",
        "enum",
        "re",
        "json",
        "socket",
        "pydantic",
        "zmq",
        "psutil",
        "subprocess",
        "threading",
        "asyncio",
        "pathlib",
    )
    assert not [name for name in loaded if name.partition(".")[0] in unwanted]
    ours = {name for name in loaded if name.startswith("praxist_zmq")}
    assert ours == {
        "praxist_zmq",
        "praxist_zmq.host",
        "praxist_zmq.host.shim",
        "praxist_zmq.host.subreaper",
        "praxist_zmq.host.zygote",
    }


def test_a_launch_frame_keeps_every_byte() -> None:
    whole = launch_frame([b"", b"\xff" * 1000, b"\n"], b"/a b", {b"A": b"", b"\xfe": b"x=y"})
    (size,) = LENGTH.unpack_from(whole)
    assert (size, whole[4:5]) == (len(whole) - 4, LAUNCH)
    parts = [b"/a b", b"3", b"", b"\xff" * 1000, b"\n", b"A", b"", b"\xfe", b"x=y"]
    assert whole[5:].split(b"\0") == parts


@pytest.mark.parametrize("text", ["", 'a "b" \\ c\n\t\0\x1f', "ümlaut \U0001f600 \x7f"])
def test_a_quoted_text_is_json(text: str) -> None:
    assert json.loads(quoted(text)) == text


def test_a_program_is_looked_for_as_execvp_does(tmp_path: Path) -> None:
    (tmp_path / "tool").touch()
    here = bytes(tmp_path)
    assert list(candidates(b"./tool", b"/bin")) == [b"./tool"]
    assert list(candidates(b"tool", b"/nowhere:" + here)) == [here + b"/tool"]
    assert list(candidates(b"tool", b"/nowhere")) == []
