"""What is acknowledged is in the file that the next start reads, not in one that was removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger.lock import OwnerLock
from praxist_zmq.ledger.named_file import NamedFile
from tests.support.ledgers import contents, started


def _replaced_by_a_copy(directory: Path) -> None:
    saved = directory.with_name("saved")
    shutil.copytree(directory, saved)
    shutil.rmtree(directory)
    saved.rename(directory)


def _moved_away(directory: Path) -> None:
    directory.rename(directory.with_name("away"))


def _emptied(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


@pytest.mark.parametrize("harm", [_replaced_by_a_copy, _moved_away, _emptied, shutil.rmtree])
def test_a_commit_into_a_file_that_is_not_there_is_never_acknowledged(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    directory = tmp_path / "ledger"
    ledger = started(directory)
    ledger.commit([b"1"])
    harm(directory)
    for _ in range(2):
        with pytest.raises(PraxistError) as caught:
            ledger.commit([b"2"])
        assert caught.value.code == "file_lost"
    assert ledger.last_sequence == 1
    ledger.close()
    if harm is _replaced_by_a_copy:
        assert contents(directory) == [b"1"]


def test_an_idle_ledger_notices_too_and_stays_poisoned(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    ledger = started(directory, segment_bytes=600)
    for number in range(40):
        ledger.commit([b"%d" % number + b"x" * 50])
    ledger.maintain()
    _moved_away(directory)
    with pytest.raises(PraxistError) as caught:
        ledger.maintain()
    assert caught.value.code == "file_lost"
    (tmp_path / "away").rename(directory)
    with pytest.raises(PraxistError):
        ledger.commit([b"after"])
    ledger.close()


def test_a_second_owner_of_the_same_directory_ends_the_first(tmp_path: Path) -> None:
    """With the lock's file gone nothing else keeps it out."""
    first = started(tmp_path / "ledger")
    first.commit([b"1"])
    second = started(tmp_path / "ledger")
    with pytest.raises(PraxistError) as caught:
        first.commit([b"2"])
    assert caught.value.code == "file_lost"
    assert second.commit([b"2"]) == 2
    second.close()


def test_a_lock_knows_whether_its_name_is_its_file(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    lock = OwnerLock.acquire(path, {})
    assert lock.named.is_there()
    path.unlink()
    assert not lock.named.is_there()
    other = OwnerLock.acquire(path, {})
    assert other.named.is_there()
    assert not lock.named.is_there()
    assert NamedFile.found(path) == other.named
    assert NamedFile.found(tmp_path / "nothing") is None
    assert os.stat(path).st_nlink == 1
