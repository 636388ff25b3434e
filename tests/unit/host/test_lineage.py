"""Ancestors of the processes on a device, from this machine's /proc and from made-up ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from praxist_zmq.host.identity import own_namespace, read_stat
from praxist_zmq.host.lineage import (
    FIRST_PID_NAMESPACE,
    GENERATIONS_MAX,
    Lineage,
    LineageReader,
)


class Proc:
    """A made-up /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, parent: int, start: int, comm: str = "python") -> None:
        directory = self.root / str(pid)
        directory.mkdir()
        fields = f"{pid} ({comm}) S {parent} {pid} {pid} " + "0 " * 15 + f"{start} 0 0"
        (directory / "stat").write_text(fields)

    def look(self, *pids: int, namespace: int = FIRST_PID_NAMESPACE) -> dict[int, Lineage]:
        return LineageReader(self.root, namespace).look(pids)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def chain(lineage: Lineage) -> list[tuple[int, int]]:
    return [(stamp.pid, stamp.start_ticks) for stamp in lineage.stamps]


def test_a_real_child_descends_from_us() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        reader = LineageReader(namespace=FIRST_PID_NAMESPACE)
        lineage = reader.look([child.pid])[child.pid]
        us, it = read_stat(os.getpid()), read_stat(child.pid)
        assert us is not None
        assert it is not None
        wanted = [(child.pid, it.start_ticks), (os.getpid(), us.start_ticks)]
        assert chain(lineage)[:2] == wanted
        assert 1 not in {pid for pid, _ in chain(lineage)}
        assert lineage.name
        assert lineage.user
    finally:
        child.communicate()
    assert reader.look([child.pid])[child.pid] == Lineage()


def test_it_says_nothing_from_another_namespace(proc: Proc) -> None:
    proc.add(70, 1, 5)
    assert proc.look(70, 71, namespace=FIRST_PID_NAMESPACE - 1) == {70: Lineage(), 71: Lineage()}
    own = LineageReader().look([os.getpid()])[os.getpid()]
    assert bool(own.stamps) == (own_namespace() == FIRST_PID_NAMESPACE)


def test_a_chain_ends_below_pid_1_and_unknown_pids_are_empty(proc: Proc) -> None:
    proc.add(1, 0, 0, "init")
    proc.add(20, 1, 10)
    proc.add(30, 20, 11)
    found = proc.look(30, 99, 0, 1)
    assert chain(found[30]) == [(30, 11), (20, 10)]
    assert chain(found[99]) == chain(found[0]) == chain(found[1]) == []


def test_a_parent_younger_than_its_child_is_a_stranger_with_its_number(proc: Proc) -> None:
    proc.add(30, 20, 11)
    proc.add(20, 7, 500)
    proc.add(7, 1, 1)
    assert chain(proc.look(30)[30]) == [(30, 11)]


def test_a_long_chain_and_a_loop_end(proc: Proc) -> None:
    for pid in range(100, 200):
        proc.add(pid, pid + 1, 5)
    proc.add(200, 100, 5)
    assert len(proc.look(100)[100].stamps) == GENERATIONS_MAX


def test_names_are_for_display_only(proc: Proc) -> None:
    proc.add(30, 1, 11, "a) S 1 \x1b[2J(b\n")
    found = proc.look(30)[30]
    assert chain(found) == [(30, 11)]
    assert found.name == "a) S 1 ?[2J(b?"


def test_nonsense_is_unknown(proc: Proc) -> None:
    (proc.root / "30").mkdir()
    (proc.root / "30" / "stat").write_text("30 (x) S")
    assert proc.look(30)[30] == Lineage()
