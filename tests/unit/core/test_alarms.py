"""Alarms: when a run gets nowhere, and when it only waits as it should."""

from __future__ import annotations

from typing import Any

import pytest

from praxist_zmq.core.alarms import PROBE_TOLD_MS, START_TOLD_MS, WAIT_TOLD_MS
from praxist_zmq.protocol.reports import HostSampled
from praxist_zmq.protocol.requests import GetStatus, HoldAdmission, SubmitJob
from tests.support.broker_world import World, host_sample


class QuietWorld(World):
    """A world whose default profile needs a GPU, and whose sampler says what the test says."""

    probe = "available"

    def __init__(self, devices: int = 1, default_profile: str = "gpu") -> None:
        super().__init__(devices=devices)
        self.policy = self.policy.model_copy(update={"default_profile": default_profile})
        self.start_broker()
        self.settle()

    def sample(self) -> HostSampled:
        return host_sample(self.devices, self.probe, self.now_ms)

    def status(self) -> Any:
        return self.ask(GetStatus())

    def submit(self, tag: str, profile: str | None = None) -> Any:
        return self.ask(
            SubmitJob(
                peer="p", tag=tag, command=("true",), cwd="/", environment={}, profile=profile
            )
        )


def test_an_impossible_default_profile_is_told_at_once_and_first() -> None:
    world = QuietWorld(devices=0)
    world.ask(HoldAdmission())
    status = world.status()
    assert status.health == "troubled"
    assert status.alarms == status.warnings[:1]
    text = status.alarms[0]
    assert text.startswith("NO PROGRESS  generation 0 open ")
    assert "no experiment was ever admitted: default profile 'gpu' needs 1 GPU" in text
    assert len([word for word in status.warnings if "default profile" in word]) == 1


def test_where_something_ran_an_impossible_default_profile_is_a_warning() -> None:
    world = QuietWorld(devices=0)
    world.submit("t", "cpu")
    world.settle()
    status = world.status()
    assert status.alarms == ()
    assert status.health == "troubled"
    assert "default profile 'gpu' needs 1 GPU" in status.warnings[0]
    assert world.submit("u").code == "profile_unsatisfiable"


def test_a_run_that_nobody_wants_anything_of_is_well() -> None:
    world = QuietWorld()
    world.pass_time(100 * WAIT_TOLD_MS)
    status = world.status()
    assert (status.health, status.alarms) == ("healthy", ())


def test_a_first_job_that_waits_long_is_told_with_its_reason() -> None:
    world = QuietWorld(default_profile="cpu")
    world.ask(HoldAdmission())
    world.submit("t")
    world.pass_time(WAIT_TOLD_MS - 1_000)
    assert world.status().alarms == ()
    world.pass_time(2_000)
    (text,) = world.status().alarms
    assert text.startswith("NO PROGRESS  generation 0 open 61 s, ")
    assert text.endswith("j-1 (cpu) waits: admission is held for a drain")
    world.ask(HoldAdmission(held=False))
    world.settle()
    assert world.status().alarms == ()
    world.submit("u")
    world.ask(HoldAdmission())
    world.pass_time(2 * WAIT_TOLD_MS)
    assert world.status().alarms == (), "something was admitted in this generation"


def test_what_is_refused_only_is_no_progress_either() -> None:
    world = QuietWorld(devices=1, default_profile="cpu")
    for number in range(2):
        assert world.submit(f"t{number}", "pair").code == "profile_unsatisfiable"
    (text,) = world.status().alarms
    assert text.endswith(
        "2 submissions were refused, with a profile that can never run on this host"
    )
    world.submit("t", "cpu")
    world.settle()
    assert world.status().alarms == ()


@pytest.mark.parametrize("waits", [True, False])
def test_an_unknown_probe_is_told_whether_or_not_somebody_waits_for_devices(waits: bool) -> None:
    world = QuietWorld(default_profile="cpu")
    world.submit("first", "cpu")
    world.settle()
    world.probe = "unknown"
    world.turn(world.sample())
    world.ask(HoldAdmission())
    if waits:
        world.submit("t", "gpu")
    world.pass_time(PROBE_TOLD_MS - 1_000)
    assert world.status().alarms == ()
    world.pass_time(55_000)
    (text,) = world.status().alarms
    assert text.startswith("PROBE UNKNOWN for 6")
    held = ", GPU jobs held: " if waits else ", no GPU job could start: "
    assert f"{held}the devices are not known" in text
    assert world.status().health == "troubled"
    world.probe = "available"
    world.turn(world.sample())
    assert world.status().alarms == ()


def test_a_run_without_gpu_profiles_minds_no_unknown_probe() -> None:
    world = QuietWorld(default_profile="cpu")
    profiles = {"cpu": world.policy.profiles["cpu"]}
    world.policy = world.policy.model_copy(update={"profiles": profiles})
    world.start_broker()
    world.settle()
    world.probe = "unknown"
    world.turn(world.sample())
    world.pass_time(60_000)
    assert world.status().alarms == ()


def test_nothing_that_starts_for_minutes_is_told_though_something_ran_before() -> None:
    world = QuietWorld(default_profile="cpu")
    world.submit("first", "cpu")
    world.settle()
    busy = {"memory_pct": 99.0}
    world.sample = lambda: QuietWorld.sample(world).model_copy(update=busy)  # type: ignore[method-assign]
    world.turn(world.sample())
    waiting = world.submit("second", "cpu").job.job
    world.pass_time(START_TOLD_MS)
    world.settle()
    assert world.status().alarms == (), "something runs"
    world.finish_one()
    world.settle()
    world.pass_time(START_TOLD_MS - 10_000)
    assert world.status().alarms == ()
    world.pass_time(20_000)
    (text,) = world.status().alarms
    assert text.startswith("NO START for 3m, nothing runs: ")
    assert waiting in text


def test_a_stopped_run_raises_no_alarm() -> None:
    world = QuietWorld(devices=0)
    world.broker.state.closed_reason = "stopped"
    assert world.status().alarms == ()
