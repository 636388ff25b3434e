"""The supervisor with real processes around fake children: order, restarts, reasons, ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.host.identity import read_stat
from praxist_zmq.host.paths import RunPaths, RunSockets
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[3]
CHILDREN = ("sampler", "broker", "gateway", "launcher", "supply")


class FakeRun:
    """A run directory, its fake children's control directory, and every `up` started on it."""

    def __init__(self, base: Path) -> None:
        self.run = RunPaths.of(base / "run")
        self.control = base / "control"
        self.control.mkdir()
        self.runtime = Path(tempfile.mkdtemp(dir="/tmp", prefix="pz-"))
        self.environment = {
            "PATH": os.environ["PATH"],
            "PRAXIST_ZMQ_RUNTIME_DIR": str(self.runtime),
            "PRAXIST_ZMQ_HOST_DIR": str(self.runtime / "host"),
            "PYTHONPATH": str(ROOT),
            # No fake broker registers; without this the registry would end for lack of runs.
            "PRAXIST_ZMQ_REGISTRY_IDLE_S": "600",
        }
        self.started: list[subprocess.Popen[str]] = []

    def behave(self, name: str, **behaviour: object) -> None:
        (self.control / f"{name}.json").write_text(json.dumps(behaviour))

    def up(
        self, *more: str, stdout: int = subprocess.PIPE, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "tests/support/fake_up.py"),
                str(self.run.run_dir),
                str(self.control),
                *more,
            ],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=cwd,
        )
        self.started.append(process)
        return process

    def ready(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready "), line + process.communicate()[1]
        return line

    def notes(self, name: str) -> list[str]:
        log = self.control / f"{name}.log"
        return log.read_text().splitlines() if log.exists() else []

    def let_time_pass(self, process: subprocess.Popen[str], ahead_ms: int) -> None:
        """Set the supervisor's clock ahead, and wake it by a signal that means nothing."""
        self._tell_clock(process, "clock_ahead_ms", ahead_ms)

    def stop_clock(self, process: subprocess.Popen[str], at_ms: int) -> None:
        """Let the supervisor's clock stand, for good, and wake it."""
        self._tell_clock(process, "clock_at_ms", at_ms)

    def _tell_clock(self, process: subprocess.Popen[str], name: str, value_ms: int) -> None:
        whole = self.control / f"{name}.new"
        whole.write_text(str(value_ms))
        whole.rename(self.control / name)
        process.send_signal(signal.SIGCHLD)

    def rests(self, name: str) -> int:
        """How often the supervisor let it rest."""
        words = (f"{name} rests for", f"{name} is tried again in")
        log = (self.run.service_logs / "supervisor.log").read_text()
        return sum(log.count(word) for word in words)

    def pids(self, name: str) -> list[int]:
        return [int(line.split()[1]) for line in self.notes(name) if line.startswith("start")]

    def living(self) -> list[int]:
        every = [pid for name in CHILDREN for pid in self.pids(name)]
        return [pid for pid in every if alive(pid)]

    def clean(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        others = [pid for pid in (supervisor_pid(self), registry_pid(self)) if pid is not None]
        for pid in [*others, *self.living()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.living() and not any(map(alive, others)), "nothing is left")
        shutil.rmtree(self.runtime, ignore_errors=True)


def alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.state not in "ZX"


def registry_pid(fake: FakeRun) -> int | None:
    """The pid of the real registry of this test's own host scope."""
    info = fake.runtime / "host" / "registry.json"
    if not info.exists():
        return None
    pid: int = json.loads(info.read_text())["pid"]
    return pid if alive(pid) else None


def supervisor_pid(fake: FakeRun) -> int | None:
    """The pid of a detached supervisor, from run.json in this test's own directory."""
    for file in (fake.runtime / "runs").glob("*/run.json"):
        pid: int = json.loads(file.read_text())["supervisor"]["pid"]
        return pid if alive(pid) else None
    return None


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeRun]:
    run = FakeRun(tmp_path)
    yield run
    run.clean()


def test_starts_in_order_ends_in_reverse_order_and_leaves_nothing(fake: FakeRun) -> None:
    process = fake.up()
    line = fake.ready(process)
    assert f"pid {process.pid} endpoint ipc://" in line
    assert supervisor_pid(fake) == process.pid
    order = [(fake.control / f"{name}.log").stat().st_mtime_ns for name in CHILDREN]
    assert order == sorted(order)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    ends = [(fake.control / f"{name}.log").stat().st_mtime_ns for name in CHILDREN]
    assert ends == sorted(ends, reverse=True)
    assert all(fake.notes(name)[-1] == "term" for name in CHILDREN)
    assert not list((fake.runtime / "runs").iterdir())
    assert not fake.living()


def test_a_registry_that_dies_is_started_again(fake: FakeRun) -> None:
    fake.behave("broker", link=True)
    process = fake.up()
    fake.ready(process)
    first = registry_pid(fake)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    second = wait_until(
        lambda: pid if (pid := registry_pid(fake)) != first else None, "another registry serves"
    )
    wait_until(lambda: f"registry:{second}:" in fake.notes("broker")[-1], "the broker is told")
    assert process.poll() is None


def test_each_child_is_started_again_and_the_others_are_left_alone(fake: FakeRun) -> None:
    process = fake.up()
    fake.ready(process)
    before = {name: fake.pids(name) for name in CHILDREN}
    os.kill(before["gateway"][0], signal.SIGKILL)
    wait_until(lambda: len(fake.pids("gateway")) == 2, "the gateway is started again")
    assert alive(process.pid)
    assert all(fake.pids(name) == before[name] for name in CHILDREN if name != "gateway")


def test_more_than_five_restarts_in_ten_seconds_end_everything_with_the_reason(
    fake: FakeRun,
) -> None:
    fake.behave("launcher", exit_after_ready=9)
    process = fake.up()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 69
    assert "restart_limit launcher: exit code 9" in errors
    assert len(fake.pids("launcher")) == 6
    failure = json.loads((fake.run.scheduler / "last_failure.json").read_text())
    assert (failure["process"], failure["code"]) == ("launcher", "restart_limit")
    assert "started" in failure["log_tail"]
    assert not fake.living()


@pytest.mark.parametrize("name", ["gateway", "sampler"])
def test_peers_and_drivers_that_crash_what_they_touch_do_not_end_the_run(
    fake: FakeRun, name: str
) -> None:
    process = fake.up()
    fake.ready(process)
    for number in range(6):
        os.kill(fake.pids(name)[-1], signal.SIGKILL)
        wait_until(lambda n=number: len(fake.pids(name)) == n + 2, "started again")
    assert process.poll() is None
    assert len(fake.pids("broker")) == 1


def test_a_full_disk_is_waited_for_without_a_limit(fake: FakeRun) -> None:
    process = fake.up()
    fake.ready(process)
    fake.behave("broker", exit=75, fatal="no_space")
    os.kill(fake.pids("broker")[0], signal.SIGKILL)
    failure = fake.run.scheduler / "last_failure.json"
    for number in range(8):
        wait_until(lambda n=number: len(fake.pids("broker")) == n + 2, "it is tried again")
        wait_until(lambda: not alive(fake.pids("broker")[-1]), "it found no room")
        wait_until(lambda n=number: fake.rests("broker") == n + 1, "it rests")
        fake.let_time_pass(process, (number + 1) * 2_100)
    content = json.loads(failure.read_text())
    assert (content["process"], content["code"]) == ("broker", "no_space")
    fake.behave("broker")
    wait_until(lambda: not failure.exists(), "the broker serves")
    assert process.poll() is None
    assert all(len(fake.pids(name)) == 1 for name in CHILDREN if name != "broker")


def test_a_full_disk_at_the_start_is_told_to_whoever_starts_the_run(fake: FakeRun) -> None:
    fake.behave("broker", exit=75, fatal="no_space")
    process = fake.up()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "no_space broker: the fake says so" in errors
    assert len(fake.pids("broker")) == 1


def test_a_registry_that_ends_often_does_not_end_the_run(fake: FakeRun) -> None:
    fake.behave("broker", link=True)
    process = fake.up()
    fake.ready(process)
    fake.stop_clock(process, at_ms=1_000_000_000)

    def watched() -> int | None:
        """The registry that serves, once the supervisor has told of it."""
        pid = registry_pid(fake)
        return pid if f"registry:{pid}:" in fake.notes("broker")[-1] else None

    for _ in range(6):
        pid = wait_until(watched, "a registry is watched")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not alive(pid), "it is gone")
    wait_until(lambda: fake.rests("registry") == 1, "it rests")
    fake.stop_clock(process, at_ms=1_000_002_100)
    wait_until(watched, "it is started again")
    assert process.poll() is None
    assert all(len(fake.pids(name)) == 1 for name in CHILDREN)


