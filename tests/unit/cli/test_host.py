"""`host`: who holds what on this host, and who waits for whom."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from praxist_zmq.cli import host
from praxist_zmq.cli.main import run
from praxist_zmq.core.claim_commands import BrokersGone
from praxist_zmq.core.claim_state import Watch
from praxist_zmq.protocol.claims import Bind, Envelope, ViewHost, Want
from praxist_zmq.protocol.codec import encode
from praxist_zmq.protocol.envelope import Json
from tests.support.claim_desk import Desk
from tests.support.claims import claim_lease, exclusive, process, reserve, run_key, run_row
from tests.unit.cli.test_reading import FakeTerminal

from .conftest import Outcome

SIM = "GPU-00000000-0000-4000-8000-{:012x}"
Call = Callable[..., Outcome]
Golden = Callable[[str, str], None]


def busy_host() -> Json:
    """Two runs that hold, one of them a lease; one that waits, one without a scheduler, one of
    another user."""
    desk = Desk(uid=1000)
    for name in ("vision-42", "nlp-7", "tabular-3", "gone-1"):
        desk.register(name, limit=8)
    desk.register("theirs", limit=4, uid=1001)

    def part(pct: float, *devices: int) -> Envelope:
        uuids = tuple(SIM.format(device) for device in devices)
        return Envelope(device_uuids=uuids, exclusive=False, memory_mib=16_000, utilization_pct=pct)

    desk.ask(reserve("vision-42", "j-1.1", part(45.0, 0)))
    desk.ask(reserve("vision-42", "j-2.1", part(45.0, 0)))
    desk.ask(reserve("nlp-7", "j-1.1", part(37.5, 1, 2)))
    desk.ask(reserve("vision-42", "j-3.1", part(45.0, 1)))
    desk.ask(reserve("nlp-7", "j-2.1", exclusive(SIM.format(3))))
    desk.ask(reserve("nlp-7", "j-3.1", exclusive()))
    desk.ask(reserve("gone-1", "j-1.1", exclusive(SIM.format(4))))
    shim = process(950)
    desk.ask(Bind(registration=1, run_key=run_key("gone-1"), epoch=1, attempt="j-1.1", shim=shim))
    desk.fact(BrokersGone((Watch(run_key("gone-1"), None, run_row("gone-1").broker),)))
    desk.ask(claim_lease("vision-42", 7, exclusive(SIM.format(5))), mono_ms=1_000)
    desk.report("tabular-3", Want(slot=True, envelope=exclusive(SIM.format(3))))
    view: Json = json.loads(encode(desk.ask(ViewHost())))
    return view


class FakeClock:
    """Stands still 131.5 s after the start."""

    def mono_ms(self) -> int:
        """That time."""
        return 131_500


@pytest.fixture(autouse=True)
def _shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "view_host", lambda settings: busy_host())
    monkeypatch.setattr(host, "SystemClock", FakeClock)


@pytest.mark.parametrize("columns", [80, 120])
def test_text_on_a_terminal(golden: Golden, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    run(["host"])
    text = terminal.getvalue()
    assert max(len(line) for line in text.splitlines()) <= columns
    golden(f"host_{columns}", text)


def test_text_in_a_pipe(golden: Golden, call: Call) -> None:
    golden("host_pipe", call("host").out)


def test_the_document_says_who_holds_what_and_who_waits(call: Call) -> None:
    document = call("host", "--json").document
    assert set(document) == {
        "format_version", "kind", "runs", "limit", "allocations", "claims", "down_runs",
        "devices_elsewhere",
    }  # fmt: skip
    assert (document["limit"], len(document["allocations"])) == (8, 7)
    assert document["claims"] == [
        {
            "run_key": run_key("vision-42"),
            "run_id": "vision-42",
            "lease_id": "supply-7-0000000000000007",
            "device_uuids": [SIM.format(5)],
            "exclusive": True,
            "memory_mib": 1024,
            "utilization_pct": 50.0,
            "age_seconds": 130.5,
        }
    ]
    (gone,) = document["down_runs"]
    assert (gone["run_id"], gone["run_dir"], gone["claims"]) == ("gone-1", "/runs/gone-1", 1)
    assert [device["uuid"] for device in gone["devices"]] == [SIM.format(4)]
    runs = {run["run_id"]: run for run in document["runs"]}
    assert set(runs) == {"vision-42", "nlp-7", "tabular-3", "theirs"}
    keys = {"run_id", "run_dir", "user", "pid", "running", "queued", "limit", "claims"}
    assert all(set(run) >= keys for run in runs.values())
    assert (runs["vision-42"]["claims"], runs["nlp-7"]["claims"]) == (3, 3)
    assert runs["vision-42"]["devices"][0] == {
        "uuid": SIM.format(0),
        "allocations": 2,
        "exclusive": False,
        "declared_utilization_pct": 90.0,
        "declared_memory_mib": 32_000,
    }
    assert runs["tabular-3"]["waits_for_slot"]
    assert runs["tabular-3"]["waits_for_gpu_uuids"] == [SIM.format(3)]
    assert (runs["theirs"]["uid"], runs["theirs"]["run_dir"]) == (1001, None)


def test_more_leases_than_fit_are_counted(
    call: Call, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    desk = Desk()
    desk.register("vision-42", limit=8)
    for number in range(6):
        desk.ask(claim_lease("vision-42", number, exclusive()), mono_ms=120_000)
    view: Json = json.loads(encode(desk.ask(ViewHost())))
    monkeypatch.setattr(host, "view_host", lambda settings: view)
    golden("host_leases", call("host", "-o", "table").out)


def test_a_registry_that_knows_no_leases_shows_none(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {key: rows for key, rows in busy_host().items() if key != "leases"}
    monkeypatch.setattr(host, "view_host", lambda settings: old)
    assert call("host", "--json").document["claims"] == []


def test_no_run_has_no_limit(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: Json = json.loads(encode(Desk().ask(ViewHost())))
    monkeypatch.setattr(host, "view_host", lambda settings: nobody)
    assert call("host", "--json").document["limit"] is None
    assert call("host", "-o", "table").out.startswith("0 runs   0 allocations")


def test_a_device_that_is_promised_twice_is_told(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that lost its ledger gave it away, and takes what runs there already beside it."""
    desk = Desk(uid=1000)
    for name in ("vision-42", "nlp-7"):
        desk.register(name, limit=8)
    device = exclusive(SIM.format(0))
    desk.ask(reserve("nlp-7", "j-4.1", device))
    again = reserve("vision-42", "j-1.1", device, seen=())
    desk.ask(again.model_copy(update={"shim": process(950)}))
    view = json.loads(encode(desk.ask(ViewHost())))
    monkeypatch.setattr(host, "view_host", lambda settings: view)
    monkeypatch.setattr(sys, "stdout", FakeTerminal())
    run(["host"])
    told = "GPU 0 is promised twice: j-1.1 of vision-42 and j-4.1 of nlp-7"
    assert told in sys.stdout.getvalue()  # type: ignore[attr-defined]
    monkeypatch.undo()
    monkeypatch.setattr(host, "view_host", lambda settings: view)
    found = json.loads(call("host", "--json").out)["allocations"]
    assert [row["overcommitted"] for row in found] == [False, True]
