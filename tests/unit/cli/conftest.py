"""The command line against a fake scheduler, in-process, with its streams captured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.cli.main import run

from .fake_scheduler import FakeScheduler

NOW_MS = 1795955700_000  # 2026-11-29T12:35:00Z


@dataclass
class Outcome:
    """What a call left behind."""

    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        (line,) = self.out.splitlines()
        content: dict[str, Any] = json.loads(line)
        return content


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("PRAXIST_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PRAXIST_ZMQ_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("PRAXIST_ZMQ_HOST_DIR", str(tmp_path / "host"))
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run's directory, as it is when nothing serves the run."""
    directory = tmp_path / "vision-42"
    (directory / "resource_scheduler").mkdir(parents=True)
    return directory


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> FakeScheduler:
    """A fake scheduler in the place of the client."""
    fake = FakeScheduler()
    monkeypatch.setattr("praxist_zmq.client.Client", fake.client)
    monkeypatch.setattr("praxist_zmq.cli.launching.STARTS_AT_ONCE_S", 0.02)
    monkeypatch.setattr("praxist_zmq.cli.waiting._CLOCK.wall_ms", lambda: NOW_MS, raising=False)
    return fake


@pytest.fixture
def call(run_dir: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run one command line in the run directory."""

    def _call(*arguments: str) -> Outcome:
        exit_code = run(["--run-dir", str(run_dir), *arguments])
        streams = capfd.readouterr()
        return Outcome(exit_code, streams.out, streams.err)

    return _call


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with a file under `golden/`."""
    folder = Path(__file__).parent / "golden"

    def _golden(name: str, text: str) -> None:
        file = folder / f"{name}.txt"
        if not file.exists():
            file.write_text(text, encoding="utf-8")
            pytest.fail(f"{file} was missing; it is written now: read it")
        assert text == file.read_text(encoding="utf-8")

    return _golden
