"""Parts of a message between our own processes, packed in one frame, each behind its length.

A frame costs more to send and to receive than all else that is done with a short message. Decides
nothing about what parts mean; refuses a frame that is not exactly some parts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

PARTS_MAX = 8_192
MESSAGE_BYTES = 32 * 1024 * 1024
"""From this size on what is sent goes in several messages; one part may be larger."""
CHANNEL_BYTES_MAX = 32
"""Of the name that says what the parts are."""
LENGTH = struct.Struct("<I")


def pack(parts: Sequence[bytes]) -> bytes:
    """Parts as one frame."""
    length = LENGTH.pack
    return b"".join([piece for part in parts for piece in (length(len(part)), part)])


def unpack(frame: bytes, at: int = 0) -> list[bytes] | None:
    """The parts of a frame from `at` on; None when it is not exactly some parts."""
    parts: list[bytes] = []
    end = len(frame)
    head, length = LENGTH.size, LENGTH.unpack_from
    while at < end:
        if end - at < head or len(parts) == PARTS_MAX:
            return None
        (size,) = length(frame, at)
        at += head
        if size > end - at:
            return None
        parts.append(frame[at : at + size])
        at += size
    return parts


def messages(parts: Sequence[bytes], group: int) -> Iterator[Sequence[bytes]]:
    """`parts` in pieces that fit a message; `group` parts belong together."""
    if len(parts) <= PARTS_MAX and sum(map(len, parts)) <= MESSAGE_BYTES:
        yield parts
        return
    start = size = 0
    for at in range(0, len(parts), group):
        more = sum(len(part) for part in parts[at : at + group])
        if at > start and (size + more > MESSAGE_BYTES or at - start + group > PARTS_MAX):
            yield parts[start:at]
            start, size = at, 0
        size += more
    yield parts[start:]
