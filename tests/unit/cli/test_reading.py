"""The verbs that only read: their text at 80 and 120 columns, in a pipe, and their documents."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.cli import documents
from praxist_zmq.cli.main import run
from praxist_zmq.errors import PraxistError

from .conftest import Outcome
from .fake_scheduler import COMPLETED, FAILED, RUNNING, FakeScheduler, view

Call = Callable[..., Outcome]
Golden = Callable[[str, str], None]
SIM = "GPU-00000000-0000-4000-8000-00000000000{}"
BLOCKERS = (
    {
        "code": "gpu_compute_short",
        "detail": "needs 45, best is GPU 1 with 17 free (short by 28)",
        "need": 45.0,
        "free": 17.0,
        "limit": 100.0,
        "unit": "percent_points",
    },
    {
        "code": "peer_cap",
        "detail": "p2 runs 2 of 2",
        "need": 1.0,
        "free": 0.0,
        "limit": 2.0,
        "unit": "jobs",
    },
)
JOB_KEYS = {
    "job", "job_id", "run_id", "generation", "tag", "peer", "profile", "work_class", "state",
    "attempts", "attempt", "pid", "pgid", "gpu_uuids", "exit_code", "signal", "submitted_at",
    "started_at", "ended_at", "eta_seconds", "lease_id", "blockers", "queue_blocked_reason",
    "reject_code", "failure_category", "failure_signature", "log_path", "binding_status",
}  # fmt: skip
STATUS_KEYS = {
    "run_id", "run_dir", "health", "warnings", "processes", "jobs", "jobs_total",
    "concurrency_limit", "host", "accelerator_probe", "queue_blocked_reasons", "running_activity",
    "generation", "resource_supply", "simulated",
}  # fmt: skip
DEVICE_KEYS = {
    "index", "uuid", "name", "state", "memory_total_mib", "memory_used_mib", "utilization_pct",
    "declared_memory_mib", "declared_utilization_pct", "external_memory_mib",
    "external_utilization_pct", "exclusive", "jobs", "runs", "other_runs",
    "free_memory_mib", "free_utilization_pct", "attribution", "external", "reason",
    "held_elsewhere",
}  # fmt: skip


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Yes."""
        return True


def jobs_reply() -> dict[str, Any]:
    """Four jobs in the order of a queue."""
    jobs = [
        view(**RUNNING, gpu_uuids=(SIM.format(0),), eta_seconds=2400.0, left_s=360.0),
        view(
            job="j-2",
            tag="resnet-wd/protoA/seed5/full/with/a/very/long/name",
            **{**RUNNING, "attempt": "j-2.1"},
        ),
        view(job="j-3", peer="gen3_peer2", work_class="mature", blockers=BLOCKERS),
        view(job="j-4", tag="[red]\x1b[2Jüber🙂", **FAILED),
    ]
    counts = {"running": 2, "queued": 1, "failed": 1}
    return {"kind": "jobs", "jobs": jobs, "total": 4, "concurrency_limit": 5, "counts": counts}


def devices_reply() -> dict[str, Any]:
    """Two simulated devices."""
    first = {
        "index": 0,
        "uuid": SIM.format(0),
        "name": "Simulated",
        "state": "available",
        "memory_total_mib": 81920,
        "memory_used_mib": 41370,
        "utilization_pct": 71.0,
        "declared_memory_mib": 40960,
        "declared_utilization_pct": 90.0,
        "external_memory_mib": 410,
        "external_utilization_pct": 0.0,
        "exclusive": False,
        "jobs": ["j-1", "j-2"],
        "runs": ["vision-42"],
        "other_runs": [],
        "free_memory_mib": 36454,
        "free_utilization_pct": 10.0,
        "attribution": "complete",
        "external": ["pid 88211 python, user dana, 0 %, 410 MiB"],
        "reason": None,
    }
    second = {
        **first, "index": 1, "uuid": SIM.format(1), "utilization_pct": None,
        "external_utilization_pct": None, "external_memory_mib": None, "jobs": [],
        "free_memory_mib": None, "free_utilization_pct": None, "attribution": "unavailable",
        "external": [], "runs": ["nlp-7"], "other_runs": [{"run_id": "nlp-7", "down": True}],
    }  # fmt: skip
    return {"kind": "devices", "devices": [first, second], "simulated": True}


