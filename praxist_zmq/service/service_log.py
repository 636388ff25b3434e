"""The logs of our own processes: one JSON object a line, in a file that stays small.

A log line is the least important thing a process does: a closed descriptor or a full disk loses
lines, is counted, and stops nothing. Files are opened for appending and turned over at
LOG_BYTES_MAX (`NAME.log`, `NAME.log.1`, `NAME.log.2`).
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

from ..errors import PraxistError
from ..ledger.files import open_regular, usable

LOG_BYTES_MAX = 10 * 1024 * 1024
"""A file that has reached this is turned over before the next line."""
LOG_FILES = 3
TAIL_BYTES = 8_192


def open_log(path: Path) -> int:
    """A descriptor that appends to `path`, turned over first when it is full.

    Also after somebody has cleaned up its directory under a living run: it is made again. Raises
    `unsafe_path`, `path_unusable` or `no_space`.
    """
    with usable(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if os.fstat(descriptor).st_size < LOG_BYTES_MAX:
            return descriptor
        os.close(descriptor)
        _turn_over(path)
        return open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _turn_over(path: Path) -> None:
    for number in range(LOG_FILES - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        newer = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
        if newer.exists():
            os.replace(newer, older)


def tail(path: Path, limit: int = TAIL_BYTES) -> str:
    """The last `limit` bytes of a log as text; empty when it cannot be read."""
    try:
        descriptor = open_regular(path, os.O_RDONLY, 0)
    except (OSError, PraxistError):
        return ""
    try:
        start = max(os.fstat(descriptor).st_size - limit, 0)
        return os.pread(descriptor, limit, start).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def find_fatal(path: Path, pid: int) -> dict[str, str] | None:
    """The `fatal` line that process `pid` left at the end of its log: {code, detail}."""
    for line in reversed(tail(path).splitlines()):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict) or record.get("pid") != pid:
            continue
        fatal = record.get("fatal")
        if isinstance(fatal, dict) and isinstance(fatal.get("code"), str):
            return {"code": fatal["code"], "detail": str(fatal.get("detail", ""))}
    return None


class _JsonLine(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": record.process,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _SafeHandler(logging.Handler):
    """Writes whole lines to a descriptor; never raises, counts what it lost."""

    def __init__(self, descriptor: int, path: Path | None) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._path = path
        self._size = os.fstat(descriptor).st_size if path else 0
        self.lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if self.lost:
            text = json.dumps({"lost_lines": self.lost}) + "\n" + text
        data = text.encode("utf-8", "backslashreplace") + b"\n"
        try:
            if self._path and self._size >= LOG_BYTES_MAX:
                self._reopen(self._path)
            self._size += os.write(self._descriptor, data)
        except (OSError, PraxistError):
            self.lost += 1
        else:
            self.lost = 0

    def _reopen(self, path: Path) -> None:
        fresh = open_log(path)
        os.dup2(fresh, self._descriptor, inheritable=self._descriptor <= 2)
        if self._descriptor == 2:
            os.dup2(fresh, 1)
        os.close(fresh)
        self._size = os.fstat(self._descriptor).st_size


def configure_log(name: str, path: Path | None = None, descriptor: int = 2) -> logging.Logger:
    """Send all logging of this process to `descriptor`, one JSON object a line.

    With `path`, the file behind the descriptor (stderr, and then stdout too), it is turned over
    when it is full. Use `logger.info("text", extra={"fields": {...}})` for further keys.
    """
    handler = _SafeHandler(descriptor, path)
    handler.setFormatter(_JsonLine(name))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    return logging.getLogger(f"praxist_zmq.{name}")
