"""Protocol versions and the two frames of every message.

A message is `[PREAMBLE, body]`. The preamble names the protocol and its major version, so that a
peer of another version is refused without reading the body. Our own links are streams of packets
instead (see `transport.hop`).
Standard library only: the client imports this module.
"""

from typing import Any

Json = dict[str, Any]
"""A body's content where no model takes it apart: in the client and the command line."""

PROTOCOL_NAME = "praxist-zmq"
PROTOCOL_VERSION = 1
LEDGER_VERSION = 3
"""One higher with every release whose events or snapshots hold what the one before cannot read.
2: limits, bindings, generations, leases and run times; room of zeros after the records.
3: cancelled jobs, what was found of an attempt, an operator's word, holds beside others."""
PREAMBLE = b"praxist-zmq/1"


def preamble_version(frame: bytes) -> int | None:
    """The version in a preamble, or None when it is not one of ours."""
    name, _, version = frame.partition(b"/")
    if name != PROTOCOL_NAME.encode() or not version.isdigit() or len(version) > 6:
        return None
    return int(version)
