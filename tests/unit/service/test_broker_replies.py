"""Replies of the broker's: one that is larger than what is carried is told, not lost."""

from __future__ import annotations

import pytest

from praxist_zmq.protocol.codec import decode_reply
from praxist_zmq.protocol.replies import Done, Refusal
from praxist_zmq.service import broker


def test_a_reply_that_is_too_large_to_be_carried_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = Refusal(code="internal", detail="x" * 2_000)
    monkeypatch.setattr(broker, "REPLY_BYTES_MAX", 1_000)
    told = decode_reply(broker.reply_body("request-1", large))
    assert told.request_id == "request-1"
    assert isinstance(told.reply, Refusal)
    assert told.reply.code == "too_large"
    assert "ask for less" in told.reply.detail
    assert isinstance(decode_reply(broker.reply_body("request-2", Done())).reply, Done)
