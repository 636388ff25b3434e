"""The cap of a log: the middle goes, head and tail stay, and whoever writes notices nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from praxist_zmq.host.log_cap import ALIGN, MARK, take_middle_out

CAP = 16 * ALIGN


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three times its cap, of numbered lines."""
    path = tmp_path / "j-1.1.log"
    path.write_bytes(b"".join(b"%015d\n" % number for number in range(3 * CAP // 16)))
    return path


def _taken(path: Path, cap: int) -> int:
    fd = os.open(path, os.O_RDWR)
    try:
        taken = take_middle_out(fd, cap)
    finally:
        os.close(fd)
    if not taken and cap == CAP:
        pytest.skip("this file system punches no holes")
    return taken


def test_the_middle_of_a_log_over_its_cap_goes_back_to_the_disk(log: Path) -> None:
    whole = log.read_bytes()
    assert _taken(log, CAP) > CAP
    assert log.stat().st_blocks * 512 < CAP
    left = log.read_bytes()
    assert len(left) == len(whole), "every offset stays"
    assert left[: CAP // 4] == whole[: CAP // 4]
    assert left[-CAP // 4 :] == whole[-CAP // 4 :]
    assert left[CAP // 4 :].startswith(MARK)


def test_a_writer_goes_on_and_the_cap_holds_again(log: Path) -> None:
    with log.open("ab", buffering=0) as writer:
        _taken(log, CAP)
        size = log.stat().st_size
        writer.write(b"x" * CAP)
        assert log.stat().st_size == size + CAP
        assert log.read_bytes().endswith(b"x" * CAP)
        assert _taken(log, CAP) > 0
        assert log.stat().st_blocks * 512 < CAP


def test_a_log_below_its_cap_is_left_alone(log: Path) -> None:
    whole = log.read_bytes()
    assert _taken(log, 4 * CAP) == 0
    assert log.read_bytes() == whole
