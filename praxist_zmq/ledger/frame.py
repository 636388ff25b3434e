"""The form of one record: a line that proves itself and its place.

`crc32hex SP length SP sequence SP index SP payload LF`. The checksum covers all that follows it and
starts from the previous record's, so a record that is missing, repeated or moved shows. `index`
counts the records of one commit, which reach the disk with one sync and in any order: so each
record names the first one of its commit, and proves that all before that one had been synced.
No byte of a record is zero, so zeros are room that nothing was written to yet.
The first line of a segment has sequence 0 and no index, is checksummed from zero, and its payload
is the header; this line keeps its form in every version, so that an older program can tell a newer
ledger from a damaged one. Records of format 1 had that form too: they are read, no more written.
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

_HEAD_1 = re.compile(rb"([0-9a-f]{8}) ([1-9][0-9]{0,18}) (0|[1-9][0-9]{0,18}) ()")
_HEAD = re.compile(rb"([0-9a-f]{8}) ([1-9][0-9]{0,18}) ([1-9][0-9]{0,18}) (0|[1-9][0-9]{0,6}) ")
HEAD_BYTES_MAX = 8 + 1 + 19 + 1 + 19 + 1 + 7 + 1
HEADER_LINE_BYTES_MAX = 65_536
COMMIT_BYTES_MAX = max(8 * 1024 * 1024, HEAD_BYTES_MAX + LEDGER_RECORD_BYTES_MAX + 1)
"""Bytes of the records that wait for one sync, so that a reader knows how much may be torn."""


def head_of(version: int) -> re.Pattern[bytes]:
    """The start of a record's line in ledgers of format `version`: checksum, length, sequence and
    index (empty in format 1)."""
    return _HEAD_1 if version == 1 else _HEAD


def encode(sequence: int, payload: bytes, previous_crc: int) -> tuple[bytes, int]:
    """A line without an index, as a header has, and its checksum."""
    return _line(b"%d %d %b" % (len(payload), sequence, payload), previous_crc)


def encode_record(
    sequence: int, index: int, payload: bytes, previous_crc: int
) -> tuple[bytes, int]:
    """The line of one record and its checksum; `index` is its place in its commit, from 0."""
    return _line(b"%d %d %d %b" % (len(payload), sequence, index, payload), previous_crc)


def _line(body: bytes, previous_crc: int) -> tuple[bytes, int]:
    crc = zlib.crc32(body, previous_crc)
    return b"%08x %b\n" % (crc, body), crc


@dataclass(frozen=True, slots=True)
class Block:
    """Records that are written together and wait for one sync."""

    data: bytes
    records: int
    crc: int
    """Of the last one."""


def encode_batch(payloads: Sequence[bytes], first_sequence: int, previous_crc: int) -> list[Block]:
    """The lines of `payloads`: one block, or more where one would pass `COMMIT_BYTES_MAX`.

    Raises PraxistError `too_large` or `internal` (a line feed, a NUL or nothing in a payload)
    before anything could be written.
    """
    blocks: list[Block] = []
    lines: list[bytes] = []
    size = 0
    crc = previous_crc
    for sequence, payload in enumerate(payloads, first_sequence):
        if len(payload) > LEDGER_RECORD_BYTES_MAX:
            raise PraxistError(
                "too_large",
                f"a record of {len(payload)} bytes; the limit is {LEDGER_RECORD_BYTES_MAX}",
            )
        if not payload or b"\n" in payload or b"\0" in payload:
            raise PraxistError("internal", f"record {sequence} is not one line of text")
        if lines and size + len(payload) + HEAD_BYTES_MAX + 1 > COMMIT_BYTES_MAX:
            blocks.append(Block(b"".join(lines), len(lines), crc))
            lines, size = [], 0
        line, crc = encode_record(sequence, len(lines), payload, crc)
        lines.append(line)
        size += len(line)
    blocks.append(Block(b"".join(lines), len(lines), crc))
    return blocks


def check(line: bytes, sequence: int, previous_crc: int) -> tuple[bytes, int] | None:
    """The payload and checksum of a line as `encode` makes it, if it is exactly that, else None."""
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
    version = fields.get("format_version") if isinstance(fields, dict) else None
    if type(version) is not int or version < 1:
        raise PraxistError("ledger_damaged", f"{where}, offset 0: the header is not ours")
    if version > LEDGER_VERSION:
        raise PraxistError(
            "ledger_newer", f"{where} has format {version}; this program knows {LEDGER_VERSION}"
        )
    kinds = {"program": str, "run_id": str, "segment": int, "first_sequence": int}
    kinds |= {"previous_crc": int, "boot_id": str, "extra": dict, "format_version": int}
    if any(type(fields.get(name)) is not kind for name, kind in kinds.items()):
        raise PraxistError("ledger_damaged", f"{where}, offset 0: the header lacks a field")
    return Header(**{name: fields[name] for name in kinds}), crc
