"""Looks at a ledger that nobody may be running: what is in it, what is wrong, what can be saved.

`verify` and `stories` read only. `repair_copy` writes a new ledger into a directory that does not
exist yet: the newest good snapshot and all records that are good and follow it without a gap, up
to the first damage. The source is never changed, so a repair can always be tried again.

Sources: the offline repair of etcd, which also saves a copy before anything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..errors import PraxistError
from ..protocol.envelope import LEDGER_VERSION
from . import files, frame, segment, tail
from .reading import LedgerReader
from .snapshot import Snapshots

Outcome = Literal["clean", "torn", "damaged", "newer", "unreadable"]
_CODES: dict[str, Outcome] = {"ledger_damaged": "damaged", "ledger_newer": "newer"}


@dataclass(slots=True)
class SegmentReport:
    """What one segment holds."""

    path: Path
    outcome: Outcome
    format_version: int = LEDGER_VERSION
    """As the header says; ours when there is no good one."""
    records: int = 0
    first_sequence: int | None = None
    last_sequence: int | None = None
    offset: int | None = None
    """Of the first fault, in bytes."""
    detail: str = ""


@dataclass(slots=True)
class SnapshotReport:
    """Whether one snapshot verifies."""

    path: Path
    sequence: int
    outcome: Outcome
    detail: str = ""


@dataclass(slots=True)
class Report:
    """What `verify` or `repair_copy` found."""

    directory: Path
    outcome: Outcome = "clean"
    """The worst that a start would meet."""
    detail: str = ""
    """Why a start would refuse, or what it would cut."""
    program: str | None = None
    run_id: str | None = None
    segments: list[SegmentReport] = field(default_factory=list)
    snapshots: list[SnapshotReport] = field(default_factory=list)
    target: Path | None = None
    """Where `repair_copy` wrote."""
    written_records: int = 0
    written_until: int = 0
    """Last sequence that the copy stands for, by snapshot or record."""
    left_out_records: int = 0
    """Records that still have their form but come after the damage."""


def verify(directory: Path) -> Report:
    """Read everything in `directory` and judge it as a start would. Changes nothing.

    Raises PraxistError `path_unusable` when there is no ledger.
    """
    report = Report(directory)
    present = _segment_numbers(directory)
    snapshots = Snapshots(directory)
    for sequence in snapshots.sequences():
        path = snapshots.path_of(sequence)
        try:
            snapshots.verify(sequence)
            report.snapshots.append(SnapshotReport(path, sequence, "clean"))
        except PraxistError as error:
            outcome = _CODES.get(error.code, "unreadable")
            report.snapshots.append(SnapshotReport(path, sequence, outcome, error.detail))
    for number in present:
        report.segments.append(_examine(segment.path_of(directory, number), report))
    _judge(report)
    return report


def _segment_numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        raise PraxistError("path_unusable", f"{directory} is not a directory")
    with files.usable(directory):
        found = [int(m[1]) for p in directory.iterdir() if (m := segment.NAME.match(p.name))]
        if not found and not Snapshots(directory).sequences():
            raise PraxistError("path_unusable", f"{directory} holds no ledger")
    return sorted(found)


def _examine(path: Path, report: Report) -> SegmentReport:
    try:
        reader = segment.SegmentReader(path)
    except PraxistError as error:
        return SegmentReport(path, _CODES.get(error.code, "unreadable"), detail=error.detail)
    with reader:
        report.program = report.program or reader.header.program
        report.run_id = report.run_id or reader.header.run_id
        version, first = reader.header.format_version, reader.header.first_sequence
        found = SegmentReport(path, "clean", version, first_sequence=first)
        try:
            for _ in reader.records():
                found.records += 1
        except PraxistError as error:
            found.outcome, found.detail = "unreadable", error.detail
            found.offset = reader.good_offset
        found.last_sequence = reader.last_sequence if found.records else None
        if reader.fault is not None:
            found.outcome, found.detail = reader.fault.kind, reader.fault.reason
            found.offset = reader.fault.offset
    return found


def _judge(report: Report) -> None:
    """Let the reader of a start decide, so that both always agree."""
    try:
        reader = LedgerReader(report.directory)
        for _ in reader.records():
            pass
    except PraxistError as error:
        report.outcome = _CODES.get(error.code, "unreadable")
        report.detail = error.detail
        return
    if reader.tear is not None:
        report.outcome = "torn"
        path = reader.segments[-1].path
        report.detail = f"{path}, offset {reader.tear.offset}: {reader.tear.reason}"


def stories(directory: Path) -> Iterator[tuple[int, bytes]]:
    """Every record there still is, also those that a snapshot covers, up to the first fault.

    Raises PraxistError `ledger_damaged` or `ledger_newer` there; a tear just ends it.
    """
    present = _segment_numbers(directory)
    for number in present:
        path = segment.path_of(directory, number)
        with segment.SegmentReader(path) as reader:
            yield from reader.records()
            if reader.fault is not None and (number != present[-1] or reader.fault.kind != "torn"):
                raise segment.damaged(path, reader.fault.offset, reader.fault.reason)


def repair_copy(source: Path, target: Path) -> Report:
    """Write what is good in `source` as a new ledger `target`, which must not exist yet.

    That is the newest good snapshot and the records that follow it without a gap up to the first
    fault. The report says what was left out. Raises PraxistError `path_unusable` (also when
    `target` exists), `no_space`, or `ledger_damaged` when not even a start can be found.
    """
    report = verify(source)
    if report.outcome == "newer":
        raise PraxistError("ledger_newer", report.detail)
    base = _newest_good_snapshot(report)
    covered = base.sequence if base else 0
    header = _any_header(report)
    report.target = target
    with files.usable(target):
        target.mkdir(mode=0o700)
        files.fsync_directory(target.parent)
    if base is not None:
        Snapshots(target).write(covered, Snapshots(source).load(covered))
    first = replace(
        header,
        segment=1,
        first_sequence=covered + 1,
        previous_crc=0,
        format_version=LEDGER_VERSION,
    )
    report.written_records = _write(target, first, _good_after(report, covered))
    report.written_until = covered + report.written_records
    report.left_out_records = _count_after(report)
    return report


def _newest_good_snapshot(report: Report) -> SnapshotReport | None:
    return next((found for found in report.snapshots if found.outcome == "clean"), None)


def _any_header(report: Report) -> frame.Header:
    for found in report.segments:
        if found.first_sequence is not None:
            with segment.SegmentReader(found.path) as reader:
                return reader.header
    raise PraxistError("ledger_damaged", f"{report.directory}: no segment has a good header")


def _good_after(report: Report, covered: int) -> Iterator[bytes]:
    """Payloads of the records `covered` + 1, + 2, ... as long as each is good."""
    wanted = covered + 1
    crc = 0
    for found in report.segments:
        if found.first_sequence is None:
            continue  # the next one tells whether anything was lost with it
        if found.first_sequence > wanted:
            return
        with segment.SegmentReader(found.path) as reader:
            if wanted > covered + 1 and reader.header.previous_crc != crc:
                return
            for sequence, payload in reader.records():
                if sequence == wanted:
                    wanted += 1
                    yield payload
            if reader.fault is not None and wanted > covered + 1:
                return
            crc = reader.crc


def _write(target: Path, header: frame.Header, payloads: Iterator[bytes]) -> int:
    line, crc = frame.encode_header(header)
    path = segment.path_of(target, header.segment)
    count = 0
    with files.usable(path):
        descriptor = files.open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "wb", buffering=1 << 20) as file:
            file.write(line)
            for count, payload in enumerate(payloads, 1):
                line, crc = frame.encode_record(header.first_sequence + count - 1, 0, payload, crc)
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
        files.fsync_directory(target)
    return count


def _count_after(report: Report) -> int:
    """Records with a later sequence than the copy's last that still have their form."""
    left_out = 0
    for found in report.segments:
        descriptor = files.open_regular(found.path, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            head = frame.head_of(found.format_version)
            left_out += tail.count_whole(file.fileno(), head, report.written_until + 1)
    return left_out
