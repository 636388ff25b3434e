"""Memory that outlives a process and is no file: a sealed memfd of a fixed size, with records.

The supervisor makes it and holds it; a process that it starts inherits the descriptor. It is kept
out of core dumps, and out of swap where the limit on locked memory allows. Whoever holds no
descriptor of it can reach it only as its user can reach the memory of the holders:
/proc/PID/fd. It is gone with the last of them.

A process may be killed between any two writes. A record counts by its first byte, which is written
last, and proves itself by a checksum. Two halves take turns: what is needed is copied into the
other one, one byte says which counts, and the first is given back to the kernel, which zeroes it.
Never decides what is kept.

Sources: memfd_create(2), fcntl(2) F_ADD_SEALS, mlock2(2), madvise(2) MADV_DONTDUMP,
fallocate(2) FALLOC_FL_PUNCH_HOLE.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import zlib
from collections.abc import Iterator

HALF_BYTES = 2 * 1024 * 1024
"""What one half holds: thousands of values, and twice it is below the usual limit on locked
memory."""
INHERITABLE_FROM = 10
"""Lowest number of the holder's descriptor: none below, where children find theirs."""
_VERSION = b"praxist-zmq vault 1\n"
_ACTIVE = 64
"""Where the byte is that says which half counts."""
_FIRST = mmap.PAGESIZE
_SIZE = _FIRST + 2 * HALF_BYTES
_HEAD = struct.Struct("<B3xIII")
"""State, length of the key, length of the value, checksum of both."""
_END, _LIVE, _DROPPED = 0, 1, 2
_ON_FAULT = 1
_PUNCH_HOLE = 0x03
"""FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE"""
_LIBC = ctypes.CDLL(None, use_errno=True)


def make_secret_memory() -> int:
    """A new one: its descriptor, which no child inherits by itself. Raises OSError."""
    made = os.memfd_create("praxist-zmq-vault", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(made, _SIZE)
        # So nobody can cut it short under those who have it mapped.
        seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
        os.pwrite(made, _VERSION, 0)
        return fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, INHERITABLE_FROM)
    finally:
        os.close(made)


class SecretMemory:
    """One mapping of it."""

    def __init__(self, descriptor: int) -> None:
        """Map it. Raises OSError or ValueError when it is not what `make_secret_memory` makes."""
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, _SIZE)
        if self._map[: len(_VERSION)] != _VERSION:
            raise ValueError("it is of another form")
        self._map.madvise(mmap.MADV_DONTDUMP)
        self.locked = _lock(self._map)
        """Whether it stays out of swap."""
        self._places: dict[bytes, int] = {}
        self._end = 0
        self._dropped_bytes = 0

    def load(self) -> dict[bytes, bytes]:
        """All that is kept. Whatever an earlier process left half done is wiped."""
        return self._compact()

    def keep(self, key: bytes, value: bytes) -> bool:
        """Keep a value; there when this returns. False: there is no room."""
        if key in self._places:
            return True
        need = _HEAD.size + len(key) + len(value)
        if self._end + need > self._limit() and self._dropped_bytes:
            self._compact()
        if self._end + need > self._limit():
            return False
        self._append(key, value)
        return True

    def drop(self, key: bytes) -> None:
        """Wipe a value."""
        at = self._places.pop(key, None)
        if at is None:
            return
        _, key_bytes, value_bytes, _ = self._head(at)
        self._map[at] = _DROPPED
        start = at + _HEAD.size
        self._map[start : start + key_bytes + value_bytes] = bytes(key_bytes + value_bytes)
        self._dropped_bytes += _HEAD.size + key_bytes + value_bytes
        if not self._places:
            self._compact()

    def close(self) -> None:
        """Unmap it."""
        self._map.close()

    def _start(self) -> int:
        return _FIRST + HALF_BYTES * (self._map[_ACTIVE] & 1)

    def _limit(self) -> int:
        """Where records of this half end: one state byte more says that none follows."""
        return self._start() + HALF_BYTES - _HEAD.size

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        """Those that count, up to the first that does not prove itself."""
        at, limit = self._start(), self._limit()
        while at < limit:
            state, key_bytes, value_bytes, checksum = self._head(at)
            start = at + _HEAD.size
            at = start + key_bytes + value_bytes
            if state not in (_LIVE, _DROPPED) or at > limit:
                return
            if state == _LIVE:
                body = self._map[start:at]
                if zlib.crc32(body) != checksum:
                    return
                yield body[:key_bytes], body[key_bytes:]

    def _compact(self) -> dict[bytes, bytes]:
        """Copy what counts into the other half, which counts from then on."""
        records = dict(self._records())
        old = self._start()
        new = _FIRST + HALF_BYTES - (old - _FIRST)
        self._give_back(new)
        self._places.clear()
        self._end, self._dropped_bytes = new, 0
        for key, value in records.items():
            self._append(key, value)
        self._map[_ACTIVE] = (new - _FIRST) // HALF_BYTES
        self._give_back(old)
        return records

    def _head(self, at: int) -> tuple[int, int, int, int]:
        state, key_bytes, value_bytes, checksum = _HEAD.unpack(self._map[at : at + _HEAD.size])
        return state, key_bytes, value_bytes, checksum

    def _give_back(self, start: int) -> None:
        """Wipe a half: its pages go back to the kernel, also locked ones."""
        punched = _LIBC.fallocate(
            self._descriptor, _PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(HALF_BYTES)
        )
        if punched != 0:
            self._map[start : start + HALF_BYTES] = bytes(HALF_BYTES)

    def _append(self, key: bytes, value: bytes) -> None:
        at, body = self._end, key + value
        start = at + _HEAD.size
        self._map[start : start + len(body)] = body
        self._map[at:start] = _HEAD.pack(_END, len(key), len(value), zlib.crc32(body))
        self._map[at] = _LIVE
        self._places[key] = at
        self._end = start + len(body)


def _lock(mapped: mmap.mmap) -> bool:
    """Keep the pages that are used out of swap, as they come into use."""
    first = ctypes.c_char.from_buffer(mapped)
    return bool(_LIBC.mlock2(ctypes.byref(first), ctypes.c_size_t(_SIZE), _ON_FAULT) == 0)
