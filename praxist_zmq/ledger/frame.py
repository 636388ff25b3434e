"""The form of one record: a line that proves itself and its place.

`crc32hex SP length SP sequence SP payload LF`. The checksum covers length, sequence and payload
and starts from the previous record's, so a record that is missing, repeated or moved shows.
The first line of a segment is a record with sequence 0, checksummed from zero, whose payload is
the header; this line keeps its form in every version, so that an older program can tell a newer
ledger from a damaged one.
Never reads or writes a file.

Sources: the write-ahead log of etcd for the rolling checksum.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import PraxistError
from ..protocol.envelope import LEDGER_VERSION
from ..protocol.limits import LEDGER_RECORD_BYTES_MAX

HEAD = re.compile(rb"([0-9a-f]{8}) ([1-9][0-9]{0,18}) (0|[1-9][0-9]{0,18}) ")
HEAD_BYTES_MAX = 8 + 1 + 19 + 1 + 19 + 1
HEADER_LINE_BYTES_MAX = 65_536


def encode(sequence: int, payload: bytes, previous_crc: int) -> tuple[bytes, int]:
    """The line of one record and its checksum."""
    body = b"%d %d %b" % (len(payload), sequence, payload)
    crc = zlib.crc32(body, previous_crc)
    return b"%08x %b\n" % (crc, body), crc


def encode_batch(
    payloads: Sequence[bytes], first_sequence: int, previous_crc: int
) -> tuple[bytes, int]:
    """The lines of several records, joined, and the last one's checksum.

    Raises PraxistError `too_large` or `internal` (a line feed, a NUL or nothing in a payload)
    before anything could be written.
    """
    lines = []
    crc = previous_crc
    for sequence, payload in enumerate(payloads, first_sequence):
        if len(payload) > LEDGER_RECORD_BYTES_MAX:
            raise PraxistError(
                "too_large",
                f"a record of {len(payload)} bytes; the limit is {LEDGER_RECORD_BYTES_MAX}",
            )
        if not payload or b"\n" in payload or b"\0" in payload:
            raise PraxistError("internal", f"record {sequence} is not one line of text")
        line, crc = encode(sequence, payload, crc)
        lines.append(line)
    return b"".join(lines), crc


def check(line: bytes, sequence: int, previous_crc: int) -> tuple[bytes, int] | None:
    """The payload and the checksum of `line` if it is exactly the record `sequence`, else None."""
    parts = line.split(b" ", 3)
    if len(parts) != 4 or not line.endswith(b"\n"):
        return None
    payload = parts[3][:-1]
    crc = zlib.crc32(line[9:-1], previous_crc)
    if not line.startswith(b"%08x %d %d " % (crc, len(payload), sequence)):
        return None
    return payload, crc


@dataclass(frozen=True, slots=True)
class Header:
    """What the first line of a segment says."""

    program: str
    run_id: str
    segment: int
    """Number of the segment, from 1."""
    first_sequence: int
    """Sequence of the first record in it, present or to come."""
    previous_crc: int
    """Checksum of the last record before it; 0 in the first segment."""
    boot_id: str
    extra: dict[str, Any] = field(default_factory=dict)
    format_version: int = LEDGER_VERSION


def encode_header(header: Header) -> tuple[bytes, int]:
    """The header's line and its checksum."""
    payload = json.dumps(asdict(header), separators=(",", ":"), sort_keys=True).encode("ascii")
    return encode(0, payload, 0)


def decode_header(line: bytes, where: str) -> tuple[Header, int]:
    """The header in `line` and its checksum.

    Raises PraxistError `ledger_newer`, or `ledger_damaged` naming `where`.
    """
    checked = check(line, 0, 0)
    if checked is None:
        raise PraxistError("ledger_damaged", f"{where}, offset 0: no header of a ledger")
    payload, crc = checked
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or type(fields.get("format_version")) is not int:
        raise PraxistError("ledger_damaged", f"{where}, offset 0: the header is not ours")
    if fields["format_version"] > LEDGER_VERSION:
        raise PraxistError(
            "ledger_newer",
            f"{where} has format {fields['format_version']}; this program knows {LEDGER_VERSION}",
        )
    kinds = {"program": str, "run_id": str, "segment": int, "first_sequence": int}
    kinds |= {"previous_crc": int, "boot_id": str, "extra": dict, "format_version": int}
    if any(type(fields.get(name)) is not kind for name, kind in kinds.items()):
        raise PraxistError("ledger_damaged", f"{where}, offset 0: the header lacks a field")
    return Header(**{name: fields[name] for name in kinds}), crc
