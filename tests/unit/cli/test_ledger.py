"""`praxist-zmq ledger` on files alone."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from praxist_zmq.cli.ledger import command
from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger import segment
from praxist_zmq.ledger.log import Ledger
from praxist_zmq.protocol import codec
from praxist_zmq.protocol.claims import ClaimReleased
from praxist_zmq.protocol.events import (
    AdmissionClosed,
    AttemptAllocated,
    EnvironmentRecorded,
    JobFinished,
    JobQueued,
    MixedText,
    SecretSpan,
)
from tests.support.lease_world import LeaseWorld
from tests.support.ledgers import contents, started


def queued(number: int, tag: str) -> JobQueued:
    return JobQueued(
        at_ms=1_700_000_000_000,
        job=f"j-{number}",
        job_id=f"{number:x}" * 32,
        identity="0" * 64,
        tag=tag,
        peer="alice",
        generation=1,
        profile="default",
        work_class="ordinary",
        eta_ms=None,
        command=("train", MixedText(parts=("--key=", SecretSpan(variable="API_KEY")))),
        cwd="/work",
        environment_id="1" * 64,
        lease_id=None,
        request_id=None,
        request_digest=None,
        uid=0,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose ledger tells of two jobs."""
    place = tmp_path / "run"
    (place / "resource_scheduler").mkdir(parents=True)
    ledger = started(place / "resource_scheduler" / "ledger")
    events = [
        EnvironmentRecorded(at_ms=1, environment_id="1" * 64, variables={"HOME": "value-of-home"}),
        queued(1, "first"),
        queued(2, "second"),
        AttemptAllocated(
            at_ms=1_700_000_001_500,
            job="j-1",
            attempt="j-1.1",
            device_uuids=("GPU-1",),
            exclusive=True,
            memory_mib=None,
            utilization_pct=None,
        ),
        JobFinished(
            at_ms=1_700_000_002_000,
            job="j-1",
            attempt="j-1.1",
            state="completed",
            exit_code=0,
            signal=None,
            failure_category=None,
            failure_signature=None,
        ),
        AdmissionClosed(at_ms=2, reason="end"),
    ]
    ledger.commit([codec.encode(event) for event in events])
    ledger.commit([b'{"kind":"from_the_future"}'])
    ledger.close()
    return place


def invoke(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.parametrize("job", ["j-1", "tag:first", "11111111"])
def test_story_tells_one_job_in_order(run: Path, job: str) -> None:
    told = invoke("story", job, "--run-dir", run).splitlines()
    assert [line.split()[3] for line in told] == ["job_queued", "attempt_allocated", "job_finished"]
    assert told[0].split()[0] == "2"
    assert datetime.fromtimestamp(1_700_000_000).strftime("%Y-%m-%d %H:%M:%S") in told[0]
    assert '"--key=$API_KEY"' in told[0]
    assert "exit_code=0" in told[2]
    assert "value-of-home" not in "".join(told)


def test_what_a_ledger_holds_steers_no_terminal(run: Path) -> None:
    place = run / "resource_scheduler" / "ledger"
    ledger = started(place.parent / "other")
    tag = "red\x1b[31m\x9b2J\u202egnp.exe"
    ledger.commit([codec.encode(queued(7, tag))])
    ledger.close()
    (place.parent / "ledger").rename(place.parent / "old")
    (place.parent / "other").rename(place)
    (line,) = invoke("story", "j-7", "--run-dir", run).splitlines()
    assert line.isprintable()
    assert "\\u202egnp.exe" in line


def test_story_as_json_with_options_before_the_verb(run: Path) -> None:
    document = json.loads(invoke("--run-dir", run, "--json", "story", "tag:second"))
    assert document["kind"] == "ledger_story"
    assert [event["kind"] for event in document["events"]] == ["job_queued"]
    assert document["events"][0]["sequence"] == 3


def test_story_of_nobody(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PraxistError) as caught:
        invoke("story", "j-9", "--run-dir", run)
    assert caught.value.code == "unknown_job"
    monkeypatch.setenv("PRAXIST_RUN_DIR", str(run))
    assert "job_queued" in invoke("story", "j-2")
    monkeypatch.delenv("PRAXIST_RUN_DIR")
    with pytest.raises(PraxistError) as caught:
        invoke("story", "j-2")
    assert caught.value.code == "no_run"


def test_verify_of_a_run_and_of_a_directory(run: Path) -> None:
    ledger = run / "resource_scheduler" / "ledger"
    assert "broker ledger of run: clean" in invoke("verify", run, code=70)
    document = json.loads(invoke("verify", ledger, "--json", code=70))
    assert document["outcome"] == "clean"
    assert document["segments"][0]["records"] == 7


def test_verify_judges_what_the_records_tell(run: Path, tmp_path: Path) -> None:
    told = invoke("verify", run, code=70)
    assert "history: identity of j-2 already is j-1" in told
    assert "history: record 7 does not decode" in told
    assert "history: j-1 is completed and holds j-1.1" in told
    sound = LeaseWorld(0, 2)
    sound.send("p1", "t1", sound.granted("p1").lease_id, work_class="mature")
    sound.settle()
    ledger = started(tmp_path / "ledger")
    ledger.commit(sound.disk)
    ledger.commit([sound.disk[[b"lease_granted" in body for body in sound.disk].index(True)]])
    ledger.close()
    told = invoke("verify", tmp_path / "ledger", code=70).splitlines()
    assert [line for line in told if line.startswith("history: ")] == [
        f"history: record {len(sound.disk) + 1}: {name} is given before; lease_granted is not "
        "allowed there"
        for name in sound.broker.state.leases.consumed
    ] + [f"history: {name} was granted before" for name in sound.broker.state.leases.consumed]


def test_verify_judges_a_registry_s_ledger(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", "registry", "host", "boot", ballast_bytes=0)
    assert not list(ledger.replay())
    ledger.start()
    gone = ClaimReleased(at_ms=1, run_key="0" * 64, attempt="j-1.1", reason="released")
    ledger.commit([codec.encode(gone)])
    ledger.close()
    told = invoke("verify", tmp_path / "ledger", code=70)
    assert "history: event 1: j-1.1 released without a hold, or twice" in told


def test_damage_is_74_and_a_repair_goes_to_a_copy(run: Path, tmp_path: Path) -> None:
    ledger = run / "resource_scheduler" / "ledger"
    path = segment.path_of(ledger, 1)
    path.write_bytes(path.read_bytes().replace(b"second", b"SECOND"))
    told = invoke("verify", run, code=74)
    assert "damaged" in told
    assert "offset" in told
    told = invoke("repair", run, "--copy", tmp_path / "copy")
    assert "2 records written" in told
    assert "5 later ones left out" in told
    assert len(contents(tmp_path / "copy")) == 2
