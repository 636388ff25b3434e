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
from praxist_zmq.service.run_start import Announce, RunRequest

FACTS: dict[str, Any] = {
    "run_id": "a\x1b[31m",
    "run_dir": "/runs/a",
    "pid": 12,
    "endpoint": "ipc:///s/front",
    "simulated": True,
    "warnings": ["profiles.x: became 3"],
}


class FakeServe:
    """In the place of `serve_run`: remembers the request and is ready at once."""

    def __init__(self) -> None:
        self.request: RunRequest | None = None

    def __call__(self, request: RunRequest, announce: Announce) -> None:
        self.request = request
        announce(FACTS)


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
    assert request.sim is not None
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
