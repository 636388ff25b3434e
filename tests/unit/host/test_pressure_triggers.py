"""Triggers of the kernel's pressure stall information, where there are any."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from praxist_zmq.host.pressure_triggers import DOMAINS, PressureTriggers
from tests.support.wait import wait_until


def test_where_the_kernel_refuses_there_is_no_trigger(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "cpu").mkdir()  # a kind of file that takes no trigger
    (tmp_path / "io").write_text("an old kernel's file")
    triggers = PressureTriggers(tmp_path)
    try:
        assert triggers.armed == ()
        assert select.select([triggers], [], [], 0) == ([], [], [])
        triggers.clear()
    finally:
        triggers.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_pressure_on_this_machine_is_told() -> None:
    triggers = PressureTriggers()
    busy = []
    try:
        if "cpu" not in triggers.armed:
            pytest.skip("this kernel, or its rights, give no pressure trigger")
        assert set(triggers.armed) <= set(DOMAINS)
        for _ in range(2 * (os.cpu_count() or 1) + 1):
            busy.append(os.posix_spawn("/bin/sh", ["sh", "-c", "while :; do :; done"], {}))
        wait_until(lambda: select.select([triggers], [], [], 0)[0], "a trigger to fire", 20)
        triggers.clear()
    finally:
        for pid in busy:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        triggers.close()
