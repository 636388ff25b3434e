"""`wait`, `logs`, `cancel`, `retry`, `stop`, `sim`."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from praxist_zmq.cli import sim
from praxist_zmq.errors import PraxistError

from .conftest import Outcome
from .fake_scheduler import COMPLETED, FAILED, RUNNING, FakeScheduler, submitted, view
from .test_reading import devices_reply

Call = Callable[..., Outcome]


def test_wait_on_one_job_exits_with_its_code(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.tell(view(), view(**RUNNING), view(**FAILED))
    outcome = call("wait", "j-1")
    assert outcome.exit_code == 3
    told = [line.split(" ", 2)[2] for line in outcome.out.splitlines()]
    assert told == [
        "started j-1 on cpu (waited 5.0s)",
        "failed j-1 exit 3 after 31m02s (waited 5.0s): ValueError: fold 5 has no positive samples",
    ]


def test_wait_on_an_ended_job_returns_at_once(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.tell(view(**COMPLETED))
    assert call("wait", "last").exit_code == 0


def test_wait_gives_up_with_124(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.tell(view())
    outcome = call("wait", "j-1", "--timeout", "0.2")
    assert outcome.exit_code == 124
    assert outcome.err.splitlines() == [
        "timeout  the waiting time is over: j-1 is queued and goes on",
        "  help  `praxist-zmq wait j-1` waits on",
    ]


def test_wait_is_interrupted_with_130(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.tell(view())
    scheduler.interrupt_on_watch = True
    assert call("wait", "j-1").exit_code == 130


def _event(job: str) -> dict[str, object]:
    return {
        "sequence": 9, "at": "2026-11-29T12:00:00.000Z", "type": "x", "job": job,
        "attempt": None, "text": "x",
    }  # fmt: skip


def _two(scheduler: FakeScheduler, second: dict[str, object]) -> None:
    scheduler.answers["read_events"] = {
        "kind": "events", "events": [], "epoch": 1, "last_sequence": 8, "first_sequence": 1,
    }  # fmt: skip
    scheduler.tell(view(), view(**COMPLETED))
    scheduler.tell(view(job="j-2"), view(job="j-2", **second))


@pytest.mark.parametrize(("second", "code"), [(COMPLETED, 0), (FAILED, 1)])
def test_wait_on_several_jobs(
    scheduler: FakeScheduler, call: Call, second: dict[str, object], code: int
) -> None:
    _two(scheduler, second)
    scheduler.event_lines = [_event("j-1"), _event("j-7"), _event("j-2")]
    outcome = call("wait", "j-1", "j-2")
    assert outcome.exit_code == code
    assert len(outcome.out.splitlines()) == 2
    assert "1 completed" in outcome.err or "2 completed" in outcome.err


def test_wait_for_any(scheduler: FakeScheduler, call: Call) -> None:
    _two(scheduler, FAILED)
    scheduler.event_lines = [_event("j-1")]
    outcome = call("wait", "j-1", "j-2", "--any", "--json")
    assert outcome.exit_code == 0
    assert [job["state"] for job in outcome.document["jobs"]] == ["completed", "queued"]


def test_wait_for_all_of_a_peer_with_nothing_there(scheduler: FakeScheduler, call: Call) -> None:
    _two(scheduler, FAILED)
    scheduler.answers["list_jobs"] = {
        "kind": "jobs", "jobs": [], "total": 0, "concurrency_limit": 1, "counts": {},
    }  # fmt: skip
    outcome = call("wait", "--peer", "p1")
    assert outcome.exit_code == 65
    assert "no job of peer p1 is in generation 3" in outcome.err


@pytest.mark.parametrize("option", [("--peer", "p1"), ("--all",), ("--all", "--any")])
def test_what_has_ended_of_a_peer_counts(
    scheduler: FakeScheduler, call: Call, option: tuple[str, ...]
) -> None:
    _two(scheduler, FAILED)
    good, bad = view(**COMPLETED), view(**{**FAILED, "job": "j-2", "tag": "b"})
    old = view(**{**FAILED, "job": "j-3", "generation": 2, "tag": "old"})
    jobs = {"kind": "jobs", "total": 3, "concurrency_limit": 1, "counts": {}}
    scheduler.answers["list_jobs"] = {**jobs, "jobs": [good, bad, old]}
    outcome = call("wait", *option)
    assert outcome.exit_code == 1
    assert "j-2" in outcome.out
    assert "j-3" not in outcome.out
    assert outcome.err == "1 completed, 1 failed\n"
    scheduler.answers["list_jobs"] = {**jobs, "jobs": [good, old]}
    assert call("wait", *option).exit_code == 0


def _with_log(tmp_path: Path, content: bytes) -> Path:
    log = tmp_path / "j-1.1.log"
    log.write_bytes(content)
    return log


def test_logs_prints_the_tail_and_names_the_file(
    scheduler: FakeScheduler, call: Call, tmp_path: Path
) -> None:
    log = _with_log(tmp_path, b"".join(b"line %d\n" % number for number in range(100)))
    scheduler.tell(view(**{**COMPLETED, "log_path": str(log)}))
    outcome = call("logs", "j-1")
    assert outcome.out.splitlines() == [f"line {number}" for number in range(60, 100)]
    assert outcome.err == f"log   {log}\n"
    assert call("logs", "j-1", "-n", "0").out == ""
    assert call("logs", "j-1", "-n", "1").out == "line 99\n"
    assert call("logs", "j-1", "-n", "1000").out.count("\n") == 100
    assert call("logs", "j-1", "--full").out.count("\n") == 100
    assert call("logs", "j-1", "--json").document["log_path"] == str(log)


def test_the_tail_is_found_across_blocks_and_without_a_last_line_feed(
    scheduler: FakeScheduler, call: Call, tmp_path: Path
) -> None:
    long = b"x" * 200_000
    log = _with_log(tmp_path, b"first\n" + long + b"\nlast")
    scheduler.tell(view(**{**COMPLETED, "log_path": str(log)}))
    assert call("logs", "j-1", "-n", "1").out == "last"
    assert call("logs", "j-1", "-n", "2").out == long.decode() + "\nlast"


def test_logs_follow_ends_with_the_job_and_its_code(
    scheduler: FakeScheduler, call: Call, tmp_path: Path
) -> None:
    log = _with_log(tmp_path, b"hello\n")
    running = {**RUNNING, "log_path": str(log)}
    scheduler.tell(view(), view(**running), view(**{**FAILED, "log_path": str(log)}))
    outcome = call("logs", "-f", "j-1")
    assert outcome.exit_code == 3
    assert outcome.out == "hello\n"


def test_logs_refuses_links_and_says_when_there_is_none(
    scheduler: FakeScheduler, call: Call, tmp_path: Path
) -> None:
    link = tmp_path / "link.log"
    link.symlink_to(_with_log(tmp_path, b"secret\n"))
    scheduler.tell(view(**{**COMPLETED, "log_path": str(link)}))
    outcome = call("logs", "j-1")
    assert (outcome.exit_code, outcome.out) == (73, "")
    scheduler.tell(view(**{**COMPLETED, "log_path": str(tmp_path / "gone.log")}))
    assert call("logs", "j-1").exit_code == 73
    scheduler.tell(view())
    assert call("logs", "j-1").exit_code == 65


def test_logs_of_an_earlier_attempt(scheduler: FakeScheduler, call: Call, tmp_path: Path) -> None:
    _with_log(tmp_path, b"first try\n")
    second = tmp_path / "j-1.2.log"
    second.write_bytes(b"second try\n")
    scheduler.tell(view(**{**COMPLETED, "attempt": "j-1.2", "log_path": str(second)}))
    assert call("logs", "j-1", "--attempt", "1").out == "first try\n"
    assert call("logs", "j-1").out == "second try\n"


def test_cancel_reports_each_job(scheduler: FakeScheduler, call: Call) -> None:
    done = {"job": "j-1", "outcome": "cancelled", "code": None, "detail": "superseded"}
    refused = {"job": "j-2", "outcome": "refused", "code": "not_yours", "detail": "p2's"}
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [done]}
    assert call("cancel", "j-1", "--reason", "superseded").exit_code == 0
    assert scheduler.requests[-1]["running"] is False
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [refused]}
    assert call("cancel", "j-2", "--yes").exit_code == 77
    assert scheduler.requests[-1]["running"] is True
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [done, refused]}
    assert call("cancel", "j-1", "j-2", "--json").exit_code == 1


def test_any_number_of_jobs_is_cancelled(scheduler: FakeScheduler, call: Call) -> None:
    done = {"job": "j-1", "outcome": "cancelled", "code": None, "detail": ""}
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [done]}
    assert call("cancel", *(f"j-{number}" for number in range(1, 2002))).exit_code == 0
    assert [len(request["jobs"]) for request in scheduler.requests] == [1000, 1000, 1]


def test_all_jobs_of_a_peer_are_cancelled(scheduler: FakeScheduler, call: Call) -> None:
    waiting, running = view(job="j-2"), view(job="j-1", **RUNNING)
    scheduler.answers["list_jobs"] = {"kind": "jobs", "jobs": [running, waiting], "total": 2}
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": []}
    call("cancel", "--peer-of", "p1")
    assert scheduler.requests[-1]["jobs"] == ["j-2"]
    call("cancel", "--peer-of", "p1", "--yes")
    assert scheduler.requests[-1]["jobs"] == ["j-1", "j-2"]
    scheduler.answers["list_jobs"] = {"kind": "jobs", "jobs": [], "total": 0}
    nothing = call("cancel", "--peer-of", "p9")
    assert (nothing.exit_code, nothing.err) == (0, "nothing of peer p9 is left to cancel\n")
    assert call("cancel").exit_code == call("cancel", "j-1", "--peer-of", "p1").exit_code == 2


def test_retry_sends_the_stored_or_a_new_command(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["show_job"] = {"kind": "job", "job": view(**{**FAILED, "attempt": "j-1.2"})}
    scheduler.answers["retry_job"] = submitted(view(), "retrying")
    outcome = call("retry", "j-1")
    assert outcome.err.startswith("retrying j-1 mixup")
    assert scheduler.requests[-1]["command"] is None
    assert scheduler.requests[-1]["retry_of"] == "j-1.2", "it says which attempt it follows"
    assert call("retry", "j-1.1", "--", "python", "fixed.py").exit_code == 0
    assert scheduler.requests[-1]["command"] == ["python", "fixed.py"]
    assert (scheduler.requests[-1]["job"], scheduler.requests[-1]["retry_of"]) == ("j-1", "j-1.1")


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("retry", "j-1"), "praxist-zmq retry j-1.1"),
        (("retry", "--lost", "j-1"), "praxist-zmq retry --lost j-1.1"),
        (
            ("submit", "--peer", "p", "--tag", "mixup", "--retry-terminal", "--", "true"),
            "--retry-of j-1.1 in the place of --retry-terminal",
        ),
    ],
)
def test_a_retry_without_an_answer_is_told_how_to_be_repeated(
    scheduler: FakeScheduler, call: Call, words: tuple[str, ...], advice: str
) -> None:
    scheduler.answers["show_job"] = {"kind": "job", "job": view(**{**FAILED, "attempt": "j-1.1"})}
    lost = PraxistError("no_answer", "it was reached but did not answer in time")
    scheduler.answers["retry_job"] = scheduler.answers["submit_job"] = lost
    outcome = call(*words)
    assert outcome.exit_code == 75
    assert " ".join(outcome.err.split()).endswith(f"runs it once in any case: {advice}")
    outcome = call("--json", *words)
    assert advice in outcome.out


def test_retry_lost_takes_each_lost_job_on_its_own(scheduler: FakeScheduler, call: Call) -> None:
    lost = [view(**{**FAILED, "job": name, "state": "drained_unknown"}) for name in ("j-1", "j-2")]
    scheduler.answers["list_jobs"] = {"kind": "jobs", "jobs": lost}
    scheduler.answers["show_job"] = {"kind": "job", "job": {**lost[0], "attempt": "j-1.1"}}
    scheduler.answers["retry_job"] = submitted(view(), "retrying")
    assert call("retry", "--lost").exit_code == 0
    asked = [r for r in scheduler.requests if r["kind"] == "retry_job"]
    assert [(r["job"], r["lost"]) for r in asked] == [("j-1", True), ("j-2", True)]
    scheduler.answers["retry_job"] = PraxistError("retry_conflict", "no")
    assert call("retry", "--lost").exit_code == 1
    assert call("retry").exit_code == 2
    assert call("retry", "--lost", "--presume-dead").exit_code == 2


def test_retry_presume_dead_waits_for_the_end_first(scheduler: FakeScheduler, call: Call) -> None:
    ended = {**FAILED, "state": "cancelled", "attempt": "j-1.1"}
    scheduler.answers["cancel_jobs"] = {
        "kind": "cancelled_jobs",
        "results": [{"job": "j-1", "outcome": "ending", "code": None, "detail": ""}],
    }
    scheduler.history["j-1"] = [view(**ended)]
    scheduler.answers["show_job"] = {"kind": "job", "job": view(**ended)}
    scheduler.answers["retry_job"] = submitted(view(), "retrying")
    assert call("retry", "j-1", "--presume-dead").exit_code == 0
    kinds = [request["kind"] for request in scheduler.requests]
    assert kinds == ["cancel_jobs", "watch_job", "show_job", "retry_job"]
    assert scheduler.requests[0]["presume_dead"] is True
    scheduler.answers["cancel_jobs"]["results"][0].update(
        outcome="refused", code="not_cancellable", detail="it is not out of sight"
    )
    outcome = call("retry", "j-1", "--presume-dead")
    assert outcome.exit_code == 65
    assert "not out of sight" in outcome.err


def _stopping(dry_run: bool) -> dict[str, object]:
    return {"kind": "stopping", "dry_run": dry_run, "rejected": ["j-2"], "ending": ["j-1"]}


def fake_owner(monkeypatch: pytest.MonkeyPatch, *, ends: bool) -> None:
    """A fake supervisor that ended, or did not."""

    def found(run: object) -> types.SimpleNamespace:
        pidfd = os.open("/dev/null", os.O_RDONLY)
        identity = types.SimpleNamespace(pid=4711)
        return types.SimpleNamespace(identity=identity, pidfd=pidfd, is_stop=False)

    monkeypatch.setattr("praxist_zmq.cli.stopping.find_owner", found)
    monkeypatch.setattr("praxist_zmq.cli.stopping.wait_ended", lambda pidfd, seconds: ends)


def test_stop_needs_yes_and_reports_what_is_left(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_owner(monkeypatch, ends=True)
    scheduler.answers["list_jobs"] = {
        "kind": "jobs", "jobs": [], "total": 0, "concurrency_limit": 1, "counts": {}
    }  # fmt: skip
    scheduler.answers["stop_run"] = _stopping(True)
    assert "every experiment of the run: say" in call("stop").err
    assert "of every run of this host scope: say" in call("stop", "--all").err
    assert call("stop", "--dry-run").out.splitlines()[1] == "queue    would reject 1 job  j-2"
    scheduler.answers["stop_run"] = _stopping(False)
    outcome = call("stop", "--yes", "--grace", "0")
    assert outcome.exit_code == 0
    assert outcome.out.splitlines()[-1].startswith("stopped  nothing of this run is left")


def test_stop_with_a_survivor_is_one(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_owner(monkeypatch, ends=False)
    scheduler.answers["stop_run"] = _stopping(False)
    scheduler.answers["list_jobs"] = {
        "kind": "jobs", "jobs": [view(**RUNNING, note="unkillable: 7; its allocation stays held")],
        "total": 1, "concurrency_limit": 1, "counts": {},
    }  # fmt: skip
    outcome = call("stop", "--yes", "--grace", "0", "--json")
    assert outcome.exit_code == 1
    assert outcome.document["left"] == ["j-1", "scheduler (pid 4711)"]


def test_sim_refuses_where_nothing_is_simulated(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[object, ...]] = []
    for name, writer in (
        ("set_load", "set_load"),
        ("set_fault", "set_fault"),
        ("clear", "clear_file"),
    ):
        monkeypatch.setattr(
            sim, writer, lambda *arguments, _name=name: written.append((_name, *arguments))
        )
    scheduler.answers["get_devices"] = {"kind": "devices", "devices": [], "simulated": False}
    assert call("sim", "load", "--gpu", "0", "--utilization", "60").exit_code == 69
    assert written == []
    scheduler.answers["get_devices"] = devices_reply()
    assert "SIMULATED" in call("sim", "load", "--gpu", "0", "--utilization", "60").out
    assert call("sim", "fail", "--gpu", "1", "lost").exit_code == 0
    slip = call("-v", "sim", "fail", "--gpu", "9", "lost")
    assert slip.exit_code == 2
    form, *_, page, code = slip.err.splitlines()[1:]
    assert form.startswith("  form  praxist-zmq sim fail [OPTIONS]")
    assert page == "  help  praxist-zmq sim fail --help"
    assert code == "  code  usage, exit 2, not worth sending again"
    assert call("sim", "clear", "--json").document["kind"] == "sim"
    assert [entry[0] for entry in written] == ["set_load", "set_fault", "clear"]
    assert written[0][2:] == (0, 60.0, None)


def test_wait_as_json_lines(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.tell(view(), view(**RUNNING), view(**COMPLETED))
    lines = [json.loads(line) for line in call("wait", "j-1", "-o", "jsonl").out.splitlines()]
    assert [line["state"] for line in lines] == ["running", "completed"]
