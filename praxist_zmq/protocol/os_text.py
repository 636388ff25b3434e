"""The wire form of operating-system strings, without the models.

Bytes that are valid UTF-8 travel as a JSON string, others as `{"base64": ...}`. Standard library
only: the client imports this module, and `protocol.text` builds on it.
"""

from __future__ import annotations

import base64

WireText = str | dict[str, str]


def to_wire(raw: bytes) -> WireText:
    """The JSON form of some bytes."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode("ascii")}


def encoded(text: str) -> bytes:
    """The bytes of a string from `sys.argv` or `os.environ` (surrogateescape, PEP 383).

    Raises UnicodeEncodeError for a surrogate that stands for no byte.
    """
    return text.encode("utf-8", "surrogateescape")
