"""Copy a log to stdout, as it is and as it grows.

Opens the file that the broker named, if it is a regular one; follows no link. In a pipe or file
the copy is byte for byte; on a terminal what would steer it is shown as escapes.
"""

from __future__ import annotations

import codecs
import os
import sys
import threading
from pathlib import Path
from typing import Protocol

from .settings import is_terminal
from .small_file import open_foreign
from .words import safe

BLOCK = 1 << 16
LOOK_AGAIN_S = 0.2  # the standard library has no inotify; tail(1) looks once a second
STDOUT = 1
TAIL_BYTES = 8192
"""Of a log that has no line feeds, no more is shown on a page."""


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


class RawSink:
    """Stdout as it is."""

    def write(self, content: bytes) -> None:
        """Every byte."""
        write_all(STDOUT, content)


class ScreenSink:
    """A terminal: text, and nothing that steers it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, content: bytes) -> None:
        """What can be shown of the bytes."""
        write_all(STDOUT, shown(self._decoder.decode(content)).encode())


def shown(text: str) -> str:
    """A log's text for a terminal. A carriage return begins a line: it may not paint over one."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join("\t".join(safe(part) for part in line.split("\t")) for line in lines)


def stdout_sink() -> Sink:
    """What suits stdout."""
    return ScreenSink() if is_terminal(sys.stdout) else RawSink()


def copy_rest(source: int, sink: Sink) -> int:
    """Everything from the present place to the present end; the number of bytes."""
    total = 0
    while content := os.read(source, BLOCK):
        sink.write(content)
        total += len(content)
    return total


def seek_last_lines(source: int, lines: int) -> None:
    """Place the descriptor before the last `lines` lines, reading backwards in blocks."""
    end = position = os.lseek(source, 0, os.SEEK_END)
    found = 0
    while position > 0:
        size = min(BLOCK, position)
        position -= size
        block = os.pread(source, size, position)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if position + at == end - 1:
                continue  # the line feed that ends the last line
            found += 1
            if found == lines:
                os.lseek(source, position + at + 1, os.SEEK_SET)
                return
    os.lseek(source, 0 if lines > 0 else end, os.SEEK_SET)


def last_lines(path: Path, lines: int) -> list[str]:
    """The last lines of a log as safe text. Raises OSError, or `unsafe_path`."""
    source = open_foreign(path)
    with open(source, "rb") as file:
        seek_last_lines(source, lines)
        file.seek(max(os.lseek(source, 0, os.SEEK_CUR), os.fstat(source).st_size - TAIL_BYTES))
        text = file.read(TAIL_BYTES).decode(errors="backslashreplace")
    return shown(text).splitlines()[-lines:]


class LogFollower:
    """Copies a growing log in a thread, so that the caller's thread can wait for the job."""

    def __init__(self, path: Path, source: int | None = None) -> None:
        self._path = path
        self._source = source
        self._sink = stdout_sink()
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
