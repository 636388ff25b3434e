"""Host pressure, on this machine and on made-up kernel files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from praxist_zmq.host.pressure import KeptFile, PressureReader
from tests.support.wait import wait_until

GIB = 1024**3


class Kernel:
    """A proc and a cgroup tree of files, written by the test."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.groups = root / "cgroup"
        self.write("proc/self/cgroup", "0::/job\n")
        self.write("proc/stat", "cpu 100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3 4\n")
        self.write("proc/meminfo", f"MemTotal: {8 * GIB // 1024} kB\nMemFree: 1 kB\n")
        self.write("proc/pressure/io", "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\n")
        self.available(6)

    def write(self, name: str, text: str) -> None:
        path = self.proc.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as stream:  # in place: kept descriptors see the new text
            stream.write(text)

    def available(self, gib: float) -> None:
        total = 8 * GIB // 1024
        text = f"MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {int(gib * GIB) // 1024} kB\n"
        self.write("proc/meminfo", text)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


CORES = os.cpu_count() or 1


def reader(kernel: Kernel, own: set[int] | None = None) -> PressureReader:
    cpus = set(range(CORES)) if own is None else own
    return PressureReader(kernel.proc, kernel.groups, lambda: cpus)


def test_cpu_is_the_busy_share_between_two_looks(kernel: Kernel) -> None:
    look = reader(kernel)
    assert look.sample().cpu_pct is None
    # 30 user, 10 steal, 50 idle, 10 iowait more; guest time is in user already
    kernel.write("proc/stat", "cpu 130 0 100 850 10 0 0 10 30 0\n")
    assert look.sample().cpu_pct == 40.0
    assert look.sample().cpu_pct == 40.0  # no tick passed: the last share holds
    look.close()


def test_memory_and_io(kernel: Kernel) -> None:
    look = reader(kernel)
    first = look.sample()
    assert (first.memory_pct, first.io_pct) == (25.0, 12.5)
    kernel.available(2)
    kernel.write("proc/pressure/io", "some avg10=0.00 avg60=1.00 avg300=0.10 total=5\n")
    second = look.sample()
    assert (second.memory_pct, second.io_pct) == (75.0, 0.0)
    look.close()


def test_what_cannot_be_read_is_unknown_never_zero(kernel: Kernel) -> None:
    look = reader(kernel)
    look.sample()
    for name in ("stat", "meminfo", "pressure/io"):
        kernel.write(f"proc/{name}", "nonsense\n")
    reading = look.sample()
    assert (reading.cpu_pct, reading.memory_pct, reading.io_pct) == (None, None, None)
    look.close()
    gone = PressureReader(kernel.proc / "none", kernel.groups)
    reading = gone.sample()
    assert (reading.cpu_pct, reading.memory_pct, reading.io_pct) == (None, None, None)
    gone.close()


def test_a_quota_of_version_2_is_the_host(kernel: Kernel) -> None:
    kernel.write("cgroup/cpu.max", "max 100000\n")
    kernel.write("cgroup/job/cpu.max", "50000 100000\n")
    kernel.write("cgroup/job/cpu.stat", "usage_usec 1000000\nuser_usec 5\n")
    look = reader(kernel)
    assert look.sample().cpu_pct is None
    kernel.write("cgroup/job/cpu.stat", "usage_usec 9000000000\nuser_usec 5\n")
    wait_until(lambda: (look.sample().cpu_pct or 0) == 100.0, "a group at its quota")
    wait_until(lambda: look.sample().cpu_pct == 0.0, "an idle group")
    kernel.write("cgroup/job/cpu.stat", "broken\n")
    assert look.sample().cpu_pct is None
    look.close()


def test_a_quota_of_version_1_in_a_container(kernel: Kernel) -> None:
    kernel.write("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n0::/\n")
    kernel.write("cgroup/cpu/cpu.cfs_quota_us", "25000\n")
    kernel.write("cgroup/cpu/cpu.cfs_period_us", "100000\n")
    kernel.write("cgroup/cpuacct/cpuacct.usage", "0\n")
    kernel.write("cgroup/memory/memory.limit_in_bytes", f"{2 * GIB}\n")
    kernel.write("cgroup/memory/memory.usage_in_bytes", f"{GIB + GIB // 2}\n")
    kernel.write("cgroup/memory/memory.stat", f"cache 5\ntotal_inactive_file {GIB // 2}\n")
    look = reader(kernel)
    first = look.sample()
    assert (first.cpu_pct, first.memory_pct) == (None, 50.0)
    kernel.write("cgroup/cpuacct/cpuacct.usage", "900000000000000\n")
    wait_until(lambda: look.sample().cpu_pct == 100.0, "a group at its quota")
    look.close()


