"""A full disk under a run that works, and space again. Needs a tmpfs of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq import Client
from praxist_zmq.errors import PraxistError
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    place = tmp_path / "of-full" / "full"
    place.mkdir(parents=True)
    if os.getuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def full_run(small_disk: Path, make_run: MakeRun) -> Run:
    """A run on it. (`make_run` is torn down first: its processes are gone before the disk.)"""
    run = make_run("full")
    assert run.dir == small_disk.resolve()
    return run


def _fill(place: Path) -> Path:
    filler = place / "filler"
    with filler.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                continue
    return filler


def _accepted(run: Run, client: Client) -> str | None:
    try:
        return run.submit(client, "again", "exit:4").job.job
    except PraxistError as error:
        if error.code != "no_space":
            raise
        return None


def test_full_and_space_again(full_run: Run) -> None:
    run = full_run
    run.up()
    with run.client(timeout_s=60.0) as client:
        running = run.submit(client, "running", f"wait:{run.gate('go')}", "exit:3").job.job
        run.until_started(f"{running}.1")
        filler = _fill(run.dir)
        refusals = []
        for number in range(400):
            try:
                client.submit(
                    tag=f"big{number}", peer="p", command=["true"], cwd="/",
                    environment={f"V{number}": "x" * 100_000},
                )  # fmt: skip
            except PraxistError as error:
                refusals.append(error)
                break
        assert refusals, "the disk never filled"
        assert (refusals[0].code, refusals[0].exit_code) == ("no_space", 75)
        typed = run.cli("--json", "submit", "--peer", "p", "--tag", "typed", "--", "true")
        # A smaller one may fit again, once what the reserve gave back is counted as space.
        assert typed.status in (0, 75), typed
        if typed.status == 0:
            run.acknowledge("typed", typed.document["job"])
        assert client.status()["jobs"]["running"] >= 1
        run.open_gate("go")
        assert client.wait(running, 60).exit_code == 3, "the end is recorded on a full disk"
        filler.unlink()
        job = wait_until(lambda: _accepted(run, client), "space to be noticed")
        assert client.wait(job, 60).exit_code == 4
        for item in client.queue(states=["queued", "running"]):
            client.wait(item.job, 60)
    run.down()
    oracle.check_ended(run)


def test_nothing_starts_on_a_full_disk_and_what_waits_is_run_after(
    small_disk: Path, make_run: MakeRun
) -> None:
    run = make_run("full", slots=1)
    run.up()
    with run.client(timeout_s=60.0) as client:
        first = run.submit(client, "first", f"wait:{run.gate('go')}", "exit:3").job.job
        run.until_started(f"{first}.1")
        waiting = [run.submit(client, f"w{number}", "exit:0").job.job for number in range(3)]
        filler = _fill(run.dir)
        wait_until(lambda: any("DISK FULL" in text for text in client.status()["alarms"]), "alarm")
        run.open_gate("go")
        failed = client.wait(first, 60)
        assert failed.exit_code == 3
        told = client.explain(waiting[0])
        assert [blocker["code"] for blocker in told["blockers"]] == ["disk_full"]
        assert [client.show(job).state for job in waiting] == ["queued"] * 3
        filler.unlink()
        for job in waiting:
            ended = client.wait(job, 60)
            assert (ended.state, ended.attempts) == ("completed", 1)
    run.down()
    oracle.check_ended(run)
