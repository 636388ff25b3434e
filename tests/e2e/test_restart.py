"""`down`, `up`, and what goes on meanwhile."""

from __future__ import annotations

import json

import pytest

from praxist_zmq.protocol import events as ev
from tests.support import oracle
from tests.support.run import SERVICES, Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


def test_three_running_and_five_queued(make_run: MakeRun) -> None:
    run = make_run(slots=3)
    run.up()
    with run.client() as client:
        running = [
            run.submit(client, f"r{n}", f"wait:{run.gate(f'r{n}')}", f"exit:{n}").job.job
            for n in range(3)
        ]
        queued = [run.submit(client, f"q{n}", f"exit:{10 + n}").job.job for n in range(5)]
        run.until_started(*(f"{job}.1" for job in running))
    said = run.down()
    assert all(job in said.out for job in running), said
    assert not set(SERVICES) & set(run.processes())
    run.open_gate("r0")
    wait_until(lambda: len(run.read_lines("end")) == 1, "one to end while the scheduler is down")
    run.up()
    with run.client() as client:
        assert client.wait(running[0], 60).exit_code == 0
        for job in running[1:]:
            assert client.show(job).state == "running"
        run.open_gate("r1")
        run.open_gate("r2")
        assert [client.wait(job, 60).exit_code for job in running] == [0, 1, 2]
        assert [client.wait(job, 60).exit_code for job in queued] == [10, 11, 12, 13, 14]
        assert {client.show(job).attempts for job in (*running, *queued)} == {1}
    run.down()
    events = oracle.check_ended(run)
    assert len([e for e in events if isinstance(e, ev.JobFinished)]) == 8


def test_a_blocked_launch_goes_on_over_a_restart(run: Run) -> None:
    process = run.start(*run.launch_words("w", f"wait:{run.gate('go')}", "exit:11"))
    run.until_started("j-1.1")
    run.kill_all()
    run.up()
    run.open_gate("go")
    process.communicate(timeout=30)
    assert process.returncode == 11
    run.down()
    oracle.check_ended(run)


def test_a_blocked_launch_brings_its_secrets_back_after_a_restart(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        run.submit(client, "first", f"wait:{run.gate('go')}")
        run.until_started("j-1.1")
    words = run.launch_words("second", "exit:7")
    process = run.start(*words, env={"SOME_API_TOKEN": "s3cr3t-of-the-peer"})
    wait_until(lambda: run.cli("show", "j-2").status == 0, "the second to be queued")
    assert run.kill("broker")
    run.until_healthy()
    run.open_gate("go")
    process.communicate(timeout=30)
    assert process.returncode == 7
    run.down()
    oracle.check_ended(run)


def test_up_twice_is_one_scheduler(run: Run) -> None:
    before = run.processes()
    second = run.try_up()
    assert second.status == 69
    assert str(before["supervisor"]) in second.err, second
    assert run.processes() == before
    status = run.cli("status", "--json").ok().document
    named = {item["name"]: item["pid"] for item in status["processes"]}
    assert named == {name: before[name] for name in (*SERVICES, "registry")}
    run.down()
    assert run.cli("down").status == 0
    assert run.cli("status").status == 3


def test_the_same_run_by_any_spelling(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    link = run.dir.parent / "link"
    link.symlink_to(run.dir)
    for spelling in (str(link), f"{run.dir}/", f"{run.dir.name}/../{run.dir.name}", run.dir.name):
        found = run.cli("--run-dir", spelling, "status", "--json").ok().document
        assert found["run_dir"] == str(run.dir), spelling
    run.down()


def test_up_survives_its_pipeline(run: Run) -> None:
    """Whoever read the first line of `up` may go; nothing of ours writes to that pipe again."""
    endpoint = json.loads(run.paths.endpoint.read_text())
    assert endpoint["run_dir"] == str(run.dir)
    run.down()
    assert not run.paths.endpoint.exists()


@pytest.mark.parametrize("damage", [b"", b"garbage", b"{}"])
def test_derived_files_are_made_anew(run: Run, damage: bytes) -> None:
    with run.client() as client:
        job = run.submit(client, "one", "exit:0").job.job
        client.wait(job, 60)
    run.kill_all(registry=True)
    run.paths.status.write_bytes(damage)
    run.paths.endpoint.write_bytes(damage)
    registry_info = run.host_dir / "registry.json"
    registry_info.write_bytes(damage)
    ours = (run.paths.status, run.paths.endpoint, run.paths.shutdown_fence, run.paths.devices)
    left = [p.with_name(f".{p.name}.{'0' * 16}.tmp") for p in (*ours, registry_info)]
    for path in left:
        path.write_bytes(damage)
    run.up()
    assert not [path for path in left if path.exists()], "what killed writers left is removed"
    assert run.show(job).state == "completed"
    run.down()
    oracle.check_ended(run)
    assert json.loads(run.paths.status.read_text())["jobs"]["completed"] == 1
