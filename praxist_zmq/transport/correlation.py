"""The request id of a body, found without parsing the body.

Everything of ours writes `request_id` first. A body that has it elsewhere has none here; its
sender still gets an answer, with a null id.
"""

from __future__ import annotations

import re

_REQUEST_ID = re.compile(
    rb'^\s{0,16}\{\s{0,16}"request_id"\s{0,16}:\s{0,16}"([A-Za-z0-9._:-]{8,80})"'
)


def peek_request_id(body: bytes) -> str | None:
    """The request id that a body starts with; None when it does not."""
    match = _REQUEST_ID.match(body)
    return None if match is None else match.group(1).decode("ascii")
