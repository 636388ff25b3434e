"""Files that are no contract, given to `config check`: told in words, soon, without a traceback."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from praxist_zmq.cli.main import run
from praxist_zmq.service.policy_file import check_file, check_policy

MIB = 1024 * 1024


def _deep(levels: int) -> bytes:
    return b"mode: central\nprofiles: " + b"{a: " * levels + b"1" + b"}" * levels


def _bomb() -> bytes:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    return "\n".join(["mode: central", *lines]).encode()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "10 MiB": (b"#" * (10 * MIB), "over 1048576 bytes"),
    "100,000 keys": (
        b"mode: central\n" + b"".join(b"k%d: 1\n" % i for i in range(80_000)),
        "over 1000 keys",
    ),
    "100,000 short keys": (b"{" + b"a: 1," * 150_000 + b"}", "over 200000 nodes"),
    "70 levels": (_deep(70), "over 64 levels"),
    "100,000 levels": (b"[" * 100_000, "nesting depth"),
    "an alias bomb": (_bomb(), "unknown key"),
    "300 aliases": (b"a: &a [1]\nb: [" + b"*a," * 300 + b"]\n", "over 200 aliases"),
    "a program": (Path("/bin/sh").read_bytes()[: MIB // 2], "not"),
    "random bytes": (random.Random(7).randbytes(4096), "not UTF-8"),
    "zeroes": (b"\0" * 4096, "U+0000"),
    "latin-1": ("mode: central\n# für\n".encode("latin-1"), "not UTF-8 text: the byte 0xfc"),
    "UTF-16": ("mode: central\n".encode("utf-16"), "not UTF-8"),
    "tabs": (b"mode: central\nprofiles:\n\ta: {}\n", "indent with spaces"),
    "documents": (b"mode: central\n---\nmode: central\n", "one document"),
    "an escape": (b"mode: central\n\x1b[2J: 1\n", "U+001B"),
    "a tag": (b"!!python/object/apply:os.system [id]\n", "must hold a mapping"),
    "one long line": (b"mode: central\nzz: " + b"x" * 900_000, "unknown key"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_told_in_words(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body, words = HOSTILE[name]
    path = tmp_path / "c.yaml"
    path.write_bytes(body)
    assert run(["config", "check", str(path)]) == 78
    shown = capfd.readouterr().out
    assert words in shown
    assert "\x1b" not in shown
    assert len(shown) < 100_000
    assert max(len(line) for line in shown.splitlines()) < 2_000


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gives_a_document_too(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(HOSTILE[name][0])
    assert run(["config", "check", str(path), "--json"]) == 78
    document = json.loads(capfd.readouterr().out)
    assert document["kind"] == "config_check"
    assert document["valid"] is False
    assert document["errors"] == len([f for f in document["findings"] if f["severity"] == "error"])


def test_what_is_no_regular_file_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, words in (
        (fifo, "not a regular file"),
        (tmp_path, "not a regular file"),
        (Path("/dev/null"), "not a regular file"),
        (tmp_path / "none", "No such file"),
    ):
        assert run(["config", "check", str(path)]) == 73
        assert words in capfd.readouterr().err


def test_other_line_ends_and_a_byte_order_mark_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfmode: central\r\nmax_concurrent_experiments: 3\r\n")
    check = check_file(path)
    assert (check.errors, check.warnings) == ([], [])
    assert check.policy is not None
    assert check.policy.max_concurrent_experiments == 3
    path.write_bytes(b"\xef\xbb\xbfzz: 1\r\nmode: central\r\n")
    (found,) = check_file(path).errors
    assert (found.line, found.column) == (1, 1)


def test_a_name_with_control_characters_is_shown_safely(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a\x1b[31m\nb.yaml"
    path.write_text('mode: central\n"\\e[2J": 1\n')
    assert run(["config", "check", str(path)]) == 78
    assert "\x1b" not in capfd.readouterr().out


def test_any_bytes_end_in_findings() -> None:
    seeded = random.Random(11)
    alphabet = "ab:-{}[]&*<>,#|?!'\" \n\t1.~%@`é\u2028"
    for _ in range(2_000):
        text = "mode: central\n" + "".join(seeded.choices(alphabet, k=seeded.randrange(40)))
        check = check_policy(text)
        assert (check.policy is None) == bool(check.errors)