def status_reply() -> dict[str, Any]:
    """A healthy run."""
    return {
        "kind": "status",
        "run_id": "vision-42",
        "run_dir": "/runs/vision-42",
        "health": "healthy",
        "warnings": [],
        "processes": [
            {"name": "supervisor", "pid": 40211, "up_s": 5040.0, "restarts": 0},
            {"name": "broker", "pid": 40215, "up_s": 120.0, "restarts": 2},
        ],
        "jobs": {"running": 4, "queued": 2, "completed": 31, "failed": 3},
        "jobs_total": 40,
        "concurrency_limit": 5,
        "host": {"cpu_pct": 61.2, "memory_pct": 48.0, "io_pct": None, "age_s": 0.8},
        "accelerator_probe": {"state": "available", "reason": None},
        "queue_blocked_reasons": {"per_peer_capacity": 2},
        "running_activity": {
            "lifecycle_running": 4,
            "by_resource_phase": {"gpu_compute_active": 3, "non_gpu_allocation": 1},
        },
        "limits": {
            "range": [1, 8],
            "before": 4,
            "reason": "cpu 58 <= 65, memory 48, 2 queued",
            "changed_at": None,
            "high_pct": {"cpu": 92.0, "memory": 95.0, "io": 35.0},
        },
        "generation": {"number": 3, "state": "open", "deadline": None, "cohort_size": None},
        "resource_supply": {"leases": [], "idle_waiters": 0, "stats": {}, "maturity": None},
        "simulated": True,
        "epoch": 7,
        "sequence": 4302,
        "ledger_bytes": 2_100_000,
        "counters": {},
        "at": "2026-11-29T12:34:59.000Z",
    }


def explanation() -> dict[str, Any]:
    """Why j-3 waits."""
    return {
        "kind": "explanation",
        "job": view(job="j-3", blockers=BLOCKERS),
        "verdict": "WAITS: no GPU has enough compute left.",
        "position": 2,
        "gates": [
            {"name": "run limit", "state": "ok", "detail": "4 of 5 running"},
            {"name": "GPU placement", "state": "blocked", "detail": "0 of 2 devices fit"},
        ],
        "blockers": list(BLOCKERS),
        "options": ["wait: praxist-zmq wait j-3", "withdraw it: praxist-zmq cancel j-3"],
        "devices": [verdict_on(0, 90.0, 0.0, 10.0), verdict_on(1, 45.0, 38.0, 17.0)],
        "would_start": [
            {
                "event": "j-1 ends on GPU 0",
                "job": "j-1",
                "after": [],
                "likely_s": 660.0,
                "by_s": 1320.0,
            },
            {
                "event": "external load on GPU 1 falls by 28 (pid 88211 python, user dana)",
                "job": None,
                "after": [],
                "likely_s": None,
                "by_s": None,
            },
        ],
        "start_estimate": {"likely_s": 660.0, "by_s": 1320.0},
        "snapshot": {
            "sample_age_s": 0.8,
            "attribution": "complete",
            "eta_endings": 9,
            "registry": "answers",
            "limit": 5,
            "limit_before": 4,
            "limit_reason": "cpu 58 <= 65",
            "simulated": True,
        },
    }


def verdict_on(index: int, declared: float, external: float, free: float) -> dict[str, Any]:
    """A row of the device table."""
    return {
        "index": index,
        "uuid": SIM.format(index),
        "fits": False,
        "verdict": f"compute short by {45 - free:g}",
        "need_memory_mib": 20480,
        "need_utilization_pct": 45.0,
        "memory_total_mib": 81920,
        "memory_limit_mib": 77824,
        "declared_memory_mib": 40960,
        "declared_utilization_pct": declared,
        "external_memory_mib": 410,
        "external_utilization_pct": external,
        "free_memory_mib": 36454,
        "free_utilization_pct": free,
        "jobs": ["j-1"],
        "external": [],
    }


REPLIES = {
    "queue": ("list_jobs", jobs_reply, ("queue", "-a")),
    "gpus": ("get_devices", devices_reply, ("gpus",)),
    "status": ("get_status", status_reply, ("status",)),
    "explain": ("explain_job", explanation, ("explain", "j-3")),
}