def test_a_supervisor_without_its_lock_file_ends_everything_and_touches_nothing_of_a_second(
    fake: FakeRun,
) -> None:
    process = fake.up()
    fake.ready(process)
    fake.run.owner_lock.unlink()
    fake.run.owner_lock.touch()  # a second one's
    announcement = RunSockets(next((fake.runtime / "runs").iterdir())).announcement
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 74
    assert f"file_lost {fake.run.owner_lock} was removed or replaced" in errors
    assert not fake.living()
    assert announcement.exists()


def test_what_announces_a_run_is_made_again(fake: FakeRun) -> None:
    fake.ready(fake.up())
    place = next((fake.runtime / "runs").iterdir())
    shutil.rmtree(fake.runtime / "runs")
    wait_until((place / "run.json").exists, "the directory and its file")
    (place / "run.json").unlink()
    wait_until((place / "run.json").exists, "the file, a second time")
    assert [len(fake.pids(name)) for name in CHILDREN] == [1] * len(CHILDREN)


def test_a_permanent_failure_is_told_at_once_and_not_retried(fake: FakeRun) -> None:
    fake.behave("broker", exit=74, fatal="ledger_damaged")
    process = fake.up()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 74
    assert "ledger_damaged broker: the fake says so" in errors
    assert len(fake.pids("broker")) == 1
    assert not fake.notes("gateway"), "nothing is started after a broker that never got ready"


