"""The attempt's own guard is killed: the attempt's end is unknown, never a success, never freed
while something of it lives."""

from __future__ import annotations

import os
import signal

from praxist_zmq.host.identity import read_stat
from tests.support import oracle
from tests.support.campaign import ensure_up
from tests.support.canaries import Canaries
from tests.support.run import Run, kill_at_once, send
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def _shims(run: Run) -> list[int]:
    return [pid for name, pid in run.processes().items() if name.startswith("shim")]


def _parent(pid: int) -> int:
    stat = read_stat(pid)
    return stat.parent if stat is not None else 0


def _shim(run: Run) -> int:
    (pid,) = _shims(run)
    return pid


def test_killed_shim(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        first = run.submit(client, "orphaned", f"wait:{run.gate('go')}").job.job
        second = run.submit(client, "next", "exit:3").job.job
        run.until_started(f"{first}.1")
        evaluator = int(run.read_lines("start")[0][2])
        send(_shim(run), signal.SIGKILL)
        wait_until(lambda: not _shims(run), "the shim to be gone")
        run.kill("launcher")
        ensure_up(run)
        assert os.path.exists(f"/proc/{evaluator}")
        assert client.show(first).state == "running"
        assert client.show(second).state == "queued"
        run.open_gate("go")
        ended = client.wait(first, 60)
        assert ended.state == "drained_unknown"
        assert not os.path.exists(f"/proc/{evaluator}")
        assert client.wait(second, 60).exit_code == 3
    assert run.cli("wait", first).status == 79
    run.down()
    oracle.check_ended(run)


def test_killed_shim_while_nobody_watches(make_run: MakeRun) -> None:
    """Shim and scheduler die; another run has an attempt of the same name, started later."""
    run, other = make_run("one"), make_run("two")
    run.up()
    with run.client() as client:
        job = run.submit(client, "orphaned", f"wait:{run.gate('never')}").job.job
        run.until_started(f"{job}.1")
        evaluator = int(run.read_lines("start")[0][2])
        shim = _shim(run)
        run.kill_all()
        send(shim, signal.SIGKILL)
        other.up()
        with other.client() as theirs:
            kept = other.submit(theirs, "kept", f"wait:{other.gate('go')}", "exit:4").job.job
            other.until_started(f"{kept}.1")
            assert kept == job
            late = Canaries(str(run.dir))
            try:
                run.up()
                run.cli("cancel", job, "--yes").ok()
                ended = client.wait(job, 60)
                assert ended.state == "cancelled"
                wait_until(lambda: not os.path.exists(f"/proc/{evaluator}"), "the orphan to end")
                late.check()
            finally:
                late.close()
            other.open_gate("go")
            assert theirs.wait(kept, 60).exit_code == 4
    for each in (run, other):
        each.down()
        oracle.check_ended(each)


def test_everything_is_killed(make_run: MakeRun) -> None:
    """As after a power cut, but for the boot id: running jobs are unknown, the queue is whole."""
    run = make_run(slots=2)
    run.up()
    with run.client() as client:
        jobs = [run.submit(client, f"t{n}", f"wait:{run.gate('never')}").job.job for n in range(2)]
        queued = [run.submit(client, f"q{n}", f"exit:{n}").job.job for n in range(3)]
        run.until_started(*(f"{job}.1" for job in jobs))
        pids = set(run.processes().values()) | set(run.experiments())
        kill_at_once(pids)  # a shim that runs on would keep how its evaluator died
        wait_until(lambda: not run.experiments() and not run.processes(), "all to be gone")
        run.up()
        assert [client.wait(job, 60).state for job in jobs] == ["drained_unknown"] * 2
        assert [client.wait(job, 60).exit_code for job in queued] == [0, 1, 2]
        status = client.status()
        assert status["jobs"]["running"] == status["jobs"]["queued"] == 0
        assert status["jobs_total"] == 5
    run.down()
    oracle.check_ended(run)


def test_an_escapee_holds_an_adopted_attempt(make_run: MakeRun) -> None:
    """It shares nothing with its attempt but its ancestry, and the ancestry is gone: it fell to
    the supervisor. A claim registry that was started meanwhile fell to it too, and holds nothing.
    """
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        actions = [f"wait:{run.gate('adopted')}", f"daemonize:{run.gate('daemon')}"]
        first = run.submit(client, "escapes", *actions, f"wait:{run.gate('end')}").job.job
        second = run.submit(client, "next", "exit:3").job.job
        run.until_started(f"{first}.1")
        registry = run.processes()["registry"]
        send(registry, signal.SIGKILL)
        wait_until(
            lambda: run.processes().get("registry", registry) != registry, "another registry"
        )
        launcher = run.processes()["launcher"]
        run.kill("launcher")
        wait_until(
            lambda: run.processes().get("launcher", launcher) != launcher, "another launcher"
        )
        run.open_gate("adopted")
        wait_until(lambda: run.read_lines("daemon"), "the daemon to be there")
        daemon = int(run.read_lines("daemon")[0][2])
        supervisor = run.processes()["supervisor"]
        send(_shim(run), signal.SIGKILL)
        wait_until(lambda: _parent(daemon) == supervisor, "the daemon to fall to the supervisor")
        run.open_gate("end")
        wait_until(lambda: run.read_lines("end"), "the evaluator to end")
        run.cli("cancel", first, "--yes").ok()
        named = f"(pid {daemon}, "
        wait_until(lambda: named in str(client.show(first).note), "the daemon to be named", 30)
        assert os.path.exists(f"/proc/{daemon}")
        assert client.show(second).state == "queued"
        run.open_gate("daemon")
        assert client.wait(first, 60).state == "cancelled"
        assert client.wait(second, 60).exit_code == 3
    run.down()
    oracle.check_ended(run)
