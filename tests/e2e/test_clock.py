"""The wall clock one day off, forward and back: durations and liveness don't care."""

from __future__ import annotations

import shutil

import pytest

from tests.support import oracle
from tests.support.run_fixtures import MakeRun

pytestmark = pytest.mark.skipif(
    shutil.which("faketime") is None, reason="faketime is not installed"
)


@pytest.mark.parametrize("shift", ["+1d", "-1d"])
def test_another_day_after_a_restart(make_run: MakeRun, shift: str) -> None:
    run = make_run(slots=1)
    run.up()
    with run.client() as client:
        held = run.submit(client, "h", f"wait:{run.gate('go')}", "exit:2").job.job
        queued = run.submit(client, "q", "exit:3").job.job
        run.until_started(f"{held}.1")
    run.kill_all(registry=True)
    run.up(prefix=["faketime", "-f", shift])
    with run.client() as client:
        assert client.show(held).state == "running"
        assert client.show(queued).state == "queued"
        limited = run.launch("t", "exit:0", options=["--admission-timeout", "1s"])
        assert limited.status == 75
        run.open_gate("go")
        assert client.wait(held, 60).exit_code == 2
        assert client.wait(queued, 60).exit_code == 3
    run.down()
    run.up()
    assert run.launch("after", "exit:4").status == 4
    run.down()
    oracle.check_ended(run)
