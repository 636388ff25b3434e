"""A private place for one benchmark, and a real run in it: started, watched, ended, removed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from praxist_zmq.host.default_scope import host_scope
from praxist_zmq.host.paths import HostPaths, RunPaths
from tests.support.wait import wait_until

CONTRACT = """\
compute_budget:
  resource_scheduler:
    mode: central
    initial_concurrent_experiments: {slots}
    min_concurrent_experiments: {slots}
    max_concurrent_experiments: {slots}
    default_profile: cpu
    profiles:
      cpu: {{accelerator: cpu, pressure_domains: []}}
"""
PROGRAM = """\
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
/* No argument: end at once. One: add the CLOCK_MONOTONIC nanoseconds of the start to that file. */
int main(int count, char **words) {
    struct timespec now;
    char line[32];
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (count < 2) return 0;
    int size = snprintf(line, sizeof line, "%lld\\n", now.tv_sec * 1000000000LL + now.tv_nsec);
    int file = open(words[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
    return file < 0 || write(file, line, size) != size;
}
"""
PROGRAM_IN_PYTHON = """\
import sys, time
now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
if len(sys.argv) > 1:
    with open(sys.argv[1], "a") as file:
        file.write(f"{now}\\n")
"""


GET_FLAGS, SET_FLAGS, TOP_OF_A_TREE = 0x80086601, 0x40086602, 0x00020000
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_TOPDIR_FL of linux/fs.h."""


@dataclass(frozen=True, slots=True)
class Place:
    """Directories of this benchmark alone. `trivial` is a command that ends at once."""

    directory: Path
    trivial: list[str]
    compiled: bool

    @contextlib.contextmanager
    def run(self, name: str, slots: int) -> Iterator[Run]:
        """A live run with `slots` CPU slots; stopped with its experiments at the end."""
        directory = self.directory / name
        contract = self.directory / f"{name}.yaml"
        contract.write_text(CONTRACT.format(slots=slots), encoding="utf-8")
        run = Run(RunPaths.of(directory))
        try:
            run.command("up", "--detach", "--config", str(contract))
            yield run
        finally:
            run.end()


@dataclass(frozen=True, slots=True)
class Run:
    """One live run."""

    paths: RunPaths

    def command(self, *words: str, check: bool = True) -> None:
        """`praxist-zmq WORDS` on this run. Raises when it fails."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "praxist_zmq", "--run-dir", self.paths.run_dir, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        if check and done.returncode != 0:
            shown = done.stdout.decode("utf-8", "backslashreplace")
            raise RuntimeError(f"praxist-zmq {words[0]}: exit {done.returncode}\n{shown}")

    @property
    def endpoint(self) -> dict[str, object]:
        """What `endpoint.json` says."""
        found: dict[str, object] = json.loads(self.paths.endpoint.read_bytes())
        return found

    @property
    def door(self) -> str:
        """The ZeroMQ endpoint of the gateway."""
        return str(self.endpoint["endpoint"])

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Our processes by name; shims among them, evaluators not."""
        supervisor = psutil.Process(self.endpoint["supervisor"]["pid"])  # type: ignore[index]
        found = {"supervisor": [supervisor]}
        for process in supervisor.children(recursive=True):
            words = process.cmdline()
            if "praxist_zmq.host.zygote" in " ".join(words):
                shim = process.parent().cmdline() == words  # type: ignore[union-attr]
                found.setdefault("shim" if shim else "zygote", []).append(process)
            for word in words:
                if word.startswith("praxist_zmq.service."):
                    found.setdefault(word.rpartition(".")[2], []).append(process)
        # It may be a child of an earlier run's supervisor, or of nobody.
        info = json.loads(HostPaths(host_scope()).registry_info.read_bytes())
        found["registry"] = [psutil.Process(info["pid"])]
        return found

    def end(self) -> None:
        """The run with its experiments. Its files stay until the place goes: ext4 without a
        journal gives an inode out again only after minutes, so that removing them here would
        make every file of the next measurement dearer.
        """
        if self.paths.endpoint.exists():
            self.command("stop", "--yes", "--grace", "0s", check=False)
        if self.paths.endpoint.exists():
            self.command("down", check=False)


@contextlib.contextmanager
def place(parent: Path = Path("/tmp")) -> Iterator[Place]:
    """Everything of one benchmark below one directory; gone at the end, processes too."""
    outermost = Path(tempfile.mkdtemp(prefix="b-", dir=parent))
    _apart(outermost)
    # Which part of the disk follows from the name: another one each time.
    directory = Path(tempfile.mkdtemp(prefix="", dir=outermost))
    saved = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("PRAXIST_")]:
        del os.environ[name]
    host = directory / "h"
    host.mkdir(mode=0o700)
    os.environ["PRAXIST_ZMQ_RUNTIME_DIR"] = str(directory)
    os.environ["PRAXIST_ZMQ_HOST_DIR"] = str(host)
    try:
        command, compiled = _program(directory)
        yield Place(directory, command, compiled)
    finally:
        _end_registry(HostPaths(host))
        os.environ.clear()
        os.environ.update(saved)
        shutil.rmtree(outermost)


def _apart(directory: Path) -> None:
    """Have ext4 put what is made in `directory` away from what others removed beside it.

    ext4 without a journal passes over every inode that was given back in the last minutes, one by
    one, for each file that is made in that part of the disk: after a run of the tests or of this
    benchmark a file costs 200 us in the place of 14, three of them a job. Below a top of a tree
    (ext4(5), chattr(1) +T) it begins in another part. Other filesystems refuse, and need not.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        raw = fcntl.ioctl(descriptor, GET_FLAGS, struct.pack("l", 0))
        flags = struct.unpack("l", raw)[0] | TOP_OF_A_TREE
        fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags))
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM):
            raise
    finally:
        os.close(descriptor)


def _program(directory: Path) -> tuple[list[str], bool]:
    """The evaluator of the benchmarks; without a C compiler a Python program stands in."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        script = directory / "job.py"
        script.write_text(PROGRAM_IN_PYTHON, encoding="utf-8")
        return [sys.executable, "-I", "-S", str(script)], False
    source, program = directory / "job.c", directory / "job"
    source.write_text(PROGRAM, encoding="utf-8")
    subprocess.run([compiler, "-O2", "-static", "-o", program, source], check=True, timeout=60)
    return [str(program)], True


def _end_registry(paths: HostPaths) -> None:
    """It outlives runs by design; the scope is ours alone, so it is ended here."""
    try:
        pid = json.loads(paths.registry_info.read_bytes())["pid"]
        registry = psutil.Process(pid)
        if "praxist_zmq.service.registry" not in registry.cmdline():
            return
        registry.send_signal(signal.SIGTERM)
    except (FileNotFoundError, psutil.NoSuchProcess):
        return
    wait_until(
        lambda: not registry.is_running() or registry.status() == psutil.STATUS_ZOMBIE,
        "the claim registry to end",
    )