def test_a_permanent_failure_later_is_found_in_the_log(fake: FakeRun) -> None:
    fake.behave("broker", exit_after_ready=74, fatal="ledger_write_failed")
    process = fake.up()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 74
    assert "ledger_write_failed broker: the fake says so" in errors
    assert len(fake.pids("broker")) == 1


def test_a_start_that_fails_twice_and_then_works_is_a_start(fake: FakeRun) -> None:
    fake.behave("launcher", exit=70, times=2, progress=["replaying"])
    process = fake.up()
    fake.ready(process)
    assert len(fake.pids("launcher")) == 3


def test_a_start_that_fails_three_times_says_which_process_why_and_what_may_help(
    fake: FakeRun,
) -> None:
    fake.behave("launcher", exit=1, words="OSError: [Errno 24] Too many open files")
    process = fake.up("detach")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 69
    assert "start_failed launcher ended 3 times in a row before it was ready: exit code 1" in errors
    assert "its log ends with: OSError: [Errno 24] Too many open files" in errors
    assert "ulimit -n" in errors
    assert len(fake.pids("launcher")) == 3
    assert not fake.living()


def test_a_child_that_is_never_ready_again_ends_the_run_however_slowly_it_fails(
    fake: FakeRun,
) -> None:
    process = fake.up()
    fake.ready(process)
    fake.behave("launcher", silent=True)
    for number in range(6):
        wait_until(lambda n=number: len(fake.pids("launcher")) == n + 1, "it is started again")
        fake.let_time_pass(process, (number + 1) * 11_000)
        os.kill(fake.pids("launcher")[-1], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 69
    assert "start_failed launcher ended 5 times in a row before it was ready" in errors


def test_term_during_a_start_that_hangs_is_obeyed(fake: FakeRun) -> None:
    fake.behave("gateway", silent=True)
    process = fake.up()
    wait_until(lambda: fake.pids("gateway"), "the gateway hangs in its start")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, ""), errors
    assert not fake.living()


def test_a_second_term_ends_deaf_children_at_once(fake: FakeRun) -> None:
    fake.behave("sampler", deaf=True)
    process = fake.up()
    fake.ready(process)
    process.send_signal(signal.SIGTERM)
    log = fake.run.service_logs / "supervisor.log"
    wait_until(lambda: "asked by a signal" in log.read_text(), "the first signal is taken")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not fake.living()