def test_a_memory_limit_counts_the_worse_of_group_and_machine(kernel: Kernel) -> None:
    kernel.write("cgroup/memory.max", f"{4 * GIB}\n")
    kernel.write("cgroup/memory.current", f"{3 * GIB}\n")
    kernel.write("cgroup/memory.stat", "inactive_file 0\n")
    kernel.write("cgroup/job/memory.max", "max\n")
    look = reader(kernel)
    assert look.sample().memory_pct == 75.0
    kernel.available(1)
    assert look.sample().memory_pct == 87.5
    kernel.write("cgroup/memory.current", "\n")
    assert look.sample().memory_pct is None
    look.close()


def test_a_limit_over_the_machine_is_none(kernel: Kernel) -> None:
    kernel.write("cgroup/job/memory.max", f"{64 * GIB}\n")
    kernel.write("cgroup/job/cpu.max", f"{CORES * 100000} 100000\n")
    look = reader(kernel)
    assert look.sample().memory_pct == 25.0
    kernel.write("proc/stat", "cpu 200 0 100 800 0 0 0 0 0 0\n")
    assert look.sample().cpu_pct == 100.0
    look.close()


def test_the_cores_are_the_machines_the_quotas_or_those_we_may_run_on(kernel: Kernel) -> None:
    assert reader(kernel).sample().cpus == CORES
    kernel.write("cgroup/job/cpu.max", "50000 100000\n")
    assert reader(kernel).sample().cpus == 0.5
    kernel.write("cgroup/cpu.max", "20000 100000\n")  # the group above is tighter
    assert reader(kernel).sample().cpus == 0.2
    kernel.write("cgroup/job/cpu.max", "max 100000\n")
    kernel.write("cgroup/cpu.max", f"{CORES * 100000} 100000\n")
    assert reader(kernel).sample().cpus == CORES
    kernel.write("cgroup/cpu.max", "0 0\n")
    assert reader(kernel).sample().cpus == CORES
    kernel.write("cgroup/cpu.max", "170000 100000\n")
    assert reader(kernel, {0}).sample().cpus == 1.0  # a quota over what one core gives is none
    assert reader(kernel, set()).sample().cpus is None


def test_a_nested_quota_of_version_1(kernel: Kernel) -> None:
    kernel.write("proc/self/cgroup", "4:cpu,cpuacct:/pod/box\n")
    for group, quota in (("pod", "30000"), ("pod/box", "-1")):
        kernel.write(f"cgroup/cpu/{group}/cpu.cfs_quota_us", f"{quota}\n")
        kernel.write(f"cgroup/cpu/{group}/cpu.cfs_period_us", "100000\n")
    kernel.write("cgroup/cpuacct/pod/cpuacct.usage", "0\n")
    look = reader(kernel)
    assert look.sample().cpus == 0.3
    kernel.write("cgroup/cpuacct/pod/cpuacct.usage", "900000000000000\n")
    wait_until(lambda: look.sample().cpu_pct == 100.0, "a group at its quota")
    look.close()


@pytest.mark.skipif(CORES < 2, reason="this machine has one core")
def test_with_fewer_cpus_to_run_on_those_are_the_host(kernel: Kernel) -> None:
    rest = "".join(f"cpu{n} 0 0 0 0\n" for n in range(1, 700))
    kernel.write("proc/stat", f"cpu 1 2 3 4 5\n{rest}cpu0 100 0 100 800 0 0 0 0 0 0\n")
    look = reader(kernel, {0})
    assert look.sample().cpu_pct is None
    kernel.write("proc/stat", f"cpu 1 2 3 4 5\n{rest}cpu0 130 0 100 850 10 0 0 10 30 0\n")
    sample = look.sample()
    assert (sample.cpu_pct, sample.cpus) == (40.0, 1.0)
    look.close()


def test_a_file_that_was_gone_is_found_again(tmp_path: Path) -> None:
    kept = KeptFile(tmp_path / "late")
    assert kept.read() is None
    (tmp_path / "late").write_text("7")
    assert kept.read() == b"7"
    kept.close()


def test_this_machine_answers_and_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    look = PressureReader()
    look.sample()
    spent = time.process_time()
    wait_until(lambda: time.process_time() - spent > 0.05, "some ticks of work")
    reading = look.sample()
    assert reading.cpu_pct is not None
    assert 0 < reading.cpu_pct <= 100
    assert reading.memory_pct is not None
    assert 0 < reading.memory_pct < 100
    look.close()
    assert len(os.listdir("/proc/self/fd")) == before
