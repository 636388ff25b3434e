"""Copy a log to stdout, as it is and as it grows.

Opens the file that the broker named, if it is a regular one; follows no link. In a pipe or file
the copy is byte for byte; on a terminal what would steer it is shown as escapes. Of a line that was
painted over (a progress bar), the last lines and a terminal have its last state only.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Protocol

from ..core.repaint import Repainting, as_seen
from .settings import is_terminal
from .small_file import open_foreign
from .words import cut, safe

BLOCK = 1 << 16
LOOK_AGAIN_S = 0.2  # the standard library has no inotify; tail(1) looks once a second
STDOUT = 1
TAIL_BYTES_MAX = 1 << 20
"""Of a log's last lines, no more is printed."""
READ_BACK_MAX = 1 << 28
"""Nor is more of a log read to find them."""
PAGE_BYTES, PAGE_COLUMNS = 8192, 320
"""On a page, no more is shown of the last lines, and of each."""
_PAINT_OVER = "\r\x1b[K"


def write_all(descriptor: int, content: bytes) -> None:
    """Every byte, whatever the pipe takes at once."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


class Sink(Protocol):
    """Takes a log's bytes."""

    def write(self, content: bytes) -> None:
        """Take the next bytes."""
        ...

    def settle(self) -> None:
        """There is no more for now: show what was held back."""
        ...


class RawSink:
    """Stdout as it is."""

    def write(self, content: bytes) -> None:
        """Every byte."""
        write_all(STDOUT, content)

    def settle(self) -> None:
        """Nothing is held back."""


class ScreenSink:
    """A terminal: text, nothing that steers it, and of a line that is painted over one state for
    each time that the log was read to its end."""

    def __init__(self) -> None:
        self._log = Repainting()
        self._begun = ""

    def write(self, content: bytes) -> None:
        """What can be shown of the lines that have ended."""
        settled = self._log.feed(content)
        if settled:
            self._show(settled)
            self._begun = ""

    def settle(self) -> None:
        """The line that has not ended, as it is now."""
        if self._log.pending:
            self._begun = self._show(self._log.pending)

    def _show(self, content: bytes) -> str:
        text = shown(content.decode("utf-8", "backslashreplace"))
        goes_on = text.startswith(self._begun)
        write_all(STDOUT, (text[len(self._begun) :] if goes_on else _PAINT_OVER + text).encode())
        return text


def shown(text: str) -> str:
    """A log's text for a terminal: nothing that steers it, nothing that was painted over."""
    lines = as_seen(text).split("\n")
    return "\n".join("\t".join(safe(part) for part in line.split("\t")) for line in lines)


def stdout_sink() -> Sink:
    """What suits stdout."""
    return ScreenSink() if is_terminal(sys.stdout) else RawSink()


def copy_rest(source: int, sink: Sink) -> None:
    """Everything from the present place to the present end."""
    while content := os.read(source, BLOCK):
        sink.write(content)
    sink.settle()


def read_last_lines(source: int, lines: int, bytes_max: int = TAIL_BYTES_MAX) -> tuple[bytes, bool]:
    """The last lines, each as it was last, and whether `bytes_max` cut something off their
    beginning. The descriptor is at the log's end then."""
    cut_off = _seek_last_lines(source, lines)
    log, kept = Repainting(), bytearray()
    while content := os.read(source, BLOCK):
        kept += log.feed(content)
        if len(kept) > 2 * bytes_max:
            cut_off = True
            del kept[:-bytes_max]
    kept += log.pending
    cut_off = cut_off or len(kept) > bytes_max
    return bytes(kept[-bytes_max:]), cut_off


def _seek_last_lines(source: int, lines: int) -> bool:
    """Place the descriptor before the last `lines` lines, reading backwards in blocks; whether the
    log was too long to find them all."""
    end = position = os.lseek(source, 0, os.SEEK_END)
    floor = max(0, end - READ_BACK_MAX)
    found = 0
    while position > floor and lines > 0:
        size = min(BLOCK, position - floor)
        position -= size
        block = os.pread(source, size, position)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if position + at == end - 1:
                continue  # the line feed that ends the last line
            found += 1
            if found == lines:
                os.lseek(source, position + at + 1, os.SEEK_SET)
                return False
    os.lseek(source, floor if lines > 0 else end, os.SEEK_SET)
    return floor > 0 and lines > 0


def last_lines(path: Path, lines: int) -> list[str]:
    """The last lines of a log as safe text for a page, none of them too wide for one. Raises
    OSError, or `unsafe_path`."""
    source = open_foreign(path)
    try:
        content, _ = read_last_lines(source, lines, PAGE_BYTES)
    finally:
        os.close(source)
    text = shown(content.decode(errors="backslashreplace"))
    return [cut(line, PAGE_COLUMNS) for line in text.splitlines()[-lines:]]


class LogFollower:
    """Copies a growing log in a thread, so that the caller's thread can wait for the job."""

    def __init__(self, path: Path, source: int | None = None, sink: Sink | None = None) -> None:
        self._path = path
        self._source = source
        self._sink = sink or stdout_sink()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="log", daemon=True)
        self.broken: OSError | None = None
        self._thread.start()

    def finish(self) -> None:
        """The job ended: copy what is left, then stop."""
        self._ended.set()
        self._thread.join()

    def _copy(self) -> None:
        try:
            while True:
                last = self._ended.is_set()
                if self._source is None:
                    self._source = self._open()
                if self._source is not None:
                    copy_rest(self._source, self._sink)
                if last:
                    break
                self._ended.wait(LOOK_AGAIN_S)
        except OSError as error:
            self.broken = error  # the reader of stdout is gone, or the file; the wait goes on
        finally:
            if self._source is not None:
                os.close(self._source)

    def _open(self) -> int | None:
        try:
            return open_foreign(self._path)
        except FileNotFoundError:
            return None