def test_children_end_in_order_when_the_supervisor_is_killed(fake: FakeRun) -> None:
    process = fake.up()
    fake.ready(process)
    process.kill()
    wait_until(lambda: not fake.living(), "all children ended")
    assert all(fake.notes(name)[-1] == "eof" for name in CHILDREN)
    again = fake.up()
    fake.ready(again)
    sockets = RunSockets(next((fake.runtime / "runs").iterdir()))
    assert not [path for path in sockets.directory.iterdir() if path.suffix == ".sock"]


def test_a_stopped_broker_with_the_fence_ends_the_run(fake: FakeRun) -> None:
    fake.behave("broker", exit_after_ready=0, times=1)
    fake.run.run_dir.mkdir(parents=True)
    process = fake.up()
    # Without the fence an exit with 0 is an accident like any other.
    fake.ready(process)
    assert len(fake.pids("broker")) == 2
    fake.behave("broker")
    fake.run.shutdown_fence.touch()
    os.kill(fake.pids("broker")[-1], signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(fake.pids("broker")) == 2


def test_a_fence_reopens_once_and_is_removed_when_the_broker_is_ready(fake: FakeRun) -> None:
    fake.run.run_dir.mkdir(parents=True)
    fake.run.shutdown_fence.touch()
    process = fake.up()
    fake.ready(process)
    assert not fake.run.shutdown_fence.exists()
    os.kill(fake.pids("broker")[0], signal.SIGKILL)
    wait_until(lambda: len(fake.pids("broker")) == 2, "the broker is started again")
    told = [line.split()[2] for line in fake.notes("broker") if line.startswith("start")]
    assert told == ["True", "False"]


def test_a_child_that_never_gets_ready_fails_the_start(fake: FakeRun) -> None:
    fake.behave("gateway", silent=True)
    process = fake.up()
    wait_until(lambda: fake.pids("gateway"), "the gateway hangs in its start")
    fake.let_time_pass(process, 31_000)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 69
    assert "start_failed gateway did not get ready in time" in errors
    assert len(fake.pids("gateway")) == 1
    assert not fake.living()


def test_a_child_that_never_gets_ready_again_has_two_tries(fake: FakeRun) -> None:
    process = fake.up()
    fake.ready(process)
    fake.behave("sampler", silent=True)
    os.kill(fake.pids("sampler")[0], signal.SIGKILL)
    for tries in (1, 2):
        wait_until(lambda n=tries: len(fake.pids("sampler")) == n + 1, "the sampler hangs")
        fake.let_time_pass(process, tries * 31_000)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 69
    assert "start_failed sampler did not get ready in time" in errors
    assert len(fake.pids("sampler")) == 3


def test_a_deaf_child_is_killed_after_the_bound(fake: FakeRun) -> None:
    fake.behave("launcher", deaf=True)
    process = fake.up()
    fake.ready(process)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: fake.notes("launcher")[-1] == "eof", "the launcher was asked")
    fake.let_time_pass(process, 11_000)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not fake.living()
    assert fake.notes("broker")[-1] == "term"


