"""Bytes to models and back; every failure is a typed refusal, never a traceback.

Pydantic's JSON parser bounds nesting and refuses lone surrogates and NaN by itself; sizes are
checked here before parsing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ..errors import PraxistError
from . import limits
from .claims import ClaimEvent, ClaimReplyEnvelope, ClaimRequestEnvelope
from .events import Event
from .orders import Order
from .replies import ReplyEnvelope
from .reports import LauncherReport
from .requests import RequestEnvelope

ModelT = TypeVar("ModelT")


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """The validator of a model or union, built once."""
    return TypeAdapter(kind)


def decode(kind: Any, body: bytes, bytes_max: int = limits.FRAME_BYTES_MAX) -> Any:
    """Validate `body` as `kind`. Raises PraxistError `malformed_request` or `too_large`."""
    if len(body) > bytes_max:
        raise PraxistError("too_large", f"{len(body)} bytes; the limit is {bytes_max}")
    try:
        return adapter(kind).validate_json(body)
    except ValidationError as error:
        raise PraxistError(_code_of(error), explain(error)) from None


def _code_of(error: ValidationError) -> str:
    if any(e["type"] in ("union_tag_invalid", "union_tag_not_found") for e in error.errors()):
        return "unknown_request"
    return "malformed_request"


def explain(error: ValidationError) -> str:
    """The first fault in one sentence: where, and what is wrong. Never echoes input values."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where[:200]}: {first['msg'][:300]}{more}"


def encode(model: BaseModel) -> bytes:
    """The JSON body of a model."""
    return model.__pydantic_serializer__.to_json(model)


def decode_request(body: bytes) -> RequestEnvelope:
    """A client's request."""
    envelope: RequestEnvelope = decode(RequestEnvelope, body)
    return envelope


def encode_request(request_id: str, request: BaseModel) -> bytes:
    """The body of a request frame. A request id is plain ASCII without quotes by its pattern."""
    return b'{"request_id":"%s","request":%s}' % (request_id.encode("ascii"), encode(request))


def encode_reply(request_id: str | None, reply: BaseModel) -> bytes:
    """The body of a reply frame. A request id is plain ASCII without quotes by its pattern."""
    name = b"null" if request_id is None else b'"%s"' % request_id.encode("ascii")
    return b'{"request_id":%s,"reply":%s}' % (name, encode(reply))


def decode_reply(body: bytes) -> ReplyEnvelope:
    """A broker's reply."""
    envelope: ReplyEnvelope = decode(ReplyEnvelope, body)
    return envelope


def decode_order(body: bytes) -> Any:
    """An order to the launcher. It may be larger than the request that it came from."""
    return decode(Order, body, limits.LEDGER_RECORD_BYTES_MAX)


def decode_launcher_report(body: bytes) -> Any:
    """A launcher's report."""
    return decode(LauncherReport, body)


def decode_claim_request(body: bytes) -> ClaimRequestEnvelope:
    """A broker's request to the registry."""
    envelope: ClaimRequestEnvelope = decode(ClaimRequestEnvelope, body)
    return envelope


def decode_claim_reply(body: bytes) -> ClaimReplyEnvelope:
    """The registry's reply."""
    envelope: ClaimReplyEnvelope = decode(ClaimReplyEnvelope, body)
    return envelope


def decode_event(body: bytes) -> Any:
    """One event of the broker's ledger: whatever the ledger took must be read back."""
    return decode(Event, body, limits.LEDGER_RECORD_BYTES_MAX)


def decode_claim_event(body: bytes) -> Any:
    """One event of the registry's ledger."""
    return decode(ClaimEvent, body, limits.LEDGER_RECORD_BYTES_MAX)
