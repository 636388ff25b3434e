"""Devices as a peer meets them: refused at once, waited for, and handed to the experiment."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq import Client
from praxist_zmq.client.views import RefusedError
from tests.cases.conftest import MakeSharedRun
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

CONTRACT = """
compute_budget:
  resource_scheduler:
    mode: central
    min_concurrent_experiments: 4
    initial_concurrent_experiments: 4
    max_concurrent_experiments: 4
    default_profile: cpu
    profiles:
      cpu: {accelerator: cpu, pressure_domains: []}
      gpu: {accelerator: gpu, gpu_memory_gb: 30, gpu_utilization_pct: 45, pressure_domains: []}
      pair: {accelerator: gpu, gpu_count: 2, pressure_domains: []}
      three: {accelerator: gpu, gpu_count: 3, pressure_domains: []}
      huge: {accelerator: gpu, gpu_memory_gb: 80, gpu_utilization_pct: 10, pressure_domains: []}
"""
MASKS = ("PRAXIST_ASSIGNED_GPU_UUIDS", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


@pytest.fixture(scope="module")
def run(make_shared_run: MakeSharedRun) -> Run:
    made = make_shared_run(CONTRACT, sim="gpus=2,memory=40")
    made.up()
    return made


@pytest.fixture
def client(run: Run) -> Iterator[Client]:
    with run.client() as client:
        yield client


def variables(run: Run, client: Client, tag: str, **options: object) -> dict[str, str]:
    """The environment that an experiment really gets."""
    target = run.gate(f"dump-{tag}")
    job = run.submit(client, tag, f"dump:{target}", "exit:0", **options).job.job
    assert client.wait(job, 60).state == "completed"
    found = json.loads(Path(target).read_text())["environment"]
    return {
        os.fsdecode(base64.b64decode(name)): os.fsdecode(base64.b64decode(value))
        for name, value in found.items()
    }


@pytest.mark.parametrize(("profile", "words"), [("three", "needs 3 GPUs"), ("huge", "80 GiB")])
def test_what_this_host_can_never_run_is_refused_and_nothing_is_queued(
    run: Run, client: Client, profile: str, words: str
) -> None:
    """S7."""
    with pytest.raises(RefusedError) as refused:
        run.submit(client, profile, "exit:0", profile=profile)
    assert (refused.value.code, refused.value.exit_code) == ("profile_unsatisfiable", 65)
    assert words in refused.value.detail
    assert "accelerator_profile_unsatisfied" in refused.value.detail
    assert [job for job in client.queue(include_terminal=True) if job.tag == profile] == []


def test_a_full_device_and_a_lost_driver_keep_a_job_waiting(run: Run, client: Client) -> None:
    """S8, S9: a busy but capable host refuses nothing, and the same request is the same job."""
    for gpu in ("0", "1"):
        run.cli("sim", "load", "--gpu", gpu, "--memory-gb", "20").ok()
    wait_until(
        lambda: {d["external_memory_mib"] for d in client.devices()} == {20 * 1024}, "the load"
    )
    job = run.submit(client, "waits", "exit:0", profile="gpu").job.job
    assert [blocker.code for blocker in client.show(job).blockers] == ["gpu_memory_short"]
    run.cli("sim", "fail", "--gpu", "0", "init").ok()
    wait_until(
        lambda: client.status()["accelerator_probe"]["state"] == "unknown", "the driver to be away"
    )
    again = run.submit(client, "waits", "exit:0", profile="gpu")
    assert (again.verdict, again.job.job, again.job.state) == ("joined", job, "queued")
    assert again.job.queue_blocked_reason == "accelerator_unknown"
    run.cli("sim", "clear").ok()
    assert client.wait(job, 60).state == "completed"


def test_the_masks_are_the_assignment_whatever_was_inherited(run: Run, client: Client) -> None:
    """S50; two devices keep their order."""
    inherited = {**run.environment, "CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"}
    for tag, profile, count in (("one", "gpu", 1), ("two", "pair", 2), ("none", "cpu", 0)):
        found = variables(run, client, tag, profile=profile, environment=inherited)
        masks = {found[name] for name in MASKS}
        assert len(masks) == 1
        uuids = [uuid for uuid in masks.pop().split(",") if uuid]
        assert len(uuids) == count
        assert all(uuid.startswith("GPU-00000000-0000-4000-8000-") for uuid in uuids)
        assert list(client.show(f"tag:{tag}").gpu_uuids) == uuids
        assert found["PRAXIST_RESOURCE_PROFILE"] == profile


def test_an_empty_environment_stays_empty_but_for_the_attempt_s_own(
    run: Run, client: Client
) -> None:
    """S53: nothing of the scheduler's environment leaks into an experiment."""
    found = variables(run, client, "empty", environment={})
    own = {name for name in found if name.startswith(("PRAXIST_", "CUDA_", "NVIDIA_"))}
    assert set(found) - own <= {"LC_CTYPE"}, "Python sets that one for itself"
    assert "PRAXIST_ZMQ_HOST_DIR" not in found


def test_a_hostile_module_is_loaded_by_the_task_alone(run: Run, client: Client) -> None:
    """S21: the task gets its Python path, and nothing of ours looks there."""
    hostile = run.dir.parent / "hostile"
    hostile.mkdir()
    mark = run.dir.parent / "loaded-by"
    for name in ("sitecustomize", "usercustomize"):
        text = f"import os; open({str(mark)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        (hostile / f"{name}.py").write_text(text)
    environment = {**run.environment, "PYTHONPATH": str(hostile)}
    command = [sys.executable, "-c", "import os; print(os.environ['PYTHONPATH'], os.getpid())"]
    job = run.submit(client, "hostile", command=command, environment=environment).job.job
    assert client.wait(job, 60).state == "completed"
    path, pid = run.paths.attempt_log(f"{job}.1").read_text().split()
    assert path == str(hostile)
    assert set(mark.read_text().split()) == {pid}


def test_a_directory_is_the_caller_s_and_a_relative_program_is_found_there(
    run: Run, client: Client
) -> None:
    """S51, S52, B31, B43, B44: relative to where it was typed, or to the directory given."""
    place = run.dir.parent / "place"
    place.mkdir()
    tool = place / "tool.sh"
    tool.write_text('#!/bin/sh\npwd; echo "$KEPT"\n')
    tool.chmod(0o755)
    words = ("launch", "--peer", "p", "--tag", "cwd", "--cwd", "place", "--", "./tool.sh")
    run.cli(*words, env={"KEPT": "variable"}).ok()
    job = client.show("tag:cwd").job
    assert run.paths.attempt_log(f"{job}.1").read_text() == f"{place}\nvariable\n"
    run.cli("launch", "--peer", "p", "--tag", "here", "--", "place/tool.sh").ok()
    job = client.show("tag:here").job
    assert run.paths.attempt_log(f"{job}.1").read_text().splitlines()[0] == str(run.dir.parent)


def test_without_an_accelerator_cpu_work_goes_on_and_gpu_work_is_refused(
    make_run: MakeRun,
) -> None:
    """S2: the probe says unavailable."""
    run = make_run(sim="gpus=0")
    run.up()
    wait_until(
        lambda: run.cli("status", "--json").document["accelerator_probe"]["state"] == "unavailable",
        "the probe",
    )
    refused = run.cli("submit", "--peer", "p", "--tag", "g", "--profile", "gpu", "--", "true")
    assert (refused.status, refused.err.split()[0]) == (65, "rejected")
    assert "accelerator_unavailable" in refused.err
    assert run.launch("c", "exit:3").status == 3
    run.down()