def test_a_child_that_only_watches_its_stdin_ends_in_order_too(fake: FakeRun) -> None:
    fake.behave("launcher", ignores_term=True)
    process = fake.up()
    fake.ready(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert fake.notes("launcher")[-1] == "eof"


def test_the_broker_is_told_every_list_and_again_after_its_own_restart(fake: FakeRun) -> None:
    fake.behave("broker", link=True)
    process = fake.up()
    fake.ready(process)
    told = f"processes supervisor:{process.pid}:0,"

    def last(name: str, restarts: int) -> str:
        return f"{name}:{fake.pids(name)[-1]}:{restarts}"

    wait_until(lambda: last("sampler", 0) in fake.notes("broker")[-1], "the whole list is there")
    assert fake.notes("broker")[-1].startswith(told)
    os.kill(fake.pids("gateway")[0], signal.SIGKILL)
    wait_until(lambda: len(fake.pids("gateway")) == 2, "the gateway is started again")
    wait_until(lambda: last("gateway", 1) in fake.notes("broker")[-1], "its restart is told")
    os.kill(fake.pids("broker")[0], signal.SIGKILL)
    wait_until(lambda: len(fake.pids("broker")) == 2, "the broker is started again")
    wait_until(lambda: last("broker", 1) in fake.notes("broker")[-1], "the new broker is told")
    assert last("gateway", 1) in fake.notes("broker")[-1]


def test_a_process_that_the_broker_finds_silent_is_started_again(fake: FakeRun) -> None:
    fake.behave("broker", link=True, restart="launcher")
    process = fake.up()
    fake.ready(process)
    wait_until(lambda: len(fake.pids("launcher")) == 2, "another launcher")
    assert not alive(fake.pids("launcher")[0])
    assert (
        "launcher does not answer the broker and is killed"
        in (fake.run.service_logs / "supervisor.log").read_text()
    )
    wait_until(lambda: fake.notes("broker")[-1].count("launcher:"), "its restart is told")
    assert all(len(fake.pids(name)) == 1 for name in CHILDREN if name != "launcher")


def test_an_orphan_of_a_dead_child_lives_on_below_the_supervisor_and_is_reaped(
    fake: FakeRun,
) -> None:
    fake.behave("launcher", orphan=True)
    process = fake.up()
    fake.ready(process)
    orphan = int(next(line for line in fake.notes("launcher") if "orphan" in line).split()[1])
    try:
        fake.behave("launcher")
        os.kill(fake.pids("launcher")[0], signal.SIGKILL)
        wait_until(lambda: len(fake.pids("launcher")) == 2, "the launcher is started again")
        stat = read_stat(orphan)
        assert stat is not None
        assert stat.parent == process.pid
    finally:
        os.kill(orphan, signal.SIGKILL)
    wait_until(lambda: read_stat(orphan) is None, "the orphan is reaped")


def test_restarts_leave_no_descriptor_and_no_zombie_behind(fake: FakeRun) -> None:
    process = fake.up()
    fake.ready(process)
    folder = f"/proc/{process.pid}/fd"
    before = len(os.listdir(folder))
    for number in range(4):
        os.kill(fake.pids("sampler")[-1], signal.SIGKILL)
        wait_until(lambda n=number: len(fake.pids("sampler")) == n + 2, "started again")
    wait_until(lambda: len(os.listdir(folder)) <= before, "no more descriptors than before")
    assert all(read_stat(pid) is None for pid in fake.pids("sampler")[:-1])


def test_a_log_folder_that_was_cleaned_up_is_made_again(fake: FakeRun) -> None:
    process = fake.up()
    fake.ready(process)
    shutil.rmtree(fake.run.service_logs)
    os.kill(fake.pids("sampler")[0], signal.SIGKILL)
    wait_until(lambda: len(fake.pids("sampler")) == 2, "the sampler is started again")
    wait_until((fake.run.service_logs / "sampler.log").exists, "its log is there")
    assert process.poll() is None


@pytest.mark.parametrize("name", ["owner.lock", "log/supervisor.log", "log/broker.log"])
@pytest.mark.parametrize("what", ["fifo", "link", "directory"])
def test_what_stands_in_the_place_of_a_file_is_refused(fake: FakeRun, name: str, what: str) -> None:
    path = fake.run.scheduler / name
    path.parent.mkdir(parents=True, mode=0o700)
    fake.run.scheduler.chmod(0o700)
    target = fake.control / "target"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(target)
    else:
        path.mkdir()
    process = fake.up()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 73, errors
    assert errors.startswith("unsafe_path ")
    assert str(path) in errors
    assert not target.exists()
    assert not fake.notes("broker")


def test_a_detached_start_keeps_no_pipe_of_its_caller_open(fake: FakeRun) -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    process = subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "tests/support/fake_up.py"),
            str(fake.run.run_dir),
            str(fake.control),
            "detach",
        ],
        env=fake.environment,
        stdout=write_end,
        stderr=write_end,
        pass_fds=[write_end],
    )
    fake.started.append(process)  # type: ignore[arg-type]
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        assert pipe.read().startswith("ready "), "end of file comes although the run goes on"
    assert fake.living()


