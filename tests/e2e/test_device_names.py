"""A real device belongs to one host scope at a time, whatever scopes there are.

On the scripted driver, with device names as real drivers make them; the evaluators' own clocks say
whether two had it at once.
"""

from __future__ import annotations

import os
import pwd
import signal
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from praxist_zmq.host.unix_sockets import hold
from tests.support import oracle
from tests.support.nvml_stub import Stub, StubDevice, nvml_library
from tests.support.nvml_stub import nvml_stub as stub
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

__all__ = ["nvml_library", "stub"]

MakeScoped = Callable[[str], Run]


@pytest.fixture
def device(stub: Stub) -> str:
    """The one device of the scripted driver."""
    name = f"GPU-{uuid.uuid4()}"
    stub.write(StubDevice(name))
    return name


@pytest.fixture
def scoped(make_run: MakeRun, stub: Stub, device: str, host_directory: Path) -> MakeScoped:
    """Make a run in a host scope of its own, on the scripted driver."""

    def make(name: str) -> Run:
        place = host_directory / name
        place.mkdir(mode=0o700)
        run = make_run(name, host_dir=place)
        run.environment.update(stub.environment)
        run.up()
        return run

    return make


def _sent(run: Run, tag: str, *actions: str) -> str:
    with run.client() as client:
        return run.submit(client, tag, *actions, profile="gpu").job.job


def _blockers(run: Run, job: str) -> dict[str, str]:
    told = run.cli("explain", job, "--json").ok().document
    return {blocker["code"]: blocker["detail"] for blocker in told["blockers"]}


def _refused(run: Run, job: str) -> bool:
    return "gpu_held_elsewhere" in _blockers(run, job)


def test_two_scopes_never_have_a_device_at_once(scoped: MakeScoped, device: str) -> None:
    one, other = scoped("a"), scoped("b")
    first = _sent(one, "first", f"wait:{one.gate('go')}")
    one.until_started(f"{first}.1")
    second = _sent(other, "second", "exit:0")
    wait_until(lambda: _refused(other, second), "the other scope is told")
    registry = one.processes()["registry"]
    told = f"held by another host scope: process {registry} of user {_user()}, {one.host_dir}"
    assert told in _blockers(other, second)["gpu_held_elsewhere"]
    assert told in other.cli("gpus", "--json").document["devices"][0]["held_elsewhere"]
    assert any(told in warning for warning in other.cli("status", "--json").document["warnings"])
    seen = other.cli("host", "--json").ok().document["devices_elsewhere"]
    assert [(it["uuid"], it["pid"], it["scope"]) for it in seen] == [
        (device, registry, str(one.host_dir))
    ]
    assert " ".join(told.split()[:5]) in " ".join(other.cli("host", "-o", "table").out.split())
    checked = other.cli("config", "check", str(other.contract), "--host", "--json").document
    assert told in str(checked), "a look from outside tells it too"
    one.open_gate("go")
    with other.client() as client:
        assert client.wait(second, 60).state == "completed", "an idle device changes hands"
    third = _sent(one, "third", "exit:0")
    with one.client() as client:
        assert client.wait(third, 60).state == "completed"
    assert oracle.shared_devices([one, other]) == []


def test_a_device_stays_its_scopes_while_only_the_experiment_lives(scoped: MakeScoped) -> None:
    one, other = scoped("a"), scoped("b")
    first = _sent(one, "first", f"wait:{one.gate('go')}")
    one.until_started(f"{first}.1")
    waits = _sent(one, "waits", "exit:0")
    one.kill_all(registry=True)
    shim = next(int(name.split(":")[1]) for name in one.processes() if name.startswith("shim"))
    second = _sent(other, "second", f"wait:{other.gate('go')}")
    wait_until(lambda: _refused(other, second), "the other scope is told")
    assert f"process {shim} of user" in _blockers(other, second)["gpu_held_elsewhere"]
    one.up()
    one.open_gate("go")
    with one.client() as client:
        assert client.wait(first, 60).state == "completed"
    other.open_gate("go")
    for run, job in ((other, second), (one, waits)):
        with run.client() as client:
            assert client.wait(job, 60).state == "completed"
    assert oracle.shared_devices([one, other]) == []


def test_a_registry_that_comes_back_grants_no_start_on_what_another_took(
    scoped: MakeScoped, device: str
) -> None:
    """The registry dies when its plan is committed and nothing of the attempt is there yet."""
    one, other = scoped("a"), scoped("b")
    launcher = one.processes()["launcher"]
    os.kill(launcher, signal.SIGSTOP)
    first = _sent(one, "first", "exit:0")
    wait_until(
        lambda: len(one.cli("host", "--json").document.get("allocations", [])) == 1, "the plan"
    )
    supervisor = one.processes()["supervisor"]
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(one.processes()["registry"], signal.SIGKILL)
    second = _sent(other, "second", f"wait:{other.gate('go')}")
    other.until_started(f"{second}.1")
    os.kill(launcher, signal.SIGCONT)
    os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: _refused(one, first), "it waits again; nothing of it ran")
    assert one.read_lines("start") == []
    other.open_gate("go")
    with one.client() as client:
        assert client.wait(first, 60).state == "completed"
    assert oracle.shared_devices([one, other]) == []


def test_a_name_that_anybody_took_is_told_as_theirs_and_nothing_worse(
    scoped: MakeScoped, device: str
) -> None:
    squatted = hold(f"@praxist-zmq/device/{device}")
    assert squatted is not None
    run = scoped("a")
    job = _sent(run, "t", "exit:0")
    wait_until(lambda: _refused(run, job), "the holder is told")
    told = _blockers(run, job)["gpu_held_elsewhere"]
    assert told.endswith(f"held by another host scope: process {os.getpid()} of user {_user()}")
    squatted.close()
    with run.client() as client:
        assert client.wait(job, 60).state == "completed"


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
