"""Shapes are looked for by what every match holds, and nothing is overlooked by that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from praxist_zmq.core.credential_shapes import _LITERAL, LITERAL_CHARS_MIN, literal_mark

LITERALS = {
    "sk-": "sk-" + "a1B2" * 6,
    "gh": "ghp_" + "a1B2" * 9,
    "github_pat_": "github_pat_" + "a1B2_" * 8,
    "glpat-": "glpat-" + "a1B2" * 5,
    "xox": "xoxb-" + "a1B2" * 6,
    "AKIA": "AKIA" + "A1B2" * 4,
    "AIza": "AIza" + "a1B2" * 9,
    "-----BEGIN ": "-----BEGIN RSA PRIVATE KEY-----",
    "hf_": "hf_" + "a1B2" * 9,
    "eyJ": "eyJ" + "a1B2" * 5 + ".eyJ" + "a1B2" * 5,
    "Authorization:": "Authorization: Bearer " + "a1B2" * 4,
    "://": "postgres://user:hunter22@host/db",
}  # fmt: skip


def test_there_is_an_example_of_each() -> None:
    assert [mark for mark, _ in _LITERAL] == list(LITERALS)


def test_no_match_is_shorter_than_what_is_looked_at() -> None:
    shortest = "a://:b123@"
    assert len(shortest) == LITERAL_CHARS_MIN
    assert literal_mark(shortest)
    assert all(len(text) >= LITERAL_CHARS_MIN for text in LITERALS.values())


@pytest.mark.parametrize("mark", LITERALS)
def test_each_is_found_amid_other_words(mark: str) -> None:
    text = LITERALS[mark]
    assert literal_mark(text)
    assert literal_mark(f"--key {text} and more")
    assert mark in text
    assert literal_mark(text.replace(mark, "")) is None


PIECES = st.sampled_from([*LITERALS, *LITERALS.values(), " ", "-", "/", "x", "_", "a1B2" * 8, "@"])


@given(st.lists(PIECES, max_size=6).map("".join))
def test_the_marks_hide_no_match(text: str) -> None:
    assert (literal_mark(text) is not None) == any(pattern.search(text) for _, pattern in _LITERAL)