def test_survives_a_reader_that_went_away(fake: FakeRun) -> None:
    process = fake.up()
    fake.ready(process)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    os.kill(fake.pids("sampler")[0], signal.SIGKILL)
    wait_until(lambda: len(fake.pids("sampler")) == 2, "the sampler is started again")
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def test_starts_with_its_standard_descriptors_closed(fake: FakeRun) -> None:
    command = f"exec {sys.executable} {ROOT}/tests/support/fake_up.py"
    process = subprocess.Popen(
        ["sh", "-c", f"{command} {fake.run.run_dir} {fake.control} <&- >&- 2>&-"],
        env=fake.environment,
    )
    try:
        log = fake.run.service_logs / "supervisor.log"
        wait_until(lambda: log.exists() and "sampler is ready" in log.read_text(), "the run is up")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


def test_of_twelve_started_together_one_wins_and_the_losers_name_it(fake: FakeRun) -> None:
    processes = [fake.up() for _ in range(12)]
    wait_until(lambda: sum(p.poll() is not None for p in processes) == 11, "eleven lose", 60)
    winner = next(p for p in processes if p.poll() is None)
    fake.ready(winner)
    for loser in processes:
        if loser is winner:
            continue
        _, errors = loser.communicate()
        assert loser.returncode == 69
        assert errors == f"already_running process {winner.pid} serves {fake.run.run_dir}\n"
    assert all(len(fake.pids(name)) == 1 for name in CHILDREN)


def test_detached_start_returns_when_ready_and_goes_on(fake: FakeRun) -> None:
    process = fake.up("detach")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output.startswith("ready ")
    pid = int(output.split()[3])
    assert pid != process.pid
    assert alive(pid)
    os.kill(pid, signal.SIGHUP)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not alive(pid), "the detached scheduler ends")
    assert all(fake.notes(name)[-1] == "term" for name in CHILDREN)


def test_relative_paths_of_the_environment_mean_the_directory_it_was_started_in(
    fake: FakeRun,
) -> None:
    fake.environment.update(PRAXIST_ZMQ_HOST_DIR="host", TMPDIR="t", PATH=f"bin::{os.defpath}")
    fake.environment["PYTHONPATH"] = os.path.relpath(ROOT, fake.runtime)
    process = fake.up("detach", cwd=fake.runtime)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert registry_pid(fake) is not None, "the registry serves another place"
    words = Path(f"/proc/{fake.pids('broker')[0]}/environ").read_bytes().split(b"\0")
    told = dict(word.decode().split("=", 1) for word in words if word)
    assert told["TMPDIR"] == f"{fake.runtime}/t"
    assert told["PATH"] == f"{fake.runtime}/bin::{os.defpath}"
    os.kill(int(output.split()[3]), signal.SIGTERM)
    wait_until(lambda: not fake.living(), "the run ends")


def test_detached_start_that_fails_says_why(fake: FakeRun) -> None:
    fake.behave("broker", exit=78, fatal="contract_invalid")
    process = fake.up("detach")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 78
    assert "contract_invalid broker: the fake says so" in errors


def test_the_lock_of_the_caller_is_not_kept_by_our_processes(fake: FakeRun, tmp_path: Path) -> None:
    held = tmp_path / "callers.lock"
    with held.open("w") as file:
        os.set_inheritable(file.fileno(), True)
        process = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "tests/support/fake_up.py"),
                str(fake.run.run_dir),
                str(fake.control),
            ],
            env=fake.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            close_fds=False,
        )
    fake.started.append(process)
    fake.ready(process)
    for pid in fake.living():
        names = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        assert str(held) not in names
        assert str(fake.run.owner_lock) not in names


def test_children_get_only_what_they_need_of_the_environment(fake: FakeRun) -> None:
    fake.environment.update(SECRET_TOKEN="s3cret", FOO="operator", LC_ALL="C.UTF-8")
    process = fake.up()
    fake.ready(process)
    raw = Path(f"/proc/{fake.pids('launcher')[0]}/environ").read_bytes()
    names = {entry.split(b"=")[0].decode() for entry in raw.split(b"\0") if entry}
    ours = {"PRAXIST_ZMQ_RUNTIME_DIR", "PRAXIST_ZMQ_HOST_DIR"}
    assert {"PATH", "PYTHONPATH", "LC_ALL", *ours} <= names
    assert not names & {"SECRET_TOKEN", "FOO", "NOTIFY_SOCKET"}
