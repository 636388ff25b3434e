"""An experiment of a container that ended, seen from the host and from the next container."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.host.identity import own_namespace
from praxist_zmq.host.lineage import FIRST_PID_NAMESPACE
from tests.support.namespaces import needs_namespaces
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

pytestmark = needs_namespaces
CLI = 'pz() { "$PYTHON" -m praxist_zmq --run-dir "$RUN" "$@"; }\n'
SETTLED = """
until pz explain j-1 | grep -q 'cannot be seen from here'; do sleep 0.1; done
pz status || true; pz explain j-1
"""


def _in_a_container(run: Run, script: str, host: Run | None = None) -> str:
    """The output of a script in a pid namespace of its own, which ends with it."""
    out = run.dir.parent / "container.out"
    with out.open("w") as output:
        subprocess.run(
            ["unshare", "-pf", "--mount-proc", "bash", "-ec", CLI + script],
            env={
                **run.environment,
                "RUN": str(run.dir),
                "CONTRACT": str(run.contract),
                "PYTHON": sys.executable,
                "HOST": str((host or run).dir),
            },
            cwd=run.dir.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=60,
            check=False,
        )
    return out.read_text()


@pytest.fixture
def left(make_run: MakeRun) -> Run:
    """A run whose container ended while its only experiment held the only device."""
    run = make_run("run", slots=1, sim="gpus=1,memory=80")
    told = _in_a_container(
        run,
        """
        pz up --detach --config "$CONTRACT" --sim gpus=1,memory=80
        pz submit --peer p --tag one --profile gpu -- sleep 600
        until pz show j-1 | grep -q 'pid '; do sleep 0.1; done
        """,
    )
    assert (run.paths.attempts / "j-1.1").is_dir(), told
    return run


@pytest.mark.skipif(own_namespace() != FIRST_PID_NAMESPACE, reason="not in the first pid namespace")
def test_the_host_proves_that_a_container_has_ended(left: Run) -> None:
    told = left.cli("stop", "--dry-run", "--json").document
    assert told["matched_pids"] == told["remaining_pids"] == []
    left.up()
    with left.client() as client:
        assert client.wait("j-1", 20).state == "drained_unknown"
        assert "namespace_dead" in left.cli("events").ok().out
        second = left.submit(client, "two", "exit:0", profile="gpu").job.job
        assert client.wait(second, 20).state == "completed"
    left.down()


@pytest.mark.skipif(own_namespace() != FIRST_PID_NAMESPACE, reason="not in the first pid namespace")
def test_a_container_beside_a_run_of_the_host_holds_its_device_until_it_ends(
    make_run: MakeRun,
) -> None:
    host = make_run("host", slots=2, sim="gpus=1,memory=80")
    boxed = make_run("boxed", slots=2, sim="gpus=1,memory=80")
    host.up()
    with host.client() as client:
        tagged = host.submit(client, "first", "exit:0", profile="gpu").job.job
        assert client.wait(tagged, 20).state == "completed"
        told = _in_a_container(
            boxed,
            """
            pz up --detach --config "$CONTRACT" --sim gpus=1,memory=80
            pz submit --peer p --tag one --profile gpu -- sleep 600
            until pz show j-1 | grep -q 'pid '; do sleep 0.1; done
            "$PYTHON" -m praxist_zmq --run-dir "$HOST" submit --peer p --tag w --profile gpu -- true
            until "$PYTHON" -m praxist_zmq --run-dir "$HOST" show tag:w | grep -q 'held by'; do
                sleep 0.1
            done
            echo waits
            """,
            host,
        )
        assert told.endswith("waits\n")
        assert client.wait("tag:w", 30).state == "completed"
    host.down()


@pytest.fixture
def another(left: Run) -> Iterator[None]:
    """Somebody else's container, which got the number of the namespace that ended; with that number
    the next container would prove the end by itself."""
    line = (left.paths.attempts / "j-1.1" / "evidence.jsonl").read_text().splitlines()[0]
    ended = json.loads(line)["shim"]["pid_namespace"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        while not started or _namespace_below(started[-1].pid) != ended:
            assert len(started) < 20, f"no namespace got the number {ended} again"
            started.append(subprocess.Popen(["unshare", "-pf", "--kill-child", "sleep", "600"]))
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def _namespace_below(pid: int) -> int:
    below = Path(f"/proc/{pid}/task/{pid}/children")
    first = wait_until(lambda: below.read_text().split(), "the first process of a namespace")[0]
    return os.stat(f"/proc/{first}/ns/pid").st_ino


@pytest.mark.usefixtures("another")
def test_from_the_next_container_only_an_operators_word_ends_it(left: Run) -> None:
    told = _in_a_container(
        left,
        f"""
        pz up --detach
        {SETTLED}
        pz submit --peer p --tag two --profile gpu -- true
        pz show --json j-1 | tr ',' '\\n' | grep '"pid"'
        pz cancel j-1 --presume-dead --reason 'that container is gone'
        pz wait j-2
        pz events
        pz down
        """,
    )
    assert "--presume-dead" in told
    assert "unkillable" not in told
    assert re.search('"pid": ?null', told)
    assert "j-1.1 presumed dead by an operator" in told
    assert "that container is gone" in told
    assert "[presumed_dead]" in told
    assert "j-2 completed, exit 0" in told
