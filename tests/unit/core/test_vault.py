"""Credential values outlive the broker while a job needs them, and no longer."""

from __future__ import annotations

from typing import Any

from praxist_zmq.core.credentials import digest, split_environment
from praxist_zmq.core.vault import Vault
from praxist_zmq.protocol.requests import CancelJobs, ListJobs, SubmitJob
from tests.support.broker_world import World

KEY = b"key"
TOKEN = {"HF_TOKEN": "first value", "WANDB_API_KEY": "second value"}


def _hash(name: str, value: str) -> str:
    return digest(KEY, name, value).hmac_sha256


def _put(vault: Vault, job: str, **environment: str) -> None:
    vault.put(job, *split_environment(KEY, dict(environment)))


def _submit(world: World, tag: str, **environment: Any) -> str:
    submission = SubmitJob(
        peer="p", tag=tag, command=("true",), cwd="/", environment={**TOKEN, **environment}
    )
    reply = world.ask(submission)
    world.settle()
    return str(reply.job.job)


def test_a_value_that_many_jobs_share_is_kept_once_and_until_the_last_one_ends() -> None:
    vault = Vault()
    for number in range(3):
        _put(vault, f"j-{number}", HF_TOKEN="shared", SEED=str(number))
    assert vault.take_fresh() == {_hash("HF_TOKEN", "shared"): "shared"}
    for number in range(3):
        assert vault.take_gone() == []
        vault.drop(f"j-{number}")
    assert vault.take_gone() == [_hash("HF_TOKEN", "shared")]
    assert not vault.of("j-0")


def test_the_value_of_a_retry_takes_the_place_of_the_one_before() -> None:
    vault = Vault()
    _put(vault, "j-1", HF_TOKEN="old")
    vault.take_fresh()
    _put(vault, "j-1", HF_TOKEN="new", WANDB_API_KEY="more")
    assert vault.take_gone() == [_hash("HF_TOKEN", "old")]
    assert set(vault.take_fresh().values()) == {"new", "more"}
    _put(vault, "j-1", HF_TOKEN="new", WANDB_API_KEY="more")
    assert vault.take_gone() == [], "what is still needed is not dropped for a moment"


def test_what_ended_before_it_was_kept_outside_is_never_put_there() -> None:
    vault = Vault()
    _put(vault, "j-1", HF_TOKEN="short lived")
    vault.drop("j-1")
    assert vault.take_fresh() == {}


def test_queued_and_running_jobs_have_their_values_again_after_a_restart() -> None:
    world = World(limit=1)
    world.memory = {}
    jobs = [_submit(world, tag) for tag in ("runs", "waits")]
    assert sorted(world.memory.values()) == sorted(TOKEN.values())
    world.crash_broker()
    world.settle()
    assert not world.broker.soft.lacking_credentials
    assert all(world.broker.soft.vault.of(job) == TOKEN for job in jobs)
    assert world.finish_one()
    world.settle()
    (left,) = world.ask(ListJobs()).jobs
    assert (left.job, left.state) == (jobs[1], "running")
    assert world.finish_one()
    world.settle()
    assert world.memory == {}, "nobody needs them any more"


def test_a_restart_drops_what_nobody_needs_and_keeps_nothing_of_what_ended() -> None:
    world = World(limit=1)
    world.memory = {_hash("HF_TOKEN", "left by a sudden end"): "left by a sudden end"}
    _submit(world, "runs")
    waits = _submit(world, "waits", OTHER_TOKEN="only of the second")
    world.crash_broker()
    world.settle()
    assert sorted(world.memory.values()) == sorted([*TOKEN.values(), "only of the second"])
    world.ask(CancelJobs(jobs=(waits,), reason="no"))
    world.settle()
    assert sorted(world.memory.values()) == sorted(TOKEN.values())


def test_one_value_of_two_is_not_enough() -> None:
    world = World(limit=1)
    world.memory = {}
    _submit(world, "runs")
    waits = _submit(world, "waits")
    del world.memory[_hash("HF_TOKEN", "first value")]
    world.crash_broker()
    world.settle()
    assert list(world.broker.soft.lacking_credentials) == [waits]
    (_, told) = world.ask(ListJobs()).jobs
    assert "HF_TOKEN" in told.blockers[0].detail
    assert "WANDB_API_KEY" not in told.blockers[0].detail
