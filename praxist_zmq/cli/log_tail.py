"""Copy a log to stdout byte by byte, as it is and as it grows.

Opens the file that the broker named, if it is a regular one; follows no link. Never decodes.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from .small_file import open_regular

BLOCK = 1 << 16
LOOK_AGAIN_S = 0.2  # the standard library has no inotify; tail(1) looks once a second
STDOUT = 1


def write_all(descriptor: int, content: bytes) -> None:
    """Every byte, whatever the pipe takes at once."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def copy_rest(source: int, target: int = STDOUT) -> int:
    """Everything from the present place to the present end; the number of bytes."""
    total = 0
    while content := os.read(source, BLOCK):
        write_all(target, content)
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


class LogFollower:
    """Copies a growing log in a thread, so that the caller's thread can wait for the job."""

    def __init__(self, path: Path, source: int | None = None) -> None:
        self._path = path
        self._source = source
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
                    copy_rest(self._source)
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
            return open_regular(self._path)
        except FileNotFoundError:
            return None
