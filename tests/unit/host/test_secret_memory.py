"""Memory that outlives a process: what a sudden end at any instant leaves of it."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator

import pytest

from praxist_zmq.host import secret_memory
from praxist_zmq.host.secret_memory import HALF_BYTES, SecretMemory, make_secret_memory


@pytest.fixture
def descriptor() -> Iterator[int]:
    made = make_secret_memory()
    yield made
    os.close(made)


def _raw(descriptor: int) -> bytes:
    with mmap.mmap(descriptor, 0) as mapped:
        return mapped[:]


def _loaded(descriptor: int) -> tuple[SecretMemory, dict[bytes, bytes]]:
    memory = SecretMemory(descriptor)
    return memory, memory.load()


def test_what_was_kept_is_found_and_what_was_dropped_leaves_no_byte(descriptor: int) -> None:
    first, found = _loaded(descriptor)
    assert found == {}
    values = {bytes([n]) * 32: b"value-%d-" % n + bytes([n]) * n for n in range(1, 40)}
    assert all(first.keep(key, value) for key, value in values.items())
    second, found = _loaded(descriptor)
    assert found == values
    for key in list(values)[::2]:
        second.drop(key)
        del values[key]
    raw = _raw(descriptor)
    assert all((b"value-%d-" % n in raw) == (n % 2 == 0) for n in range(1, 40))
    assert _loaded(descriptor)[1] == values


def test_a_write_that_was_cut_short_anywhere_costs_only_itself(descriptor: int) -> None:
    """Every store of `keep` and `drop` is one of the instants at which a process may end."""

    class Ended(Exception):
        pass

    class Cut:
        """The map, until so many stores were made."""

        def __init__(self, mapped: mmap.mmap, left: int) -> None:
            self._mapped, self._left = mapped, left

        def __getitem__(self, key: int | slice) -> int | bytes:
            return self._mapped[key]

        def __setitem__(self, key: int | slice, value: int | bytes) -> None:
            if not self._left:
                raise Ended
            self._left -= 1
            self._mapped[key] = value  # type: ignore[index, assignment]

    steps = (("drop", b"a"), ("keep", b"c", b"third"), ("_compact",), ("drop", b"c"))
    for stores in range(40):
        memory, _ = _loaded(descriptor)
        memory.keep(b"a", b"first")
        memory.keep(b"b", b"second")
        real = memory._map
        memory._map = Cut(real, stores)  # type: ignore[assignment]
        done = 0
        try:
            for name, *arguments in steps:
                getattr(memory, str(name))(*arguments)
                done += 1
        except Ended:
            pass
        real.close()
        after, found = _loaded(descriptor)
        whole = {b"a": b"first", b"b": b"second", b"c": b"third"}
        assert found == {key: whole[key] for key in found}
        assert b"b" in found
        raw = _raw(descriptor)
        assert [value in raw for value in whole.values()] == [key in found for key in whole]
        if done >= 1:
            assert b"a" not in found
        if done == 2:
            assert b"c" in found
        for key in found:
            after.drop(key)
        after.close()
        if done == len(steps):
            return
    pytest.fail("never came to the end")


def test_a_record_that_does_not_prove_itself_is_none(descriptor: int) -> None:
    memory, _ = _loaded(descriptor)
    memory.keep(b"a", b"whole")
    memory.keep(b"b", b"torn, as by a wild store")
    place = _raw(descriptor).index(b"torn, as")
    os.pwrite(descriptor, b"T", place)
    assert _loaded(descriptor)[1] == {b"a": b"whole"}
    assert b"as by a wild store" not in _raw(descriptor)


def test_it_is_bounded_and_takes_again_what_was_freed(descriptor: int) -> None:
    memory, _ = _loaded(descriptor)
    big = b"x" * 100_000
    kept = 0
    while memory.keep(b"%d" % kept, big):
        kept += 1
    assert kept == HALF_BYTES // (len(big) + 18)
    assert memory.keep(b"small", b"still fits")
    memory.drop(b"3")
    assert memory.keep(b"another", big), "the room of what was dropped is used again"
    assert len(_loaded(descriptor)[1]) == kept + 1


def test_nobody_can_change_its_size_and_no_child_inherits_it(descriptor: int) -> None:
    for size in (0, 10, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    assert fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert descriptor >= secret_memory.INHERITABLE_FROM


def test_it_is_in_no_core_dump(descriptor: int) -> None:
    memory = SecretMemory(descriptor)
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as file:
        areas = file.read().split("memfd:praxist-zmq-vault")[1:]
    assert areas
    assert all("dd" in area.split("VmFlags:")[1].splitlines()[0] for area in areas)
    memory.close()


def test_memory_of_another_form_is_refused(descriptor: int) -> None:
    os.pwrite(descriptor, b"another", 0)
    with pytest.raises(ValueError, match="another form"):
        SecretMemory(descriptor)