def answer_all(scheduler: FakeScheduler) -> None:
    """Let the scheduler know all four replies."""
    for kind, reply, _ in REPLIES.values():
        scheduler.answers[kind] = reply()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", sorted(REPLIES))
def test_text_on_a_terminal(
    scheduler: FakeScheduler,
    golden: Golden,
    monkeypatch: pytest.MonkeyPatch,
    run_dir: Path,
    name: str,
    columns: int,
) -> None:
    _, _, arguments = REPLIES[name]
    answer_all(scheduler)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    run(["--run-dir", str(run_dir), *arguments])
    text = terminal.getvalue()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert max(len(line) for line in text.splitlines()) <= columns
    golden(f"{name}_{columns}", text)


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_text_in_a_pipe(scheduler: FakeScheduler, golden: Golden, call: Call, name: str) -> None:
    _, _, arguments = REPLIES[name]
    answer_all(scheduler)
    outcome = call(*arguments)
    assert outcome.exit_code == 0
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", outcome.out)
    golden(f"{name}_pipe", outcome.out)


def test_colour_is_only_a_second_sign(
    scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, run_dir: Path
) -> None:
    scheduler.answers["list_jobs"] = jobs_reply()
    texts = []
    for color in ("always", "never"):
        terminal = FakeTerminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        run(["--run-dir", str(run_dir), "--color", color, "queue", "-a"])
        texts.append(terminal.getvalue())
    assert "\x1b[" in texts[0]
    assert re.sub(r"\x1b\[[0-9;]*m", "", texts[0]).split() == texts[1].split()


def test_show_is_a_page_of_what_is_known(
    scheduler: FakeScheduler, golden: Golden, call: Call
) -> None:
    scheduler.tell(view(**FAILED, gpu_uuids=(SIM.format(3),)))
    golden("show_failed", call("show", "j-1").out)
    scheduler.tell(view(blockers=BLOCKERS))
    golden("show_queued", call("show", "j-1").out)


def test_documents_have_every_key_of_the_interface(scheduler: FakeScheduler, call: Call) -> None:
    answer_all(scheduler)
    scheduler.tell(view())
    job = call("show", "j-1", "--json").document
    assert job["kind"] == "job"
    assert set(job) >= JOB_KEYS | {"format_version"}
    queue = call("queue", "--json").document
    assert all(set(item) >= JOB_KEYS for item in queue["jobs"])
    assert queue["kind"] == "queue"
    status = call("status", "--json").document
    assert set(status) >= STATUS_KEYS | {"format_version", "kind"}
    gpus = call("gpus", "--json").document
    assert all(set(device) == DEVICE_KEYS for device in gpus["devices"])
    explained = call("explain", "j-3", "--json").document
    assert set(explained["blockers"][0]) == {"code", "detail", "need", "free", "limit", "unit"}


