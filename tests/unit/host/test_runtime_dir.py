"""Directories for sockets: made private, and refused when they are not."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.host.liveness import NamedProcess, boot_id, liveness, own_namespace, start_ticks
from praxist_zmq.host.runtime_dir import check_socket_owner, ensure_private, ensure_scope

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs to own files as another user")


def refusal(path: Path) -> PraxistError:
    with pytest.raises(PraxistError) as caught:
        ensure_private(path)
    return caught.value


def test_missing_parents_are_made_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ensure_private(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert ensure_private(tmp_path / "a" / "b") == tmp_path / "a" / "b"


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o720, 0o777, 0o1777])
def test_any_bit_for_others_is_refused_and_not_mended(tmp_path: Path, mode: int) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(mode)
    error = refusal(tmp_path / "d")
    assert error.code == "unsafe_path"
    assert str(tmp_path / "d") in error.detail
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == mode


def test_a_link_a_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "file", "pipe", "file/below"):
        assert refusal(tmp_path / name).code == "unsafe_path", name


def test_a_parent_that_everybody_may_write_needs_the_sticky_bit(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert refusal(tmp_path / "open" / "d").code == "unsafe_path"
    (tmp_path / "open").chmod(0o1777)
    ensure_private(tmp_path / "open" / "d")


def test_a_link_in_a_sticky_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    (tmp_path / "open" / "link").symlink_to(tmp_path / "real")
    assert refusal(tmp_path / "open" / "link" / "d").code == "unsafe_path"


def test_our_own_link_in_our_own_directory_is_followed_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    ensure_private(tmp_path / "link" / "d")
    assert (tmp_path / "real" / "d").is_dir()


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert refusal(tmp_path / "a" / "d").code == "unsafe_path"


@ROOT_ONLY
def test_what_belongs_to_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 12345, 12345)
    assert refusal(tmp_path / "theirs").code == "unsafe_path"
    assert refusal(tmp_path / "theirs" / "d").code == "unsafe_path"
    assert not (tmp_path / "theirs" / "d").exists()


def test_an_unusable_place_is_told_as_such(tmp_path: Path) -> None:
    assert refusal(Path("/proc/nothing/here")).code == "path_unusable"
    assert refusal(tmp_path / ("x" * 300)).code == "path_unusable"


def test_the_owner_of_a_socket_is_checked_without_following_links(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_socket_owner(tmp_path / "s", os.geteuid())
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        check_socket_owner(tmp_path / "s", os.geteuid())
        (tmp_path / "link").symlink_to(tmp_path / "s")
        (tmp_path / "file").write_text("")
        for name, uid in (("s", os.geteuid() + 1), ("link", os.geteuid()), ("file", os.geteuid())):
            with pytest.raises(PraxistError) as caught:
                check_socket_owner(tmp_path / name, uid)
            assert caught.value.code == "unsafe_path"


def test_liveness_needs_every_part_to_match() -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    own = NamedProcess(boot_id(), own_namespace(), os.getpid(), ticks)
    assert liveness(own) == "alive"
    assert liveness(NamedProcess(own.boot_id, own.pid_namespace, own.pid, ticks + 1)) == "gone"
    assert liveness(NamedProcess("another", own.pid_namespace, own.pid, ticks)) == "gone"
    assert liveness(NamedProcess(own.boot_id, own.pid_namespace + 1, own.pid, ticks)) == "unknown"


@pytest.mark.parametrize(
    "value", [None, [], {}, {"boot_id": 1, "pid_namespace": 1, "pid": 1, "start_ticks": 1},
              {"boot_id": "b", "pid_namespace": 1, "pid": "1", "start_ticks": 1},
              {"boot_id": "b", "pid_namespace": 1, "pid": True, "start_ticks": 1}]
)  # fmt: skip
def test_a_malformed_process_is_refused(value: object) -> None:
    with pytest.raises(PraxistError):
        NamedProcess.of(value)


@pytest.mark.parametrize("mode", [0o711, 0o755, 0o710, 0o750, 0o2755])
def test_a_scope_that_others_may_pass_is_shared(tmp_path: Path, mode: int) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s").chmod(mode)
    scope = ensure_scope(tmp_path / "s")
    assert (scope.owner, scope.shared, scope.ours) == (os.geteuid(), True, True)


def test_a_scope_is_made_private(tmp_path: Path) -> None:
    scope = ensure_scope(tmp_path / "new")
    assert (scope.owner, scope.shared) == (os.geteuid(), False)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o775, 0o722, 0o704, 0o611])
def test_a_scope_that_others_may_write_or_cannot_pass_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s").chmod(mode)
    with pytest.raises(PraxistError) as raised:
        ensure_scope(tmp_path / "s")
    assert raised.value.code == "unsafe_path"
    assert "chmod 700" in raised.value.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make directories of other users")
@pytest.mark.parametrize(("parent", "safe"), [(0o711, True), (0o1777, False)])
def test_another_users_scope_is_used_where_not_everybody_could_make_it(
    tmp_path: Path, parent: int, safe: bool
) -> None:
    place = tmp_path / "p" / "s"
    place.mkdir(parents=True)
    place.parent.chmod(parent)
    place.chmod(0o711)
    os.chown(place, 64_001, 64_001)
    if safe:
        scope = ensure_scope(place)
        assert (scope.owner, scope.shared, scope.ours) == (64_001, True, False)
        return
    with pytest.raises(PraxistError) as raised:
        ensure_scope(place)
    assert raised.value.code == "unsafe_path"
    assert "anybody could have made it" in raised.value.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make directories of other users")
def test_another_users_private_directory_is_no_scope_of_ours(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    os.chown(tmp_path / "s", 64_001, 64_001)
    with pytest.raises(PraxistError) as raised:
        ensure_scope(tmp_path / "s")
    assert raised.value.code == "unsafe_path"
