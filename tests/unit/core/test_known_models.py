"""Models made of values that are known to fit: as any other, only not looked at."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from praxist_zmq.protocol.codec import encode
from praxist_zmq.protocol.replies import CancelResult

VALUES: dict[str, Any] = {
    "job": "j-1",
    "outcome": "refused",
    "code": "unknown_job",
    "detail": "",
    "frees_tag": True,
}


def test_it_is_the_same_as_one_that_was_validated() -> None:
    known, validated = CancelResult.known(**VALUES), CancelResult(**VALUES)
    assert known == validated
    assert hash(known) == hash(validated)
    assert encode(known) == encode(validated)
    assert known.model_copy(update={"job": "j-2"}) == validated.model_copy(update={"job": "j-2"})
    with pytest.raises(ValidationError):
        known.job = "j-3"  # type: ignore[misc]


@pytest.mark.parametrize("values", [{**VALUES, "more": 1}, {"job": "j-1"}])
def test_every_field_must_be_given_and_no_other(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="CancelResult"):
        CancelResult.known(**values)
