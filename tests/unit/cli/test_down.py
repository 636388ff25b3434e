"""`down` against a real lock holder and a fake client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from praxist_zmq.cli import down
from praxist_zmq.cli.settings import Settings
from praxist_zmq.errors import PraxistError
from praxist_zmq.host.identity import identity_of
from praxist_zmq.host.paths import RunPaths
from praxist_zmq.service.run_directory import prepare
from tests.support.lock_holder import lock_holder


class FakeClient:
    """A fake client whose broker has `running` jobs; each watch ends one."""

    def __init__(self, running: list[str]) -> None:
        self.running = running
        self.asked: list[str] = []

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is open."""

    def call(self, request: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        self.asked.append(request["kind"])
        if request["kind"] == "list_jobs":
            return {"kind": "jobs", "jobs": [{"job": job} for job in self.running]}
        if request["kind"] == "watch_job":
            assert request["job"] == self.running.pop(0)
            return {"kind": "job"}
        return {"kind": "done"}


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    paths = RunPaths.of(tmp_path / "run")
    prepare(paths)
    return paths


@pytest.fixture
def holder(run: RunPaths) -> Iterator[subprocess.Popen[bytes]]:
    with lock_holder(run) as process:
        identity = identity_of(process.pid)
        assert identity is not None
        run.owner_lock.write_text(json.dumps(identity.model_dump()))
        yield process


def call(run: RunPaths, *more: str) -> tuple[str, BaseException | None]:
    settings = Settings(run_dir=str(run.run_dir), output="plain")
    result = CliRunner().invoke(down.command, list(more), obj=settings)
    return result.output, result.exception


def with_jobs(monkeypatch: pytest.MonkeyPatch, *jobs: str) -> FakeClient:
    client = FakeClient(list(jobs))
    monkeypatch.setattr(down, "connect", lambda settings: client)
    return client


def test_nothing_runs_is_success(run: RunPaths) -> None:
    assert call(run) == ("down run  nothing was running\n", None)


def test_ends_the_holder_and_says_what_goes_on(
    run: RunPaths, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_jobs(monkeypatch, "j-1", "j-2")
    output, error = call(run)
    assert (output, error) == ("down run  2 experiments go on: j-1 j-2\n", None)
    assert holder.wait(60) == -15


def test_drain_holds_admission_and_waits_for_each(
    run: RunPaths, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = with_jobs(monkeypatch, "j-1", "j-2")
    output, error = call(run, "--drain")
    assert (output, error) == ("down run  no experiment runs\n", None)
    assert client.asked == [
        "hold_admission",
        "list_jobs",
        "watch_job",
        "list_jobs",
        "watch_job",
        "list_jobs",
        "list_jobs",
    ]
    assert holder.wait(60) == -15


def test_drain_gives_up_when_its_time_is_over(
    run: RunPaths, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = with_jobs(monkeypatch, "j-1")
    monkeypatch.setattr(client, "call", lambda request, timeout_s: {"jobs": [{"job": "j-1"}]})
    _, error = call(run, "--drain", "--timeout", "0.05")
    assert isinstance(error, PraxistError)
    assert error.code == "wait_timeout"
    assert holder.poll() is None


def test_a_broker_that_does_not_answer_keeps_nobody_up(
    run: RunPaths, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Settings) -> FakeClient:
        raise PraxistError("no_scheduler", "no endpoint.json")

    monkeypatch.setattr(down, "connect", refuse)
    output, error = call(run)
    assert error is None
    assert "the broker did not answer" in output
    assert holder.wait(60) == -15


def test_a_lock_file_that_lies_signals_nobody(
    run: RunPaths, holder: subprocess.Popen[bytes]
) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        identity = identity_of(bystander.pid)
        assert identity is not None
        run.owner_lock.write_text(json.dumps(identity.model_dump()))
        _, error = call(run)
        assert isinstance(error, PraxistError)
        assert error.code == "not_yours"
        assert bystander.poll() is None
        assert holder.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
