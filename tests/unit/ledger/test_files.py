"""Files are opened and replaced without harm, whatever stands in their place."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger import files


def plant(path: Path, kind: str, target: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(target)
    elif kind == "device":
        path.symlink_to("/dev/null")
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["fifo", "link", "device", "directory"])
def test_what_is_no_file_is_refused_and_untouched(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    path = tmp_path / "path"
    plant(path, kind, target)
    for attempt in (
        lambda: files.open_regular(path, os.O_RDONLY),
        lambda: files.open_regular(path, os.O_WRONLY | os.O_CREAT),
        lambda: files.read_limited(path, 10),
        lambda: files.write_atomically(path, b"new"),
    ):
        with pytest.raises(PraxistError) as caught:
            attempt()
        assert caught.value.code == "unsafe_path"
    assert target.read_bytes() == b"kept"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["path", "target"]


def test_a_device_itself_is_refused() -> None:
    with pytest.raises(PraxistError) as caught:
        files.open_regular(Path("/dev/null"), os.O_RDONLY)
    assert caught.value.code == "unsafe_path"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "path"
    path.write_bytes(b"")
    os.chown(path, 12345, 12345)
    with pytest.raises(PraxistError, match="user 12345"):
        files.open_regular(path, os.O_RDONLY)


def test_a_missing_file_is_just_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.read_limited(tmp_path / "missing", 10)


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    descriptor = files.open_regular(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize("durable", [True, False])
def test_replacing_is_whole_and_leaves_no_leftover(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    umask = os.umask(0o077)
    try:
        files.write_atomically(path, b"one", mode=0o644, durable=durable)
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o644
    files.write_atomically(path, b"two", durable=durable)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_replacing_in_a_missing_directory_fails_by_name(tmp_path: Path) -> None:
    with pytest.raises(PraxistError) as caught:
        files.write_atomically(tmp_path / "missing" / "file", b"one")
    assert caught.value.code == "path_unusable"


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert files.read_limited(path, 10) == b"x" * 10
    with pytest.raises(PraxistError) as caught:
        files.read_limited(path, 9)
    assert caught.value.code == "too_large"


def test_only_our_own_leftovers_are_removed(tmp_path: Path) -> None:
    for name in (f".a.{'0' * 16}.tmp", f".b.{'0' * 16}.tmp", ".a.0.tmp", "a"):
        (tmp_path / name).write_bytes(b"")
    files.remove_temporaries(tmp_path, re.compile(r"^a$"))
    assert len(list(tmp_path.iterdir())) == 3
    assert not (tmp_path / f".a.{'0' * 16}.tmp").exists()


def test_only_what_killed_writers_of_the_named_files_left_is_removed(tmp_path: Path) -> None:
    suffix = f"{'0' * 16}.tmp"
    mine = [tmp_path / "status.json", tmp_path / "deeper" / "a+b"]
    mine[1].parent.mkdir()
    left = [path.with_name(f".{path.name}.{suffix}") for path in mine]
    others = [
        tmp_path / name
        for name in (
            f".status.json.old.{suffix}",
            f".aab.{suffix}",
            ".status.json.tmp",
            f".x.{suffix}",
        )
    ]
    for path in [*mine, *left, *others]:
        path.touch()
    (tmp_path / f".status.json.{'1' * 16}.tmp").mkdir()
    files.remove_leftovers(*mine)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in [*mine, *others])
    assert (tmp_path / f".status.json.{'1' * 16}.tmp").is_dir()


def test_a_limit_on_the_size_of_a_file_is_not_told_as_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PraxistError) as caught, files.usable(tmp_path):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    assert caught.value.code == "no_space"
    assert "(ulimit -f), not a full disk" in caught.value.detail
    assert "full" not in caught.value.row.title
