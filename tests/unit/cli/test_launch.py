"""`launch` and `submit`: verdicts, exit codes, documents, limits of time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from praxist_zmq.cli.verdict import change_line
from praxist_zmq.errors import ERRORS, PraxistError

from .conftest import Outcome
from .fake_scheduler import (
    COMPLETED,
    FAILED,
    RUNNING,
    FakeScheduler,
    refusal,
    submitted,
    view,
)
from .test_reading import BLOCKERS

Call = Callable[..., Outcome]
LAUNCH = ("launch", "--peer", "p1", "--tag", "t", "--", "python", "x.py")
SUBMIT = ("submit", "--peer", "p1", "--tag", "t", "--", "python", "x.py")
DOCUMENT_KEYS = {
    "format_version", "kind", "verdict", "job", "job_id", "tag", "state", "new", "profile",
    "profile_source", "work_class", "blockers", "start_estimate", "retryable", "exit_code",
    "exit_source", "error", "inside_attempt", "notes", "signal", "reject_code", "failure_category",
    "failure_signature", "failure_hint", "log_path",
}  # fmt: skip
BLOCKER = BLOCKERS[0]


def _ends(scheduler: FakeScheduler, **last: object) -> None:
    scheduler.answers["submit_job"] = submitted(view())
    scheduler.tell(view(), view(**RUNNING), view(**last))


def test_launch_tells_each_change_and_exits_with_zero(scheduler: FakeScheduler, call: Call) -> None:
    _ends(scheduler, **COMPLETED)
    outcome = call(*LAUNCH)
    assert outcome.exit_code == 0
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert lines[0].startswith("started j-1 mixup-a0.4/protoA/seed0/full  cpu  profile gpu_work")
    assert lines[1] == "  log   /runs/vision-42/logs/experiments/j-1.1.log"
    assert lines[-1] == "completed j-1 exit 0 after 31m02s (waited 5.0s)"
    assert all(len(line) <= 100 for line in lines)


def test_a_waiting_job_is_told_as_queued_with_its_blockers(
    scheduler: FakeScheduler, call: Call
) -> None:
    waiting = view(blockers=(BLOCKER,))
    scheduler.answers["submit_job"] = submitted(waiting)
    scheduler.tell(waiting, view(**RUNNING), view(**COMPLETED))
    lines = call(*LAUNCH).err.splitlines()
    assert lines[0].startswith("queued j-1 ")
    assert lines[0].endswith("profile gpu_work (default)  class ordinary")
    assert lines[1] == f"  waits gpu_compute_short: {BLOCKER['detail']}"
    assert "started j-1 on cpu (waited 5.0s)" in lines


@pytest.mark.parametrize(
    ("last", "code", "source"),
    [
        (FAILED, 3, "job"),
        ({**FAILED, "exit_code": None, "signal": 11}, 139, "job"),
        ({**FAILED, "exit_code": 75}, 75, "job"),
        ({**FAILED, "exit_code": None}, 1, "job"),
        ({**COMPLETED, "state": "drained_unknown", "exit_code": None}, 79, "scheduler"),
        ({**COMPLETED, "state": "rejected", "exit_code": None}, 65, "scheduler"),
    ],
)
def test_launch_exits_as_the_job_ended(
    scheduler: FakeScheduler, call: Call, last: dict[str, object], code: int, source: str
) -> None:
    _ends(scheduler, **last)
    outcome = call("--json", *LAUNCH)
    assert outcome.exit_code == code
    assert outcome.document["exit_code"] == code
    assert outcome.document["exit_source"] == source
    assert set(outcome.document) == DOCUMENT_KEYS
    assert outcome.document["kind"] == "launch"


def test_why_the_scheduler_ended_a_waiting_job_is_in_the_one_document(
    scheduler: FakeScheduler, call: Call, tmp_path: Path
) -> None:
    never = {"exit_code": None, "attempt": None, "attempts": 0, "started_at": None}
    gone = {**COMPLETED, **never, "state": "rejected", "reject_code": "accelerator_probe_unknown"}
    _ends(scheduler, **gone, note="the devices are not known for 60 s")
    file = tmp_path / "result.json"
    document = call("--json", "launch", "--result-file", str(file), *LAUNCH[1:]).document
    assert json.loads(file.read_text()) == document
    error = document["error"]
    assert (error["code"], error["exit_code"]) == ("accelerator_probe_unknown", 75)
    assert error["detail"] == "j-1 is rejected: the devices are not known for 60 s"
    assert document["retryable"], "the tag is free: the same command may be sent again"
    _ends(scheduler, **{**COMPLETED, "state": "drained_unknown", "exit_code": None})
    assert call("--json", *LAUNCH).document["error"]["code"] == "outcome_unknown"
    assert call("--json", *SUBMIT).exit_code == 0
    _ends(scheduler, **FAILED)
    assert call("--json", *LAUNCH).document["error"] is None, "the status is the job's own"


def test_scheduler_exit_folds_only_codes_of_the_scheduler(
    scheduler: FakeScheduler, call: Call
) -> None:
    folded = (*LAUNCH[:1], "--scheduler-exit", "2", *LAUNCH[1:])
    _ends(scheduler, **FAILED)
    assert call(*folded).exit_code == 3
    _ends(scheduler, **{**COMPLETED, "state": "drained_unknown", "exit_code": None})
    assert call(*folded).exit_code == 2
    scheduler.answers["submit_job"] = refusal("unknown_profile", "profile 'x' is not declared")
    assert call(*folded).exit_code == 2


@pytest.mark.parametrize("code", sorted(set(ERRORS) - {"wait_timeout", "interrupted"}))
def test_every_refusal_has_its_own_word_exit_code_and_document(
    scheduler: FakeScheduler, call: Call, code: str
) -> None:
    scheduler.answers["submit_job"] = refusal(code, "the detail")
    outcome = call(*SUBMIT)
    row = ERRORS[code]
    assert outcome.exit_code == row.exit_code
    assert outcome.out == ""
    assert outcome.err.split()[0] in ("rejected", "unavailable")
    assert "the detail" in outcome.err
    document = call(*SUBMIT[:1], "--json", *SUBMIT[1:]).document
    assert set(document) == DOCUMENT_KEYS
    assert document["verdict"] == outcome.err.split()[0]
    assert document["error"]["code"] == code
    assert document["retryable"] == row.retryable
    assert document["exit_source"] == "scheduler"


def test_a_tag_that_ended_badly_is_told_with_its_signature(
    scheduler: FakeScheduler, call: Call
) -> None:
    job = view(**FAILED)
    scheduler.answers["submit_job"] = refusal("terminal_duplicate", "j-1 ended", job=job)
    outcome = call(*SUBMIT)
    assert outcome.exit_code == 65
    assert outcome.err.splitlines() == [
        "rejected t  j-1 already failed 3m53s ago (exit 3, attempt 1 of 1)",
        "  last  ValueError: fold 5 has no positive samples",
        "  help  read it:          praxist-zmq logs j-1 -n 40",
        "  help  after a repair:   add --retry-terminal, keep this tag",
    ]


def test_verbose_adds_the_code_to_a_refusal_and_to_wrong_usage(
    scheduler: FakeScheduler, call: Call
) -> None:
    scheduler.answers["submit_job"] = refusal("unknown_profile", "profile 'x' is not declared")
    last = call("-v", *SUBMIT).err.splitlines()[-1]
    assert last == "  code  unknown_profile, exit 65, not worth sending again"
    assert "  code  " not in call(*SUBMIT).err
    assert "  code  usage, exit 2" in call("submit", "-v", "--tag", "t").err


def test_a_job_that_waits_again_says_why() -> None:
    before = view(**RUNNING)
    again = view(state="queued", version=20, note="it ended with exit 75, which asks for another")
    assert change_line(before, again) == (
        "queued j-1 again after attempt 1: it ended with exit 75, which asks for another"
    )


def test_joined_says_whose_it_is(scheduler: FakeScheduler, call: Call) -> None:
    job = view(**RUNNING, gpu_uuids=("GPU-00000000-0000-4000-8000-000000000002",), peer="p7")
    scheduler.answers["submit_job"] = submitted(job, "joined", notes=["your command differs"])
    lines = call(*SUBMIT).err.splitlines()
    assert lines[0].endswith("running on GPU 2 SIMULATED for 34m55s, sent by p7")
    assert lines[1] == "  note  your command differs"
    assert lines[2].startswith("  help  if this is other science")


def test_done_runs_nothing_and_keeps_the_code(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["submit_job"] = submitted(view(**COMPLETED), "done")
    outcome = call(*LAUNCH)
    assert outcome.exit_code == 0
    assert outcome.err.splitlines()[0].endswith("completed 3m53s ago, exit 0, took 31m02s")


def test_the_request_carries_arguments_environment_and_directory_exactly(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.answers["submit_job"] = submitted(view())
    odd = [
        "prog",
        "",
        "--",
        "a b",
        "q\"'",
        "line\nfeed",
        "naïve🙂",
        os.fsdecode(b"\xff\xfe"),
        "--tag",
    ]
    monkeypatch.setenv("ODD", os.fsdecode(b"\x80x"))
    monkeypatch.setenv("PLAIN", "ü")
    options = ("--eta", "1h30m", "--generation", "3", "--same-command")
    call("submit", "--peer", "p1", "--tag", "t", *options, "--", *odd)
    (request,) = scheduler.requests
    assert request["same_command"]
    assert request["generation"] == 3
    assert request["command"] == [*odd[:7], {"base64": "//4="}, "--tag"]
    assert request["environment"]["ODD"] == {"base64": "gHg="}
    assert request["environment"]["PLAIN"] == "ü"
    assert request["cwd"] == os.getcwd()
    assert request["eta_seconds"] == 5400.0
    assert set(request["environment"]) == set(os.environ)


def test_peer_comes_from_the_environment_when_absent(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.answers["submit_job"] = submitted(view())
    assert call("submit", "--tag", "t", "--", "x").exit_code == 2
    monkeypatch.setenv("PRAXIST_PEER_ID", "gen3_peer5")
    assert call("submit", "--tag", "t", "--", "x").exit_code == 0
    assert scheduler.requests[0]["peer"] == "gen3_peer5"


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "--peer", "p", "--tag", "t", "python"),
        ("submit", "--peer", "p", "--tag", "t", "--"),
        ("submit", "--peer", "p", "--tag", "t"),
        ("submit", "--peer", "p", "--", "x"),
        ("submit", "--peer", "p", "--tag", "t", "--eta", "soon", "--", "x"),
        ("submit", "--peer", "p", "--tag", "t", "--work-class", "big", "--", "x"),
        ("launch", "--peer", "p", "--tag", "t", "--json", "--follow", "--", "x"),
        ("lanch", "--peer", "p"),
        ("wait",),
        ("wait", "j-1", "--all"),
        ("stop",),
        ("cancel",),
        ("help", "exit-code"),
    ],
)
def test_wrong_usage_is_two(scheduler: FakeScheduler, call: Call, arguments: tuple[str]) -> None:
    outcome = call(*arguments)
    assert outcome.exit_code == 2
    assert "Traceback" not in outcome.err
    assert not scheduler.requests


def test_max_wait_leaves_the_job_alone(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["submit_job"] = submitted(view())
    scheduler.tell(view(), view(**RUNNING))
    outcome = call("launch", "--max-wait", "0.3", *LAUNCH[1:])
    assert outcome.exit_code == 124
    assert "praxist-zmq wait j-1" in outcome.err
    assert not [r for r in scheduler.requests if r["kind"] == "cancel_jobs"]


def test_admission_timeout_withdraws_what_never_started(
    scheduler: FakeScheduler, call: Call
) -> None:
    scheduler.answers["submit_job"] = submitted(view())
    result: dict[str, object] = {
        "job": "j-1", "outcome": "cancelled", "code": None, "detail": "", "frees_tag": True,
    }  # fmt: skip
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [result]}
    scheduler.tell(view())
    for option in ("--admission-timeout", "--wait-timeout"):
        outcome = call("--json", "launch", option, "0.1", *LAUNCH[1:])
        assert outcome.exit_code == 75
        assert outcome.document["error"]["code"] == "admission_timeout"
        assert outcome.document["error"]["detail"].endswith("nothing ran, the tag is free")
        assert outcome.document["retryable"] is True
    assert scheduler.requests[-1]["admission_timeout"] is True
    result["frees_tag"] = False  # it ran meanwhile, and was queued again
    outcome = call("launch", "--admission-timeout", "0.1", *LAUNCH[1:])
    assert "tag is free" not in outcome.err
    assert "--retry-terminal" in outcome.err


def test_admission_timeout_that_comes_too_late_waits_on(
    scheduler: FakeScheduler, call: Call
) -> None:
    scheduler.answers["submit_job"] = submitted(view())
    result = {
        "job": "j-1", "outcome": "refused", "code": "not_cancellable", "detail": "started",
    }  # fmt: skip
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [result]}
    scheduler.answers["show_job"] = {"kind": "job", "job": view(**RUNNING)}
    scheduler.tell(view())
    begun = scheduler.answer

    def late(request: dict[str, object], timeout_s: float | None) -> dict[str, object]:
        if request["kind"] == "cancel_jobs":
            scheduler.tell(view(**RUNNING), view(**FAILED))
        return begun(request, timeout_s)

    scheduler.answer = late  # type: ignore[method-assign]
    assert call("launch", "--admission-timeout", "0.1", *LAUNCH[1:]).exit_code == 3


def test_an_interrupt_detaches_and_says_so(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["submit_job"] = submitted(view(blockers=(BLOCKER,)))
    scheduler.interrupt_on_watch = True
    outcome = call(*LAUNCH)
    assert outcome.exit_code == 130
    assert "detached  j-1 goes on" in outcome.err


def test_the_result_file_holds_the_final_document(
    scheduler: FakeScheduler, call: Call, tmp_path: Path
) -> None:
    _ends(scheduler, **FAILED)
    file = tmp_path / "result.json"
    assert call("launch", "--result-file", str(file), *LAUNCH[1:]).exit_code == 3
    document = json.loads(file.read_text())
    assert set(document) == DOCUMENT_KEYS
    assert (document["state"], document["exit_code"]) == ("failed", 3)
    told = ("signal", "failure_category", "failure_signature", "log_path")
    assert {key: document[key] for key in told} == {key: FAILED.get(key) for key in told}
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".result")] == []
    missing = call("launch", "--result-file", str(tmp_path / "no" / "f"), *LAUNCH[1:])
    assert missing.exit_code == 73


def test_follow_copies_the_log_byte_for_byte(
    scheduler: FakeScheduler, call: Call, tmp_path: Path
) -> None:
    log = tmp_path / "j-1.1.log"
    log.write_bytes(b"one\ntwo\x00\n")
    _ends(scheduler, **{**COMPLETED, "log_path": str(log)})
    outcome = call("launch", "--follow", *LAUNCH[1:])
    assert outcome.exit_code == 0
    assert outcome.out == "one\ntwo\x00\n"


def test_dry_run_says_what_would_happen(scheduler: FakeScheduler, call: Call) -> None:
    reply = submitted(view(blockers=(BLOCKER,)), "would_queue", notes=["dry run"])
    scheduler.answers["submit_job"] = reply
    document = call("launch", "--dry-run", "--json", *LAUNCH[1:]).document
    assert (document["verdict"], document["job"], document["job_id"]) == ("would_queue", None, None)
    scheduler.requests.clear()
    outcome = call("launch", "--dry-run", *LAUNCH[1:])
    assert outcome.exit_code == 0
    assert outcome.err.startswith("would queue mixup-a0.4")
    assert scheduler.requests[0]["dry_run"] is True


def test_quiet_submit_prints_the_id_only(scheduler: FakeScheduler, call: Call) -> None:
    scheduler.answers["submit_job"] = submitted(view())
    outcome = call("-q", *SUBMIT)
    assert outcome.out == "j-1\n"


def test_a_tag_cannot_steer_the_terminal(scheduler: FakeScheduler, call: Call) -> None:
    nasty = "\x1b]0;owned\x07[bold]\u202e\u009b31m"
    job = view(tag=nasty)
    scheduler.answers["submit_job"] = submitted(job)
    err = call(*SUBMIT).err
    assert "\x1b" not in err
    assert "\u202e" not in err
    assert "\u009b" not in err
    assert "\\x1b]0;owned\\x07[bold]\\u202e" in err


def test_no_scheduler_is_sixty_nine_in_words_and_in_json(
    scheduler: FakeScheduler, call: Call, run_dir: Path
) -> None:
    scheduler.refuse_to_connect = PraxistError("no_scheduler", "no endpoint file")
    outcome = call(*LAUNCH)
    assert outcome.exit_code == 69
    assert outcome.err.startswith("unavailable  t  no scheduler answers for this run: ")
    document = call("--json", *LAUNCH).document
    assert (document["kind"], document["verdict"]) == ("launch", "unavailable")
    assert f"--run-dir {run_dir}" in outcome.err, "the advice names the run"


def test_a_long_wait_gives_signs_of_life(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("praxist_zmq.cli.waiting.HEARTBEAT_S", 0.1)
    job = view(blockers=(BLOCKER,))
    scheduler.answers["submit_job"] = submitted(job)
    scheduler.tell(job)
    outcome = call("launch", "--max-wait", "0.35", *LAUNCH[1:])
    assert "queued j-1 for 35m00s: gpu_compute_short" in outcome.err
    quiet = call("-q", "launch", "--max-wait", "0.35", *LAUNCH[1:])
    assert "for 35m00s" not in quiet.err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("--tag", "a\x1b[31m"), "control character"),
        (("--tag", ""), "control character"),
        (("--tag", "x" * 513), "512"),
        (("--peer", "p 1"), "letters, digits"),
        (("--cwd", "/nonexistent"), "does not exist"),
        (("--cwd", __file__), "give a directory with --cwd"),
    ],
)
def test_what_is_wrong_as_sent_is_said_in_words(
    scheduler: FakeScheduler, call: Call, changed: tuple[str, str], said: str
) -> None:
    outcome = call("submit", "--peer", "p1", "--tag", "t", *changed, "--", "x")
    assert outcome.exit_code == 65
    assert said in outcome.err
    assert "\x1b" not in outcome.err
    assert not scheduler.requests


@pytest.mark.parametrize("code", [75, 124, 69])
def test_a_code_that_is_the_jobs_own_is_told_as_such_with_the_next_step(
    scheduler: FakeScheduler, call: Call, code: int
) -> None:
    """The scheduler has codes of the same number, with other advice."""
    last = f"  next  praxist-zmq retry j-1   |   exit {code} is the job's own; it has ended"
    _ends(scheduler, **{**FAILED, "exit_code": code})
    outcome = call(*LAUNCH)
    assert (outcome.exit_code, outcome.err.splitlines()[-1]) == (code, last)
    waited = call("wait", "j-1")
    assert (waited.exit_code, waited.err.splitlines()) == (code, [last])
    assert call("wait", "--json", "j-1").document["exit_source"] == "job"
    _ends(scheduler, **FAILED)
    assert "job's own" not in call(*LAUNCH).err, "3 is no code of the scheduler's"


def test_waiting_counts_from_the_last_queueing(scheduler: FakeScheduler, call: Call) -> None:
    retried = {"submitted_at": "2026-11-29T11:00:00.000Z", "queued_at": "2026-11-29T12:00:00.000Z"}
    _ends(scheduler, **{**FAILED, **retried, "failure_hint": "disk full at its end: 0 MiB"})
    lines = call(*LAUNCH).err.splitlines()
    assert any(" after 31m02s (waited 5.0s): ValueError" in line for line in lines)
    assert "  hint  disk full at its end: 0 MiB" in lines
