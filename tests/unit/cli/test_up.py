"""The options of `up`, its ready line, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from praxist_zmq.cli import up
from praxist_zmq.cli.settings import Settings
from praxist_zmq.errors import PraxistError
from praxist_zmq.service.child_config import SimulatedDevices
from praxist_zmq.service.run_start import Announce, RunRequest

FACTS: dict[str, Any] = {
    "run_id": "a\x1b[31m",
    "run_dir": "/runs/a",
    "pid": 12,
    "endpoint": "ipc:///s/front",
    "simulated": True,
    "devices": {"simulated": {"gpus": 2, "memory_gib": 80.0}, "remembered": False},
    "contract": {
        "source": "file",
        "file": "/c\x1b.yaml",
        "profiles": ["cpu", "gpu"],
        "profiles_count": 9,
        "max_concurrent_experiments": 4,
        "max_parallel_runs_per_peer": None,
    },
    "warnings": ["profiles.x: became 3"],
}
DEFAULT_CONTRACT = {
    "source": "default",
    "file": None,
    "profiles": ["default"],
    "profiles_count": 1,
    "max_concurrent_experiments": 1,
    "max_parallel_runs_per_peer": None,
}


class FakeServe:
    """In the place of `serve_run`: remembers the request and is ready at once."""

    def __init__(self) -> None:
        self.request: RunRequest | None = None
        self.facts = FACTS
        self.stopped = False

    def __call__(self, request: RunRequest, announce: Announce) -> bool:
        self.request = request
        announce(self.facts)
        return self.stopped


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> FakeServe:
    fake = FakeServe()
    monkeypatch.setattr(up, "serve_run", fake)
    monkeypatch.delenv("PRAXIST_RUN_DIR", raising=False)
    return fake


def call(run_dir: Path | None, *more: str, output: str = "plain") -> Any:
    settings = Settings(run_dir=str(run_dir) if run_dir else None, output=output)
    return CliRunner().invoke(up.command, list(more), obj=settings)


def test_the_options_reach_the_request(serve: FakeServe, tmp_path: Path) -> None:
    result = call(
        tmp_path,
        *("--sim", "gpus=2,memory=16.5", "--generation", "3"),
        *("--cohort-size", "8", "--deadline", "1h30m", "--config", str(tmp_path / "task.yaml")),
    )
    assert result.exception is None, result.output
    request = serve.request
    assert request is not None
    assert request.run.run_dir == tmp_path
    assert isinstance(request.sim, SimulatedDevices)
    assert (request.sim.gpus, request.sim.memory_gib) == (2, 16.5)
    assert (request.generation, request.cohort_size, request.deadline_seconds) == (3, 8, 5400.0)
    assert request.contract == tmp_path / "task.yaml"


def test_the_ready_line_is_safe_for_a_terminal(
    serve: FakeServe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call(tmp_path)
    captured = capfd.readouterr()
    assert captured.out.startswith("ready a")
    assert captured.out.endswith(" pid 12 endpoint ipc:///s/front  SIMULATED\n")
    assert "\x1b" not in captured.out
    assert "became 3" in captured.err
    assert "\x1b" not in captured.err


def test_real_devices_are_asked_for_by_none(serve: FakeServe, tmp_path: Path) -> None:
    assert call(tmp_path, "--sim", "none").exception is None
    assert serve.request is not None
    assert serve.request.sim == "none"
    assert call(tmp_path).exception is None
    assert serve.request.sim is None


def test_the_cap_of_a_peer_is_asked_for_by_option_or_variable(
    serve: FakeServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*options: str) -> object:
        result = call(tmp_path, *options)
        assert result.exception is None, result.output
        assert serve.request is not None
        return serve.request.max_per_peer

    monkeypatch.delenv(up.PEER_CAP_VARIABLE, raising=False)
    assert asked() is None
    assert asked("--max-per-peer", "2") == 2
    assert asked("--max-per-peer", "none") == "none"
    monkeypatch.setenv(up.PEER_CAP_VARIABLE, "3")
    assert asked() == 3
    assert asked("--max-per-peer", "2") == 2, "the option wins"
    monkeypatch.setenv(up.PEER_CAP_VARIABLE, "")
    assert asked() is None
    for wrong in ("0", "x", "1.5"):
        monkeypatch.setenv(up.PEER_CAP_VARIABLE, wrong)
        result = call(tmp_path)
        assert result.exit_code == 2
        assert up.PEER_CAP_VARIABLE in result.output


def test_an_unsatisfiable_default_profile_is_allowed_by_name_only(
    serve: FakeServe, tmp_path: Path
) -> None:
    for options, expected in (((), False), (("--allow-unsatisfiable",), True)):
        assert call(tmp_path, *options).exception is None
        assert serve.request is not None
        assert serve.request.allow_unsatisfiable is expected


def test_says_which_contract_is_in_force(
    serve: FakeServe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def told(**contract: Any) -> str:
        serve.facts = {**FACTS, "contract": {**FACTS["contract"], **contract}}
        call(tmp_path)
        return capfd.readouterr().err

    allowed = "profiles cpu gpu and 7 more, at most 4 at once\n"
    assert f"contract  /c\\x1b.yaml: {allowed}" in told()
    assert f"contract  kept from an earlier start: {allowed}" in told(source="kept", file=None)
    assert "at most 4 at once, 2 of one peer\n" in told(max_parallel_runs_per_peer=2)
    default = told(**DEFAULT_CONTRACT)
    for words in ("none was given", "one CPU profile `default`", "GPUs unused", "conf/contract"):
        assert words in default


def test_says_that_remembered_devices_are_simulated(
    serve: FakeServe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call(tmp_path)
    assert "devices" not in capfd.readouterr().err
    serve.facts = {**FACTS, "devices": {**FACTS["devices"], "remembered": True}}
    call(tmp_path)
    assert "devices  2 simulated GPUs of 80 GiB, as at the last start;" in capfd.readouterr().err
    CliRunner().invoke(up.command, [], obj=Settings(run_dir=str(tmp_path), quiet=True))
    assert "devices" not in capfd.readouterr().err


def test_the_last_line_tells_a_stop_from_a_down(serve: FakeServe, tmp_path: Path) -> None:
    assert call(tmp_path).output.startswith("down  experiments that still run go on")
    serve.stopped = True
    assert call(tmp_path).output.startswith("stopped  the run's experiments were ended")


def test_the_ready_document(
    serve: FakeServe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call(tmp_path, output="json")
    assert json.loads(capfd.readouterr().out) == {
        "format_version": "1.0",
        "kind": "up",
        "state": "ready",
        **FACTS,
    }


@pytest.mark.parametrize(
    "options",
    [
        ("--sim", "gpus=-1"),
        ("--sim", "gpus=1.5"),
        ("--sim", "gpus=2000"),
        ("--sim", "memory=80"),
        ("--sim", "gpus=1,gpus=2"),
        ("--sim", "gpus=1,memory=0"),
        ("--sim", "gpus=1,memory=nan"),
        ("--sim", ""),
        ("--generation", "-1"),
        ("--cohort-size", "0"),
        ("--deadline", "soon"),
        ("--max-per-peer", "0"),
        ("--max-per-peer", "-1"),
        ("--max-per-peer", "1.5"),
        ("--max-per-peer", "many"),
        ("--max-per-peer", "10000000"),
        ("--max-per-peer", "٣"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    serve: FakeServe, tmp_path: Path, options: tuple[str, ...]
) -> None:
    assert call(tmp_path, *options).exit_code == 2
    assert serve.request is None


def test_up_never_guesses_the_run(serve: FakeServe, monkeypatch: pytest.MonkeyPatch) -> None:
    error = call(None).exception
    assert isinstance(error, PraxistError)
    assert error.code == "no_run"
    monkeypatch.setenv("PRAXIST_RUN_DIR", "/runs/b")
    assert call(None).exception is None
    assert serve.request is not None
    assert str(serve.request.run.run_dir) == "/runs/b"
