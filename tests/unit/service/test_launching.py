"""The launcher with real shims and real programs: what is run, what is reported, what is left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.host.identity import is_alive
from praxist_zmq.protocol.orders import (
    AbandonAttempt,
    Announce,
    CompareCounts,
    StopAttempt,
    Welcome,
)
from tests.support.launcher_harness import Bench, daemon_code
from tests.support.wait import wait_until

PYTHON = sys.executable


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 75", 75)])
def test_an_exit_code_is_reported_once_the_tree_is_gone(
    bench: Bench, script: str, code: int
) -> None:
    bench.launch("j-1.1", ["sh", "-c", f"echo hello; {script}"])
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.exit_code, ended.signal) == ("exited", code, None)
    assert ended.log_tail == ("hello\n" if code else "")
    assert bench.log("j-1.1") == b"hello\n"
    assert not list(bench.run.protected_pids.glob("*.json"))


def test_a_death_by_signal_is_reported_as_such(bench: Bench) -> None:
    bench.launch("j-1.1", ["sh", "-c", "kill -SEGV $$"])
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.exit_code, ended.signal) == ("exited", None, 11)


def test_nothing_runs_before_go(bench: Bench, tmp_path: Path) -> None:
    shim = bench.ready("j-1.1", ["touch", str(tmp_path / "ran")])
    bench.order(AbandonAttempt(attempt="j-1.1"))
    assert bench.ended("j-1.1").outcome == "never_ran"
    assert not is_alive(shim)
    assert not (tmp_path / "ran").exists()


def test_an_order_that_is_obeyed_already_is_not_answered_with_what_asks_for_it(
    bench: Bench,
) -> None:
    """Else broker and launcher would answer each other without end while a shim is stopped."""
    shim = bench.ready("j-1.1", ["true"])
    os.kill(shim.pid, signal.SIGSTOP)
    for _ in range(2):
        bench.go("j-1.1")
    bench.ready("j-2.1", ["true"])  # all orders before it were obeyed
    assert len(bench.seen("attempt_ready", "j-1.1")) == 1
    os.kill(shim.pid, signal.SIGCONT)
    assert bench.ended("j-1.1").exit_code == 0


@pytest.mark.parametrize("end", [AbandonAttempt, partial(StopAttempt, grace_ms=60_000)])
def test_a_go_that_its_shim_has_not_taken_is_called_back(
    bench: Bench, end: Callable[..., Any]
) -> None:
    shim = bench.ready("j-1.1", ["true"])
    os.kill(shim.pid, signal.SIGSTOP)
    bench.go("j-1.1")
    bench.ready("j-2.1", ["true"])
    bench.order(end(attempt="j-1.1"))
    bench.ready("j-3.1", ["true"])
    with contextlib.suppress(ProcessLookupError):  # a stop wakes it too
        os.kill(shim.pid, signal.SIGCONT)
    assert bench.ended("j-1.1").outcome == "never_ran"
    assert not is_alive(shim)


@pytest.mark.parametrize("end", [AbandonAttempt, partial(StopAttempt, grace_ms=60_000)])
def test_a_launcher_that_was_away_looks_through_its_orders_before_it_gives_go(
    bench: Bench, end: Callable[..., Any]
) -> None:
    bench.ready("j-1.1", ["true"])
    assert bench.process is not None
    os.kill(bench.process.pid, signal.SIGSTOP)
    bench.go("j-1.1")
    bench.order(end(attempt="j-1.1"))
    os.kill(bench.process.pid, signal.SIGCONT)
    assert bench.ended("j-1.1").outcome == "never_ran"


def test_a_go_that_comes_too_late_is_asked_for_again(bench: Bench) -> None:
    bench.ready("j-1.1", ["true"])
    told = len(bench.seen("attempt_ready", "j-1.1"))
    bench.go("j-1.1", holds_ms=-1)
    wait_until(lambda: len(bench.seen("attempt_ready", "j-1.1")) > told, "its report again")
    bench.go("j-1.1")
    assert bench.ended("j-1.1").exit_code == 0


def test_arguments_and_environment_arrive_byte_exact(bench: Bench) -> None:
    arguments = [
        b"a b",
        b"'q\"",
        b"new\nline",
        "\U0001f600".encode(),
        b"\xff\xfe",
        b"",
        b"-x",
        b"\t",
    ]
    code = (
        "import os,sys; print([os.fsencode(a) for a in sys.argv[1:]], sorted(os.environb.items()))"
    )
    variables = {"PATH": "/usr/bin:/bin", "RAW": b"\xff\n", "EMPTY": "", "BIG": "x" * 100_000}
    bench.launch("j-1.1", [PYTHON, "-I", "-c", code, *arguments], environment=variables)
    assert bench.ended("j-1.1").exit_code == 0
    expected = {
        b"PRAXIST_EXPERIMENT_ATTEMPT_DIR": os.fsencode(bench.run.attempt("j-1.1")),
        **{k.encode(): v if isinstance(v, bytes) else v.encode() for k, v in variables.items()},
    }
    given = bench.log("j-1.1").decode().strip()
    # Python itself adds LC_CTYPE when it coerces the C locale; nothing else may differ.
    coerced = {**expected, b"LC_CTYPE": b"C.UTF-8"}
    assert given in (
        f"{arguments} {sorted(expected.items())}",
        f"{arguments} {sorted(coerced.items())}",
    )


def test_a_megabyte_of_environment_arrives(bench: Bench) -> None:
    variables: dict[str, bytes | str] = {f"V{i}": "y" * 1000 for i in range(1000)}
    variables["PATH"] = "/usr/bin:/bin"
    bench.launch("j-1.1", ["sh", "-c", "env | wc -c"], environment=variables)
    assert bench.ended("j-1.1").exit_code == 0
    assert int(bench.log("j-1.1")) > 1_000_000


def test_signals_and_descriptors_of_the_evaluator_are_clean(bench: Bench) -> None:
    code = (
        "import os; s=open('/proc/self/status').read();"
        "print([l.split()[1] for l in s.splitlines() if l.startswith(('SigIgn','SigBlk'))],"
        " sorted(int(f) for f in os.listdir('/proc/self/fd')), os.getpgid(0)==os.getpid(),"
        " os.readlink('/proc/self/fd/0'))"
    )
    program = ["sh", "-c", 'grep -E "^Sig(Ign|Blk)" /proc/self/status; ls /proc/self/fd']
    bench.launch("j-1.1", program)
    bench.launch("j-2.1", [PYTHON, "-I", "-S", "-c", code])
    bench.ended("j-1.1")
    lines = bench.log("j-1.1").decode().split()
    assert lines[:2] == ["SigBlk:", "0" * 16]
    # Numbers 32 and 33 belong to the C library, whose posix_spawn ignores them in every child.
    assert int(lines[3], 16) & ~0x180000000 == 0
    assert lines[4:] == ["0", "1", "2", "3"]  # 3 is ls reading the directory
    bench.ended("j-2.1")
    assert bench.log("j-2.1").decode().strip().endswith("True /dev/null")


@pytest.mark.parametrize(
    ("name", "prepare", "number"),
    [
        ("missing", None, errno.ENOENT),
        ("not_executable", (b"#!/bin/sh\n", 0o644), errno.EACCES),
        ("wrong_format", (b"\x7fELF junk", 0o755), errno.ENOEXEC),
        ("no_interpreter", (b"#!/no/such/interpreter\n", 0o755), errno.ENOENT),
    ],
)
@pytest.mark.parametrize("by_path", [True, False])
def test_a_program_that_cannot_be_executed_is_told_with_its_errno(
    bench: Bench,
    tmp_path: Path,
    name: str,
    prepare: tuple[bytes, int] | None,
    number: int,
    by_path: bool,
) -> None:
    if prepare is not None:
        (tmp_path / name).write_bytes(prepare[0])
        (tmp_path / name).chmod(prepare[1])
    program = name if by_path else str(tmp_path / name)
    bench.ready("j-1.1", [program], environment={"PATH": f"/nowhere:{tmp_path}"})
    bench.go("j-1.1")
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.errno, ended.exit_code) == ("exec_failed", number, None)
    assert name in ended.detail
    assert not bench.seen("attempt_started", "j-1.1")


def test_a_script_without_a_first_line_for_the_kernel_runs_as_in_a_shell(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "tool").write_text('echo "$# $1"; exit 3\n')
    (tmp_path / "tool").chmod(0o755)
    bench.launch("j-1.1", ["tool", "a b"], environment={"PATH": str(tmp_path)})
    assert bench.ended("j-1.1").exit_code == 3
    assert bench.log("j-1.1").decode().strip() == "1 a b"


def test_a_missing_directory_is_told(bench: Bench) -> None:
    bench.ready("j-1.1", ["true"], cwd="/no/such/place")
    bench.go("j-1.1")
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.errno) == ("exec_failed", errno.ENOENT)
    assert "working directory '/no/such/place'" in ended.detail


def test_the_submitted_path_is_searched_from_the_submitted_directory(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "tool").chmod(0o755)
    bench.launch("j-1.1", ["tool"], environment={"PATH": ":/usr/bin:/bin"}, cwd=str(tmp_path))
    assert bench.ended("j-1.1").exit_code == 0
    assert bench.log("j-1.1").decode().strip() == str(tmp_path)


def test_a_repeated_order_is_answered_with_the_same_report(bench: Bench, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/count"
    bench.launch("j-1.1", ["sh", "-c", script])
    bench.ended("j-1.1")
    for _ in range(3):
        bench.spawn("j-1.1", ["sh", "-c", script])
        bench.go("j-1.1")
    wait_until(lambda: len(bench.seen("attempt_ended", "j-1.1")) >= 7, "repeated reports")
    assert len(set(bench.seen("attempt_ended", "j-1.1"))) == 1
    assert (tmp_path / "count").read_text() == "x\n"


def test_a_launcher_that_is_asked_introduces_itself_and_repeats_what_it_has(bench: Bench) -> None:
    _, leader = bench.launch("j-1.1", ["sleep", "60"])
    bench.order(Announce())
    wait_until(lambda: len(bench.seen("attempt_started", "j-1.1")) == 2, "the report again")
    assert bench.seen("launcher_connected")[-1].attempts == ("j-1.1",)
    assert {report.leader for report in bench.seen("attempt_started")} == {leader}


def test_a_nul_byte_is_refused_before_anything_is_made(bench: Bench) -> None:
    bench.spawn("j-1.1", ["echo", "a\0b"])
    failed = bench.expect("spawn_failed", attempt="j-1.1")
    assert (failed.stage, failed.permanent) == ("process_start", True)
    assert not bench.run.attempt("j-1.1").exists()


def test_a_stop_ends_a_program_that_ignores_term(bench: Bench) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 1; done"
    shim, leader = bench.launch("j-1.1", ["sh", "-c", script])
    wait_until(lambda: bench.log("j-1.1"), "the trap to be set")
    bench.stop("j-1.1", grace_ms=100)
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.signal) == ("exited", 9)
    assert not is_alive(shim)
    assert not is_alive(leader)


def test_a_stop_lets_a_program_end_by_itself_within_the_grace(bench: Bench) -> None:
    script = "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"
    bench.launch("j-1.1", ["sh", "-c", script])
    wait_until(lambda: bench.log("j-1.1"), "the trap to be set")
    bench.stop("j-1.1", grace_ms=10_000)
    ended = bench.ended("j-1.1")
    assert (ended.exit_code, ended.signalled) == (5, True)


def test_a_stop_ends_a_stopped_program(bench: Bench) -> None:
    _, leader = bench.launch("j-1.1", ["sleep", "100"])
    os.kill(leader.pid, 19)
    bench.stop("j-1.1", grace_ms=5_000)
    assert bench.ended("j-1.1").signal == 15


def test_a_daemon_that_left_everything_keeps_the_attempt_until_it_is_gone(bench: Bench) -> None:
    bench.launch("j-1.1", [PYTHON, "-I", "-S", "-c", daemon_code("sys.exit(4)")])
    exited = bench.expect("attempt_leader_exited", attempt="j-1.1")
    assert (exited.exit_code, len(exited.survivors)) == (4, 1)
    assert not bench.seen("attempt_ended", "j-1.1")
    bench.stop("j-1.1", grace_ms=2_000)
    ended = bench.ended("j-1.1")
    assert (ended.outcome, ended.exit_code) == ("exited", 4)
    assert ended.signalled is False, "what it left was ended, not itself"
    wait_until(lambda: not Path(f"/proc/{exited.survivors[0]}").exists(), "the daemon to be gone")


THREAD = """
import ctypes, threading, time
t = threading.Thread(target=time.sleep, args=(300,)); t.start()
print("up", flush=True)
ctypes.CDLL(None).syscall(60, 0)
"""


def test_a_dead_main_thread_is_not_the_end(bench: Bench) -> None:
    _, leader = bench.launch("j-1.1", [PYTHON, "-I", "-c", THREAD])
    stat = Path(f"/proc/{leader.pid}/stat")
    wait_until(lambda: ") Z " in stat.read_text(), "the main thread to exit")
    assert is_alive(leader)
    assert not bench.seen("attempt_leader_exited") + bench.seen("attempt_ended")
    bench.stop("j-1.1")
    assert bench.ended("j-1.1").signal == 9


BOMB = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
depth = 0
while depth < 60:
    if os.fork() == 0:
        depth += 1
        if depth % 3 == 0:
            os.setsid()
        continue
    break
print("up", flush=True)
while True:
    pid = os.fork()
    if pid == 0:
        time.sleep(0.05)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_a_tree_that_forks_while_it_is_stopped_is_ended(bench: Bench) -> None:
    shim, _ = bench.launch("j-1.1", [PYTHON, "-I", "-S", "-c", BOMB])
    wait_until(lambda: bench.log("j-1.1").count(b"up") >= 30, "the tree to grow")
    bench.stop("j-1.1", grace_ms=50)
    assert bench.ended("j-1.1").signal == 9
    assert not is_alive(shim)
    assert not [s for s in bench.leftovers() if s.pid != bench.pid and s.pid != bench.zygote()]


def test_a_program_that_closes_its_output_is_still_watched(bench: Bench) -> None:
    bench.launch("j-1.1", ["sh", "-c", "exec >&- 2>&-; sleep 0.1; exit 6"])
    assert bench.ended("j-1.1").exit_code == 6


def test_a_running_evaluator_has_a_manifest_until_it_has_ended(
    bench: Bench, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    _, leader = bench.launch(
        "j-1.1", ["sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.02; done', str(end)]
    )
    manifest = bench.run.protected_pids / "j-1.1.json"
    shown = json.loads(manifest.read_bytes())
    assert (shown["pid"], shown["start_ticks"]) == (leader.pid, leader.start_ticks)
    end.touch()
    bench.ended("j-1.1")
    assert not manifest.exists()


def test_a_log_over_its_cap_loses_its_middle_and_its_experiment_notices_nothing(
    bench: Bench, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    script = (
        'head -c 8000000 /dev/zero; echo done; while [ ! -e "$0" ]; do sleep 0.02; done; exit 3'
    )
    bench.launch("j-1.1", ["sh", "-c", script, str(go)])
    log = bench.run.attempt_log("j-1.1")
    wait_until(lambda: log.stat().st_size > 8_000_000, "the log to be written")
    bench.order(Welcome(epoch=1, log_cap_mib=1))
    wait_until(lambda: log.stat().st_blocks * 512 < 2**20, "the middle to be taken out")
    go.touch()
    ended = bench.ended("j-1.1")
    assert (ended.exit_code, log.stat().st_size) == (3, 8_000_005)
    assert ended.log_tail.endswith("done\n")


def test_an_introduction_that_nobody_answers_is_repeated(bench: Bench) -> None:
    bench.expect("launcher_connected")
    bench.welcomes = False
    bench.order(Announce())
    wait_until(lambda: len(bench.seen("launcher_connected")) >= 4, "it to introduce itself again")


def test_a_launcher_that_misses_an_order_introduces_itself(bench: Bench) -> None:
    bench.ready("j-1.1", ["true"])
    told = len(bench.seen("launcher_connected"))
    bench.order(CompareCounts(orders=1))
    counts = bench.expect("counts_compared")
    assert counts.reports == 1
    assert len(bench.seen("launcher_connected")) == told
    bench.order(CompareCounts(orders=2))  # one was lost on its way
    wait_until(lambda: len(bench.seen("launcher_connected")) > told, "its introduction")


def test_a_zygote_that_hangs_is_replaced(bench: Bench) -> None:
    bench.ready("j-1.1", ["true"])
    zygote = bench.zygote()
    os.kill(zygote, signal.SIGSTOP)
    bench.spawn("j-2.1", ["true"])
    assert bench.ended("j-2.1").outcome == "never_ran"
    wait_until(lambda: bench.zygotes() and bench.zygote() != zygote, "another zygote")
    bench.ready("j-3.1", ["true"])
