"""How busy the host is: CPU, memory, I/O. One cheap look, files kept open.

CPU is the busy share since the last look, memory 100 x (1 - available/total), I/O the kernel's
"some avg10" stall share (PSI). Where this process is limited to less than the machine, the limit
is the host: under a CPU quota, CPU is the group's use of it; with fewer CPUs to run on, the busy
share of those; under a memory limit, memory is the worse of group and machine.
A reading that fails is None, never zero. It decides nothing.
Source: proc(5), sched(7), the kernel's cgroup-v1, cgroup-v2 and psi documents.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

READ_BYTES = 8192
STAT_READ_BYTES = 256 * 1024
"""A line a CPU; asked for only where we may not use all of them."""
FIND_GROUPS_EVERY = 60
SHARE_WINDOW_MIN_S = 0.01


@dataclass(frozen=True, slots=True)
class PressureReading:
    """Percent values; None is unknown."""

    cpu_pct: float | None
    memory_pct: float | None
    io_pct: float | None
    cpus: float | None = None
    """Cores that we may use: those we may run on, or the quota when that is less."""


class KeptFile:
    """A file of the kernel's that stays open; every read is one `pread` from its beginning."""

    def __init__(self, path: Path, read_bytes: int = READ_BYTES) -> None:
        self._path = path
        self._read_bytes = read_bytes
        self._descriptor = -1

    def read(self) -> bytes | None:
        """The first bytes of the file as it is now, or None when that fails."""
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptor, self._read_bytes, 0)
        except OSError:
            # Unknown, as the docstring says; a group that moved is opened again the next time.
            self.close()
            return None

    def close(self) -> None:
        """Close it; a later read opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(frozen=True, slots=True)
class _CpuQuota:
    cpus: float
    usage: KeptFile
    in_nanoseconds: bool


@dataclass(frozen=True, slots=True)
class _MemoryLimit:
    limit_bytes: int
    usage: KeptFile
    statistics: KeptFile


class PressureReader:
    """Reads this host. `proc` and `groups` are the roots of the two file systems; `own_cpus`
    tells the numbers of the CPUs that this process may run on."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        groups: Path = Path("/sys/fs/cgroup"),
        own_cpus: Callable[[], set[int]] = lambda: os.sched_getaffinity(0),
    ) -> None:
        self._proc = proc
        self._groups = groups
        self._own_cpus = own_cpus
        self._cpus: frozenset[int] = frozenset()
        self._stat = KeptFile(proc / "stat")
        self._meminfo = KeptFile(proc / "meminfo")
        self._io = KeptFile(proc / "pressure" / "io")
        self._quota: _CpuQuota | None = None
        self._limit: _MemoryLimit | None = None
        self._looks = 0
        self._last_ticks: tuple[int, int] | None = None
        self._last_usage: tuple[float, float] | None = None
        self._last_cpu: float | None = None

    def sample(self) -> PressureReading:
        """One look. CPU is None at the first one: a share needs two."""
        if self._looks % FIND_GROUPS_EVERY == 0:
            self._find_groups()
        self._looks += 1
        cpus = self._quota.cpus if self._quota else float(len(self._cpus))
        return PressureReading(self._cpu(), self._memory(), self._io_stall(), cpus or None)

    def close(self) -> None:
        """Close every file."""
        for kept in (self._stat, self._meminfo, self._io):
            kept.close()
        self._drop_groups()

    # -- CPU ------------------------------------------------------------------------------------

    def _cpu(self) -> float | None:
        share = self._quota_share(self._quota) if self._quota else self._machine_share()
        if share is not None:
            self._last_cpu = share
        return share

    def _machine_share(self) -> float | None:
        fields = self._cpu_ticks(self._stat.read() or b"")
        if len(fields) < 5:
            self._last_ticks = None
            return None
        total = sum(fields[:8])  # guest time, fields 9 and 10, is in user and nice already
        idle = fields[3] + fields[4]
        before, self._last_ticks = self._last_ticks, (total, idle)
        if before is None:
            return None
        passed = total - before[0]
        if passed <= 0:
            return self._last_cpu  # two looks within one tick: the last share still holds
        return _percent(passed - (idle - before[1]), passed)

    def _cpu_ticks(self, text: bytes) -> list[int]:
        """The machine's counters, or the sums over our CPUs where those are not all."""
        if len(self._cpus) >= _cores():
            return _line_numbers(text.split(b"\n", 1)[0])
        names = {b"cpu%d" % number for number in self._cpus}
        lines = [line for line in text.splitlines() if line.split(b" ", 1)[0] in names]
        return [sum(column) for column in zip(*map(_line_numbers, lines), strict=False)]

    def _quota_share(self, quota: _CpuQuota) -> float | None:
        seconds = _usage_seconds(quota.usage.read(), quota.in_nanoseconds)
        now = time.monotonic()
        if seconds is None:
            self._last_usage = None
            return None
        before = self._last_usage
        if before is not None and now - before[1] < SHARE_WINDOW_MIN_S:
            return self._last_cpu  # too short to tell: the last share still holds
        self._last_usage = (seconds, now)
        if before is None:
            return None
        passed = now - before[1]
        return _percent(seconds - before[0], passed * quota.cpus)

    # -- memory and I/O ---------------------------------------------------------------------------

    def _memory(self) -> float | None:
        values = _keyed_numbers(self._meminfo.read())
        total, available = values.get(b"MemTotal:"), values.get(b"MemAvailable:")
        if not total or available is None:
            return None
        machine = _percent(total - available, total)
        if self._limit is None:
            return machine
        used = _first_number(self._limit.usage.read())
        if used is None:
            return None
        statistics = _keyed_numbers(self._limit.statistics.read())
        # Cache that the kernel takes back first is not pressure; v1 names its sum over children.
        cache = statistics.get(b"total_inactive_file", statistics.get(b"inactive_file", 0))
        group = _percent(max(0, used - cache), self._limit.limit_bytes)
        return max(machine, group)

    def _io_stall(self) -> float | None:
        found = re.match(rb"some avg10=([0-9]+(?:\.[0-9]+)?)\b", self._io.read() or b"")
        return min(100.0, float(found[1])) if found else None

    # -- control groups ---------------------------------------------------------------------------

    def _find_groups(self) -> None:
        """Find our CPUs, and the tightest quota and memory limit among our groups and their
        parents."""
        old, old_cpus = self._quota, self._cpus
        self._drop_groups()
        self._cpus = frozenset(self._own_cpus())
        paths = _own_groups(self._proc)
        quota = self._v2_quota(paths) or self._v1_quota(paths)
        self._quota = quota if quota is not None and quota.cpus < len(self._cpus) else None
        if quota is not None and self._quota is None:
            quota.usage.close()
        self._limit = self._v2_limit(paths) or self._v1_limit(paths)
        if (old is None) != (self._quota is None) or old_cpus != self._cpus:
            self._last_ticks = self._last_usage = None
            self._stat.close()
            some = len(self._cpus) < _cores()
            self._stat = KeptFile(self._proc / "stat", STAT_READ_BYTES if some else READ_BYTES)

    def _drop_groups(self) -> None:
        if self._quota:
            self._quota.usage.close()
        if self._limit:
            self._limit.usage.close()
            self._limit.statistics.close()
        self._quota = self._limit = None

    def _v2_quota(self, paths: dict[str, str]) -> _CpuQuota | None:
        best: _CpuQuota | None = None
        for directory in _with_parents(self._groups, paths.get("")):
            words = _read_once(directory / "cpu.max").split()
            if len(words) != 2 or not all(word.isdigit() and int(word) for word in words):
                continue
            cpus = int(words[0]) / int(words[1])
            if best is None or cpus < best.cpus:
                best = _CpuQuota(cpus, KeptFile(directory / "cpu.stat"), False)
        return best

    def _v1_quota(self, paths: dict[str, str]) -> _CpuQuota | None:
        best: _CpuQuota | None = None
        usage_root = self._groups / "cpuacct"
        for directory in _with_parents(self._groups / "cpu", paths.get("cpu")):
            quota = _first_number(_read_once(directory / "cpu.cfs_quota_us"))
            period = _first_number(_read_once(directory / "cpu.cfs_period_us"))
            if quota is None or quota <= 0 or not period:
                continue
            cpus = quota / period
            if best is None or cpus < best.cpus:
                inside = directory.relative_to(self._groups / "cpu")
                best = _CpuQuota(cpus, KeptFile(usage_root / inside / "cpuacct.usage"), True)
        return best

    def _v2_limit(self, paths: dict[str, str]) -> _MemoryLimit | None:
        directories = _with_parents(self._groups, paths.get(""))
        return self._tightest(directories, "memory.max", "memory.current")

    def _v1_limit(self, paths: dict[str, str]) -> _MemoryLimit | None:
        directories = _with_parents(self._groups / "memory", paths.get("memory"))
        return self._tightest(directories, "memory.limit_in_bytes", "memory.usage_in_bytes")

    def _tightest(self, directories: list[Path], limit: str, usage: str) -> _MemoryLimit | None:
        total_kib = _keyed_numbers(self._meminfo.read()).get(b"MemTotal:", 0)
        best: tuple[int, Path] | None = None
        for directory in directories:
            size = _first_number(_read_once(directory / limit))
            if size and size < total_kib * 1024 and (best is None or size < best[0]):
                best = (size, directory)
        if best is None:
            return None
        return _MemoryLimit(best[0], KeptFile(best[1] / usage), KeptFile(best[1] / "memory.stat"))


