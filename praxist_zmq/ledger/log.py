"""The ledger of one process: what was acknowledged, in order, on disk.

`open`, `replay` to the end, `start`, then `commit` batch by batch: one append, one sync, durable
on return. At every start the last segment is written anew into a fresh file, because after a
failed sync the page cache may show bytes that never reached the disk; what was read is then known
to be there. Records are written into room that is there already (see `live`), which a commit needs
no space for. A full disk rolls the file back to the last good record and gives up the ballast, so
that ends of jobs still fit; any failed sync or other write error poisons the ledger for good.
So does a name that is not our file any more when a commit ends: what is in a removed file is not on
disk for the next start, so nobody may be told of it.
A last segment of an older format is kept as it is, and a new one goes on from it.
The caller holds the owner lock. Never waits, never reads a clock, never retries a sync.

Sources: the handling of failed syncs in PostgreSQL and the studies that led to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import PraxistError
from ..protocol.envelope import LEDGER_VERSION
from . import files, frame, segment
from .ballast import Ballast
from .live import LiveSegment
from .named_file import NamedFile
from .reading import Known, LedgerReader
from .snapshot import Snapshots

SEGMENT_BYTES = 16 * 1024 * 1024
BALLAST_BYTES = 4 * 1024 * 1024


class Ledger:
    """Append-only records with consecutive sequences from 1, in segments, behind a snapshot."""

    def __init__(
        self,
        directory: Path,
        template: frame.Header,
        segment_bytes: int,
        ballast: Ballast,
        reader: LedgerReader,
    ) -> None:
        """Use `open`."""
        self.directory = directory
        self.notes: list[str] = []
        """What a person should be told, loudly: tears repaired, snapshots set aside."""
        self._template = template
        self._segment_bytes = segment_bytes
        self._ballast = ballast
        self._reader = reader
        self._segments = reader.segments
        self._loaded = reader.snapshot
        self._covered = reader.covered
        self._sequence = reader.covered
        self._crc = 0
        self._live: LiveSegment | None = None
        self._state = "opened"
        self._poison: str | None = None
        self._poison_code = "ledger_write_failed"
        self._named: NamedFile | None = None
        """The last segment, by the name under which the next start looks for it."""

    @classmethod
    def open(
        cls,
        directory: Path,
        program: str,
        run_id: str,
        boot_id: str,
        segment_bytes: int = SEGMENT_BYTES,
        ballast_bytes: int = BALLAST_BYTES,
        extra: dict[str, Any] | None = None,
    ) -> Ledger:
        """The ledger in `directory`, which is made when missing. Nothing else is changed yet.

        Raises PraxistError `ledger_damaged` (also when it belongs to another program),
        `run_moved`, `ledger_newer`, `unsafe_path`, `path_unusable`.
        """
        files.own_directory(directory)
        reader = LedgerReader(directory)
        for known in reader.segments:
            _check_owner(known.path, known.header, program, run_id)
        template = frame.Header(program, run_id, 1, 1, 0, boot_id, dict(extra or {}))
        ballast = Ballast(directory, ballast_bytes)
        return cls(directory, template, segment_bytes, ballast, reader)

    @property
    def snapshot(self) -> tuple[int, bytes] | None:
        """(last sequence, state) of the newest good snapshot; dropped by `start`."""
        return (self._loaded.sequence, self._loaded.data) if self._loaded else None

    def replay(self) -> Iterator[tuple[int, bytes]]:
        """The records after the snapshot, once, in order. Changes nothing on disk.

        Raises PraxistError `ledger_damaged` with file and offset.
        """
        self._expect("opened")
        self._state = "replaying"
        yield from self._reader.records()
        self._sequence = self._reader.sequence
        self._crc = self._reader.crc
        self._state = "replayed"

    def start(self) -> None:
        """Put what was read on disk anew, repair a tear (a copy is kept), be ready to append.

        Raises PraxistError `no_space`, `path_unusable`, `ledger_damaged`; the old files then
        still are as they were.
        """
        self._expect("replayed")
        with files.usable(self.directory):
            files.remove_temporaries(self.directory, segment.NAME)
            self._set_damaged_snapshots_aside()
        try:
            live = self._open_last()
        except PraxistError as error:
            if error.code != "no_space" or not self._ballast.drop():
                raise
            live = self._open_last()
        self._live = live
        self._ballast.fill()
        self._grow(live)
        self._loaded = self._reader.snapshot = None
        self._state = "started"

    def commit(self, payloads: Sequence[bytes]) -> int:
        """Append all `payloads` with one sync. Durable on return; returns the last sequence.

        Raises PraxistError `no_space` (nothing was appended, later commits may succeed),
        `ledger_write_failed` or `file_lost` (this and every later commit fails), `too_large` or
        `internal` (a payload is not fit; nothing was appended).
        """
        self._expect("started")
        if self._poison is not None:
            raise PraxistError(self._poison_code, self._poison)
        if not payloads:
            return self._sequence
        live = self._open_live()
        if live.used >= self._segment_bytes:
            live = self._rotate(live)
        blocks = frame.encode_batch(payloads, self._sequence + 1, self._crc)
        self._poison = f"{self._segments[-1].path}: a commit was interrupted"
        before = live.used
        for block in blocks:
            self._append(live, block.data, before)
            try:
                live.sync()
            except OSError as error:
                raise self._poisoned(error) from error
        self._poison = None
        self.check()
        self._crc = blocks[-1].crc
        self._sequence += len(payloads)
        self._segments[-1].size = live.used
        return self._sequence

    def check(self) -> None:
        """Raise PraxistError `file_lost`, now and at every later commit, when the last segment's
        name is not our file any more."""
        if self._named is not None and not self._named.is_there():
            self._poison_code = "file_lost"
            self._poison = f"{self._named.path} was removed or replaced while it was in use"
            raise PraxistError(self._poison_code, self._poison)

    @property
    def last_sequence(self) -> int:
        """Of the last durable record (or of the snapshot); 0 in an empty ledger."""
        return self._sequence

    @property
    def bytes_on_disk(self) -> int:
        """Of all segments together, without the room that no record is in yet."""
        return sum(known.size for known in self._segments)

    @property
    def low_space(self) -> bool:
        """Whether the disk was full and the ballast is not back yet: take no new work."""
        return self._ballast.missing

    @property
    def sealed_since_snapshot(self) -> int:
        """How many sealed segments the newest snapshot does not cover yet."""
        return sum(following.first_sequence - 1 > self._covered for following in self._segments[1:])

    def maintain(self) -> None:
        """Bring ballast and room back when there is space. Costs nothing while they are there.

        Call it once a second or so: it also looks whether the file is still there. Raises
        PraxistError `ledger_write_failed` or `file_lost` (as a commit does), or as `Ballast.fill`
        does.
        """
        self._expect("started")
        self.check()
        self._ballast.fill()
        if self._poison is None and not self._ballast.missing:
            self._grow(self._open_live())

    def drop_covered(self) -> list[Path]:
        """After a compaction: take note of the newest snapshot, delete what is no longer needed.

        Returns what was deleted. Raises PraxistError `ledger_damaged` when a snapshot does not
        verify; nothing is deleted then.
        """
        self._expect("started")
        snapshots = Snapshots(self.directory)
        deleted = snapshots.delete_covered()
        gone = set(deleted)
        self._segments = [known for known in self._segments if known.path not in gone]
        self._covered = max([self._covered, *snapshots.sequences()[:1]])
        return deleted

    def close(self) -> None:
        """Let the file go. Everything acknowledged is on disk already. Safe to call twice."""
        self._state = "closed"
        live, self._live = self._live, None
        if live is not None:
            with files.usable(self.directory):
                try:
                    if self._poison is None:
                        live.trim()
                finally:
                    live.close()

    def _expect(self, state: str) -> None:
        if self._state != state:
            raise PraxistError("internal", f"the ledger is {self._state}, not {state}")

    def _open_live(self) -> LiveSegment:
        assert self._live is not None
        return self._live

    def _poisoned(self, error: OSError) -> PraxistError:
        self._poison = f"{self._segments[-1].path}: {error.strerror}"
        return PraxistError("ledger_write_failed", self._poison)

    def _append(self, live: LiveSegment, block: bytes, before: int) -> None:
        """Write `block`, or leave the records as they were up to `before` and raise."""
        while True:
            try:
                live.write(block, stretch=not self._ballast.missing)
                return
            except OSError as error:
                failure = error
            if failure.errno not in files.NO_SPACE:
                raise self._poisoned(failure) from failure
            self._roll_back(live, live.used)
            if not self._ballast.drop():
                if live.used > before:
                    self._roll_back(live, before)
                self._poison = None
                detail = f"{self._segments[-1].path}: {files.reason(failure)}"
                raise PraxistError("no_space", detail) from failure

    def _roll_back(self, live: LiveSegment, used: int) -> None:
        try:
            live.roll_back(used)
        except OSError as error:
            raise self._poisoned(error) from error

    def _grow(self, live: LiveSegment) -> None:
        self._poison = f"{self._segments[-1].path}: making room was interrupted"
        try:
            live.grow()
        except OSError as error:
            raise self._poisoned(error) from error
        self._poison = None

    def _rotate(self, old: LiveSegment) -> LiveSegment:
        """Go on in a new segment; stay in this one when the disk is full."""
        number = self._segments[-1].number + 1
        self._poison = f"{segment.path_of(self.directory, number)}: a rotation was interrupted"
        try:
            live = self._create(number)
        except PraxistError as error:
            if error.code != "no_space":
                self._poison = error.detail
                raise PraxistError("ledger_write_failed", error.detail) from error
            self._ballast.drop()
            self._poison = None
            return old
        self._live = live
        try:
            try:
                old.trim()
            finally:
                old.close()
        except OSError as error:
            raise self._poisoned(error) from error
        self._poison = None
        return live

    def _create(self, number: int) -> LiveSegment:
        """A durable new segment, which is the last one from then on."""
        path = segment.path_of(self.directory, number)
        template = self._template
        header = frame.Header(
            template.program,
            template.run_id,
            number,
            self._sequence + 1,
            self._crc,
            template.boot_id,
            template.extra,
        )
        line, crc = frame.encode_header(header)
        files.refuse_irregular(path)
        with files.usable(path):
            descriptor, temporary = files.create_temporary(path)
            try:
                files.write_all(descriptor, line)
                _publish(descriptor, temporary, path)
            except BaseException:
                os.close(descriptor)
                temporary.unlink(missing_ok=True)
                raise
        self._segments.append(Known(number, path, header, len(line)))
        self._named = NamedFile.opened(path, descriptor)
        self._crc = crc
        return LiveSegment(descriptor, len(line), self._segment_bytes)

    def _open_last(self) -> LiveSegment:
        if not self._segments:
            return self._create(1)
        known = self._segments[-1]
        with files.usable(known.path):
            tear = self._reader.tear
            kept = None if tear is None else files.copy_aside(known.path)
            try:
                descriptor = self._rewrite(known.path, known.size)
                self._named = NamedFile.opened(known.path, descriptor)
            except BaseException:
                if kept is not None:  # the original still is as it was, and takes no room twice
                    kept.unlink(missing_ok=True)
                raise
        if tear is not None and kept is not None:
            self._reader.tear = None
            self.notes.append(
                f"{known.path}, offset {tear.offset}: {tear.reason}; "
                f"cut there, the file as it was is {kept.name}"
            )
        live = LiveSegment(descriptor, known.size, self._segment_bytes)
        if known.header.format_version == LEDGER_VERSION:
            return live
        live.close()
        return self._create(known.number + 1)

    def _rewrite(self, path: Path, size: int) -> int:
        """The good records of `path` in a fresh file in its place; its descriptor."""
        descriptor, temporary = files.create_temporary(path)
        try:
            files.copy_start(path, descriptor, size)
            os.fsync(descriptor)
            with segment.SegmentReader(temporary) as reader:
                for _ in reader.records():
                    pass
                if (reader.crc, reader.good_offset, reader.fault) != (self._crc, size, None):
                    raise segment.damaged(path, reader.good_offset, "it changed while it was read")
            os.rename(temporary, path)
            files.fsync_directory(self.directory)
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        return descriptor

    def _set_damaged_snapshots_aside(self) -> None:
        for path in self._reader.damaged_snapshots:
            aside = files.free_name(path)
            os.rename(path, aside)
            files.fsync_directory(self.directory)
            self.notes.append(f"{path} is damaged and was not used; it is {aside.name} now")


def _publish(descriptor: int, temporary: Path, path: Path) -> None:
    """Sync, rename, sync the name. No failure here is `no_space`: the name may be there."""
    try:
        os.fsync(descriptor)
        os.rename(temporary, path)
        files.fsync_directory(path.parent)
    except OSError as error:
        raise PraxistError("ledger_write_failed", f"{path}: {error.strerror}") from error


def _check_owner(path: Path, header: frame.Header, program: str, run_id: str) -> None:
    if header.program != program:
        raise segment.damaged(path, 0, f"it is a ledger of {header.program!r}, not of {program!r}")
    if header.run_id != run_id:
        raise PraxistError(
            "run_moved",
            f"{path} is of the run {header.run_id!r}, and a run is named by its directory, "
            f"which is {run_id!r} now: name it {header.run_id!r} again",
        )
