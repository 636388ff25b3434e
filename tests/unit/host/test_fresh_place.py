"""Directories that cleaners of old files pass over."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from praxist_zmq.host.fresh_place import RENEW_MS, FreshPlace


def _cleaner_may(directory: Path) -> bool:
    """Whether a cleaner that goes by locks, as systemd-tmpfiles does, would go in."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _age(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (1, 1))


def test_its_directories_are_locked_and_what_is_in_its_own_stays_young(tmp_path: Path) -> None:
    own, beside = tmp_path / "host", tmp_path / "beside"
    file, deep = own / "registry.lock", own / "ledger" / "segment"
    deep.parent.mkdir(parents=True)
    for path in (file, deep, beside):
        path.touch()
    place = FreshPlace([tmp_path], own, 0)
    assert not _cleaner_may(tmp_path)
    assert not _cleaner_may(own)
    ours = (tmp_path, own, file, deep.parent, deep)
    _age(*ours, beside)
    place.keep(RENEW_MS - 1)
    assert file.stat().st_mtime == 1, "not sooner than it is due"
    assert place.due_ms == RENEW_MS
    place.keep(RENEW_MS)
    assert all(path.stat().st_mtime > 1 for path in ours)
    assert beside.stat().st_mtime == 1, "what is others' is theirs"
    place.close()
    assert _cleaner_may(own)


def test_a_directory_that_was_replaced_is_locked_anew(tmp_path: Path) -> None:
    own = tmp_path / "host"
    own.mkdir()
    place = FreshPlace([], own, 0)
    own.rename(tmp_path / "old")
    place.keep(RENEW_MS)
    own.mkdir()
    assert _cleaner_may(own)
    place.keep(2 * RENEW_MS)
    assert not _cleaner_may(own)
    place.close()