def test_json_lines_and_names(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["list_jobs"] = jobs_reply()
    lines = call("-o", "jsonl", "queue").out.splitlines()
    assert [json.loads(line)["job"] for line in lines] == ["j-1", "j-2", "j-3", "j-4"]
    assert call("-q", "queue").out.split() == ["j-1", "j-2", "j-3", "j-4"]
    assert call("ps", "-o", "name").out.split() == ["j-1", "j-2", "j-3", "j-4"]


@pytest.mark.parametrize(("health", "code"), [("healthy", 0), ("troubled", 1), ("down", 3)])
def test_status_exits_by_health(
    scheduler: FakeScheduler, call: Call, health: str, code: int
) -> None:
    answer_all(scheduler)
    scheduler.answers["get_status"] = {**status_reply(), "health": health}
    assert call("status").exit_code == code
    assert call("status", "--json").exit_code == code


def test_what_keeps_the_run_from_getting_anywhere_is_the_first_line(
    scheduler: FakeScheduler, call: Call
) -> None:
    answer_all(scheduler)
    alarms = ["NO PROGRESS  generation 3 open 14m, \x1b[2J", "PROBE UNKNOWN for 64 s"]
    troubled = {**status_reply(), "health": "troubled", "alarms": alarms}
    scheduler.answers["get_status"] = {**troubled, "warnings": [*alarms, "another"]}
    lines = call("status").out.splitlines()
    assert lines[0] == "NO PROGRESS  generation 3 open 14m, \\x1b[2J"
    assert lines[1] == alarms[1]
    assert lines[2].startswith("* ")
    assert lines[-1].split() == ["Warnings", "another"]
    assert call("--color", "always", "status").out.startswith("\x1b[31;1mNO PROGRESS")
    scheduler.answers["get_status"] = {**troubled, "warnings": alarms}
    assert call("status").out.splitlines()[-1].split() == ["Warnings", "no", "other"]
    document = json.loads(call("status", "--json").out)
    assert document["alarms"] == document["warnings"] == alarms


def test_status_shows_the_cap_of_a_peer(scheduler: FakeScheduler, call: Call) -> None:
    answer_all(scheduler)
    scheduler.answers["get_status"] = {**status_reply(), "max_parallel_runs_per_peer": 2}
    line = next(line for line in call("status").out.splitlines() if line.startswith("   Limit"))
    assert "5 at once" in line
    assert ", 2 of one peer" in line


def test_status_of_a_run_that_nobody_serves_is_read_from_its_file(
    scheduler: FakeScheduler, call: Call, run_dir: Path
) -> None:
    scheduler.refuse_to_connect = PraxistError("no_scheduler", "its owner is gone")
    never = call("status", "--json")
    assert never.exit_code == 3
    assert set(never.document) >= STATUS_KEYS
    assert never.document["health"] == "down"
    file = run_dir / "resource_scheduler" / "status.json"
    file.write_text(json.dumps(status_reply()))
    known = call("status", "--json")
    assert known.exit_code == 3
    assert known.document["jobs"] == {"running": 4, "queued": 2, "completed": 31, "failed": 3}
    assert known.document["processes"] == []
    assert "its owner is gone" in call("status").out
    for content in ("{", "[" * 100_000, "null"):
        file.write_text(content)
        assert call("status").exit_code == 3
    file.unlink()
    os.mkfifo(file)
    assert call("status").exit_code == 3


def test_status_of_a_run_that_nobody_serves_tells_what_is_waited_for(
    scheduler: FakeScheduler, call: Call, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.refuse_to_connect = PraxistError("scheduler_restarting", "no connection")
    left = run_dir / "resource_scheduler" / "last_failure.json"
    left.write_text(
        '{"code": "no_space", "detail": "broker: a segment", "at": "2026-11-29T12:00:00Z"}'
    )
    told = call("status", "--json").document["warnings"]
    assert (
        told[-1] == "last failure, 2026-11-29 12:00:00: the ledger has no room: broker: a segment"
    )
    for content in ("{", "[]", '{"code": 1}'):
        left.write_text(content)
        assert "last_failure.json is unreadable" in call("status").out
    usage = shutil.disk_usage(run_dir)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert "has 1.0 MiB free" in call("status").out


def test_a_refusal_is_text_or_an_error_document(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["show_job"] = {
        "kind": "refusal", "code": "unknown_job", "detail": "no job j-9", "help": [], "job": None,
    }  # fmt: skip
    outcome = call("show", "j-9")
    assert outcome.exit_code == 65
    assert outcome.err.splitlines()[0] == "rejected  no job j-9"
    document = call("show", "j-9", "--json").document
    assert set(document) == {
        "format_version", "kind", "code", "title", "detail", "help", "retryable", "exit_code",
    }  # fmt: skip
    assert document["kind"] == "error"


def test_events_page_and_filter(scheduler: FakeScheduler, call: Call) -> None:
    events = [
        {
            "sequence": number,
            "at": f"2026-11-29T12:3{number}:00.000Z",
            "type": "job_queued",
            "job": "j-1",
            "attempt": None,
            "text": "j-1 queued by \x1b[31mp1",
        }
        for number in (1, 4)
    ]
    scheduler.answers["read_events"] = {
        "kind": "events", "events": events, "epoch": 1, "last_sequence": 4, "first_sequence": 1,
    }  # fmt: skip
    lines = call("events").out.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("j-1 queued by \\x1b[31mp1")
    assert len(call("events", "--since", "2m").out.splitlines()) == 1
    assert len(call("events", "--type", "job_*").out.splitlines()) == 2
    assert len(call("events", "-n", "1", "--type", "job_queued").out.splitlines()) == 1
    assert call("events", "--type", "lease_*").out == ""
    slip = call("events", "--type", "job_finishd")
    assert slip.exit_code == 2
    assert "'job_finishd' is no type; did you mean `job_finished`?" in slip.err
    first, *rest = [json.loads(line) for line in call("events", "-o", "jsonl").out.splitlines()]
    assert first["type"] == "version"
    assert [event["sequence"] for event in rest] == [1, 4]
    scheduler.event_lines = events


def test_completed_view_reads_as_done(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.tell(view(**COMPLETED))
    assert "completed, exit 0" in call("show", "last").out


def test_fields_are_the_names_of_the_document(scheduler: FakeScheduler, call: Call) -> None:
    answer_all(scheduler)
    scheduler.answers["list_jobs"] = jobs_reply()
    out = call("queue", "--fields", "job,state,gpu_uuids,exit_code").out.splitlines()
    assert out[:2] == ["JOB\tSTATE\tGPU_UUIDS\tEXIT_CODE", f"j-1\trunning\t{SIM.format(0)}\t"]
    document = call("queue", "--fields", "tag,job", "--json").document
    assert [list(job) for job in document["jobs"]] == [["tag", "job"]] * 4
    assert call("queue", "--fields", "help").out.split() == list(documents.JOB_KEYS)
    assert "did you mean `state`?" in call("queue", "--fields", "stat").err
    assert call("queue", "--fields", ",").exit_code == 2
    out = call("gpus", "--fields", "index,jobs,other_runs").out.splitlines()
    assert out[1:] == ["0\tj-1,j-2\t", '1\t\t[{"run_id":"nlp-7","down":true}]']
    (first, _) = call("gpus", "--fields", "index,exclusive", "--json").document["devices"]
    assert first == {"index": 0, "exclusive": False}


def test_jobs_are_chosen_by_class_and_age_and_sorted(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["list_jobs"] = jobs_reply()
    assert call("-q", "queue", "--class", "mature").out.split() == ["j-3"]
    assert call("-q", "queue", "--sort", "tag").out.split()[0] == "j-4"
    assert call("-q", "queue", "--since", "1s").out.split() == []
    assert len(call("-q", "queue", "--since", "8000h").out.split()) == 4


@pytest.mark.parametrize(
    ("fields", "state", "where"),
    [
        (
            {**FAILED, "state": "cancelled", "failure_signature": "superseded"},
            "cancelled", "exit 3: superseded",
        ),
        (
            {**FAILED, "state": "cancelled", "failure_signature": "cancelled"},
            "cancelled", "exit 3",
        ),
        (
            {"state": "cancelled", "reject_code": "cancelled", "failure_signature": "cancelled"},
            "cancelled", "before it started",
        ),
        (
            {"state": "cancelled", "reject_code": "cancelled", "failure_signature": "not now"},
            "cancelled", "before it started: not now",
        ),
        (
            {"state": "rejected", "reject_code": "generation_closing", "failure_signature": "x"},
            "rejected", "x",
        ),
    ],
)  # fmt: skip
def test_what_somebody_ended_is_called_cancelled(
    scheduler: FakeScheduler, call: Call, fields: dict[str, Any], state: str, where: str
) -> None:
    job = view(**fields)
    scheduler.answers["list_jobs"] = {**jobs_reply(), "jobs": [job]}
    cells = call("queue", "-a").out.splitlines()[1].split("\t")
    assert (cells[1], cells[-1]) == (state, where)
    (told,) = call("queue", "-a", "--json").document["jobs"]
    assert told["state"] == fields["state"] == state
    call("queue", "--state", "cancelled", "-o", "name")
    request = scheduler.requests[-1]
    assert (request["states"], request["include_terminal"]) == (["cancelled"], True)


def test_nothing_is_known_to_be_free_on_a_lost_device(scheduler: FakeScheduler, call: Call) -> None:
    reply = devices_reply()
    reply["devices"][0] |= {"state": "lost", "exclusive": True}
    scheduler.answers["get_devices"] = reply
    head, lost, _ = (line.split("\t") for line in call("gpus").out.splitlines())
    row = dict(zip(head, lost, strict=True))
    assert (row["STATE"], row["FREE"], row["MEM FREE"]) == ("lost", "?", "?")