# -- reading the kernel's text --------------------------------------------------------------------


def _read_once(path: Path) -> bytes:
    """The file's beginning, or nothing when it is not there: no such limit."""
    kept = KeptFile(path)
    try:
        return kept.read() or b""
    finally:
        kept.close()


def _cores() -> int:
    return os.cpu_count() or 1


def _line_numbers(line: bytes) -> list[int]:
    words = line.split()[1:]
    return [int(word) for word in words] if all(word.isdigit() for word in words) else []


def _first_number(text: bytes | None) -> int | None:
    words = (text or b"").split()
    return int(words[0]) if words and words[0].isdigit() else None


def _keyed_numbers(text: bytes | None) -> dict[bytes, int]:
    """Lines of `key number ...`."""
    lines = (line.split() for line in (text or b"").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _usage_seconds(text: bytes | None, in_nanoseconds: bool) -> float | None:
    if in_nanoseconds:
        nanoseconds = _first_number(text)
        return None if nanoseconds is None else nanoseconds / 1e9
    microseconds = _keyed_numbers(text).get(b"usage_usec")
    return None if microseconds is None else microseconds / 1e6


def _percent(part: float, whole: float) -> float:
    return round(min(100.0, max(0.0, 100.0 * part / whole)), 2) if whole > 0 else 100.0


def _own_groups(proc: Path) -> dict[str, str]:
    """Controller -> path of our group; the one of version 2 is under the empty name."""
    groups: dict[str, str] = {}
    for line in _read_once(proc / "self" / "cgroup").decode(errors="surrogateescape").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                groups[controller] = parts[2]
    return groups


def _with_parents(root: Path, group: str | None) -> list[Path]:
    """The group's directory and its parents up to `root`. In a container the path may be one of
    the machine's that is not mounted here; then only the root is there to be read."""
    if group is None:
        return []
    inside = [part for part in group.split("/") if part not in ("", ".", "..")]
    return [root.joinpath(*inside[:depth]) for depth in range(len(inside), -1, -1)]
