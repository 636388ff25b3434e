"""What a call says to whoever has to go on from there: exact names, no placeholders, no dead ends.

Each test is something that a newcomer ran into.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from praxist_zmq.cli.lazy import MEANT, VERBS
from praxist_zmq.cli.log_tail import shown
from praxist_zmq.cli.main import command, run
from praxist_zmq.cli.topics import TOPICS
from praxist_zmq.core.admission import COARSE
from praxist_zmq.errors import ERRORS, PraxistError

from .conftest import Outcome
from .fake_scheduler import COMPLETED, FAILED, RUNNING, FakeScheduler, refusal, submitted, view
from .test_reading import FakeTerminal, jobs_reply

Call = Callable[..., Outcome]
LAUNCH = ("launch", "--peer", "a", "--tag", "x")
UNKNOWN = {**COMPLETED, "state": "drained_unknown", "exit_code": None}


def on_screen(monkeypatch: pytest.MonkeyPatch, columns: int, *arguments: str) -> str:
    """What a call writes to standard error on a terminal."""
    screen = FakeTerminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", screen)
    run(arguments)
    return screen.getvalue()


# -- usage errors


@pytest.mark.parametrize("arguments", [(), ("sim",), ("ledger",)])
def test_a_bare_group_shows_its_page_as_a_page(call: Call, arguments: tuple[str, ...]) -> None:
    outcome = call(*arguments)
    assert outcome.exit_code == 2
    lines = outcome.err.splitlines()
    assert lines[0].startswith("Usage: praxist-zmq")
    assert len(lines) > 8
    assert "\\x0a" not in outcome.err
    assert call("--json", *arguments).document["code"] == "usage"


def test_a_usage_error_of_several_lines_keeps_them(call: Call) -> None:
    err = call("sim", "fail", "--gpu", "1").err
    assert "\\x" not in err
    assert "         utilization_unsupported,\n" in err
    assert "  form  praxist-zmq sim fail [OPTIONS] KIND\n" in err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("true",), "-- true"),
        (("python3", "-c", "print(1)"), "-- python3 -c 'print(1)'"),
        (("python", "x.py", "--peer"), "-- python x.py --peer"),
    ],
)
def test_forgotten_dashes_are_named_with_the_line_that_was_meant(
    call: Call, run_dir: Path, typed: tuple[str, ...], meant: str
) -> None:
    outcome = call(*LAUNCH, *typed)
    assert outcome.exit_code == 2
    assert "goes after `--`" in outcome.err
    named = f"  try   praxist-zmq launch --run-dir {run_dir} --peer a --tag x {meant}\n"
    assert named in outcome.err
    assert any(meant in line for line in call("--json", *LAUNCH, *typed).document["help"])


def test_another_mistake_is_not_called_forgotten_dashes(call: Call) -> None:
    assert "--tag" in call("launch", "--peer", "a", "--tga", "x", "--", "true").err
    assert "goes after" not in call("launch", "--peer", "a", "--tga", "x", "--", "true").err


def test_usage_errors_have_one_shape(call: Call, scheduler: FakeScheduler) -> None:
    scheduler.answers["get_devices"] = {
        "kind": "devices", "simulated": True,
        "devices": [{"uuid": "GPU-00000000-0000-4000-8000-000000000000"}],
    }  # fmt: skip
    for arguments in (("stop",), ("sim", "load", "--gpu", "7", "--utilization", "1"), ("wait",)):
        lines = call(*arguments).err.splitlines()
        assert [line.split()[0] for line in lines] == ["usage", "form", "help"], lines


@pytest.mark.parametrize(("typed", "ours"), sorted(MEANT.items()))
def test_other_tools_verbs_name_ours(call: Call, typed: str, ours: str) -> None:
    assert f"did you mean `{ours}`?" in call(typed).err
    assert ours in VERBS
    assert typed not in VERBS


def test_help_words_can_be_two_and_are_a_document_under_json(call: Call) -> None:
    assert call("help", "ledger", "verify").out.startswith("Usage: praxist-zmq ledger verify")
    assert "did you mean `ledger verify`?" in call("help", "ledger", "verfy").err
    document = call("help", "states", "--json").document
    assert (document["kind"], document["topic"]) == ("help", "states")
    assert any("drained_unknown" in line for line in document["lines"])


def test_version_is_an_option_too(call: Call) -> None:
    assert call("--version").out == call("version").out


def test_no_text_names_a_verb_that_is_not_there() -> None:
    texts = [line for topic in TOPICS.values() for line in topic.lines()]
    texts += [row.help for row in ERRORS.values()]
    root = click.Context(command)
    for verb in VERBS:
        page = command.get_command(root, verb)
        assert page is not None
        texts.append(page.get_help(click.Context(page, info_name=verb, parent=root)))
    named = set(re.findall(r"praxist-zmq ((?!VERB)[a-z][a-z]+)\b", "\n".join(texts)))
    assert named <= set(VERBS) | {"up"}
    assert not re.search(r"\bdoctor\b", "\n".join(texts))


# -- names and placeholders


def test_advice_holds_real_names(call: Call, scheduler: FakeScheduler, run_dir: Path) -> None:
    scheduler.tell(view())
    scheduler.answers["submit_job"] = submitted(view())
    scheduler.answers["list_jobs"] = jobs_reply()
    scheduler.answers["read_events"] = {
        "kind": "events", "events": [], "epoch": 1, "last_sequence": 8, "first_sequence": 1,
    }  # fmt: skip
    texts = [
        call("wait", "j-1", "--timeout", "0.1").err,
        call("wait", "--all", "--timeout", "0.1").err,
        call("launch", "--max-wait", "0.1", *LAUNCH[1:], "--", "true").err,
    ]
    scheduler.refuse_to_connect = PraxistError("no_scheduler", "gone")
    texts += [call("show", "j-1").err, call("cancel", "j-1").err]
    for text in texts:
        assert not re.search(r"\b(JOB|VERB|DIR|TAG)\b", text), text
    assert "`praxist-zmq wait --all` waits on" in texts[1]
    assert f"--run-dir {run_dir}" in texts[3]


def test_what_its_own_limit_ended_is_not_unavailable(call: Call, scheduler: FakeScheduler) -> None:
    scheduler.answers["submit_job"] = submitted(view())
    result = {"job": "j-1", "outcome": "cancelled", "code": None, "detail": "withdrawn"}
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [result]}
    scheduler.tell(view())
    over = call("launch", "--max-wait", "0.1", *LAUNCH[1:], "--", "true")
    assert over.err.splitlines()[-2:] == [
        "queued j-1  not started yet; the waiting time is over, the job goes on",
        "  help  `praxist-zmq wait j-1` waits on",
    ]
    late = call("launch", "--admission-timeout", "0.1", *LAUNCH[1:], "--", "true")
    assert late.err.splitlines()[-2].startswith("withdrawn j-1  it did not start")
    scheduler.tell(view(**RUNNING))
    running = call("launch", "--max-wait", "0.1", *LAUNCH[1:], "--", "true")
    assert "started j-1  still running; the waiting time is over" in running.err


def test_a_name_that_is_no_job_is_answered_with_the_nearest(
    call: Call, scheduler: FakeScheduler
) -> None:
    scheduler.answers["list_jobs"] = {**jobs_reply(), "jobs": [view(tag="hello")]}
    scheduler.answers["show_job"] = refusal("unknown_job", "'hello' is no job")
    assert "did you mean `tag:hello`?" in call("show", "hello").err
    assert "did you mean `tag:hello`?" in call("logs", "tag:helo").err
    assert "did you mean" not in call("show", "j-9").err
    assert "did you mean" not in call("show", "tag:hello").err
    result = {"job": "helo", "outcome": "refused", "code": "unknown_job", "detail": "no job"}
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [result]}
    assert "did you mean `tag:hello`?" in call("cancel", "helo").err


def test_a_mistyped_profile_is_answered_with_the_nearest(
    call: Call, scheduler: FakeScheduler
) -> None:
    unknown = refusal(
        "unknown_profile", "profile 'gpu_wrok' is not declared", ["declared: a, gpu_work"]
    )
    scheduler.answers["submit_job"] = scheduler.answers["explain_job"] = unknown
    told = call("submit", "--profile", "gpu_wrok", *LAUNCH[1:], "--", "true").err
    assert "did you mean `gpu_work`?" in told
    assert "did you mean `profile:gpu_work`?" in call("explain", "profile:gpu_wrok").err


def test_explain_knows_profiles_and_leases(call: Call, scheduler: FakeScheduler) -> None:
    def answer(request: dict[str, Any], timeout_s: float | None) -> dict[str, Any]:
        if request["kind"] == "list_jobs":
            return {**jobs_reply(), "jobs": []}
        if request["subject"] == "profile:gpu_work":
            return {"kind": "explanation"}
        if request["subject"] == "lease:l-1":
            return refusal("unknown_lease", "'l-1'")
        return refusal("unknown_job", "that is no job")

    scheduler.answer = answer  # type: ignore[method-assign]
    assert "did you mean `profile:gpu_work`?" in call("explain", "gpu_work").err
    lease = call("explain", "lease:l-1")
    assert lease.exit_code == 65
    assert lease.err.startswith("rejected  no such lease: 'l-1'\n")


# -- when nothing serves the run


def test_what_is_on_disk_is_named_and_read(
    call: Call, scheduler: FakeScheduler, run_dir: Path
) -> None:
    (run_dir / "resource_scheduler" / "ledger").mkdir()
    logs = run_dir / "logs" / "experiments"
    logs.mkdir(parents=True)
    for number in (1, 2, 10):
        (logs / f"j-5.{number}.log").write_bytes(b"attempt %d\n" % number)
    (logs / "j-5.x.log").write_bytes(b"stray\n")
    scheduler.refuse_to_connect = PraxistError("no_scheduler", "its owner is gone")
    for arguments in (("show", "j-5"), ("explain", "j-5"), ("queue",), ("events",)):
        outcome = call(*arguments)
        assert outcome.exit_code == 69
        told = " ".join(outcome.err.split())  # however it was wrapped
        assert "ledger story" in told
        assert str(logs) in told
    assert f"its log: {logs}/j-5.10.log" in " ".join(call("show", "j-5").err.split())
    assert call("logs", "j-5").out == "attempt 10\n"
    assert call("logs", "j-5", "--attempt", "2").out == "attempt 2\n"
    assert call("logs", "j-5.1").out == "attempt 1\n"
    assert call("logs", "j-5", "--json").document["text"] == "attempt 10\n"
    assert call("logs", "j-5", "-f").exit_code == 69
    assert call("logs", "j-6").exit_code == 69
    assert call("logs", "../../../etc/passwd").exit_code == 69


def test_a_directory_that_is_no_run_is_said_to_be_none(call: Call, tmp_path: Path) -> None:
    outcome = call("queue", "--run-dir", str(tmp_path))
    assert outcome.exit_code == 69
    assert f"no run was found: {tmp_path} has no resource_scheduler/" in outcome.err
    assert call("status", "--run-dir", str(tmp_path)).exit_code == 3


# -- endings in words


def test_a_job_that_somebody_cancelled_says_so_everywhere(
    call: Call, scheduler: FakeScheduler
) -> None:
    ended = {
        **FAILED, "state": "cancelled", "exit_code": None, "signal": 15,
        "failure_signature": "superseded",
    }  # fmt: skip
    scheduler.tell(view(**ended))
    scheduler.answers["list_jobs"] = {**jobs_reply(), "jobs": [view(**ended)]}
    scheduler.answers["submit_job"] = refusal("terminal_duplicate", "j-1 ended", job=view(**ended))
    for arguments in (("show", "j-1"), ("wait", "j-1")):
        told = call(*arguments).out
        assert "cancelled" in told
        assert "superseded" in told
    cells = call("queue", "-a").out.splitlines()[1].split("\t")
    assert (cells[1], cells[-1]) == ("cancelled", "signal 15: superseded")
    told = call("submit", *LAUNCH[1:], "--", "true").err
    assert "already cancelled" in told
    assert "superseded" in told
    assert "to run it after all" in told


def test_cancelling_a_running_job_names_yes(call: Call, scheduler: FakeScheduler) -> None:
    detail = "it is running; ending it needs --yes"
    result = {"job": "j-2", "outcome": "refused", "code": "job_runs", "detail": detail}
    scheduler.answers["cancel_jobs"] = {"kind": "cancelled_jobs", "results": [result]}
    assert "`praxist-zmq cancel j-2 --yes` ends it" in call("cancel", "j-2").err


@pytest.mark.parametrize("verb", ["submit", "launch", "retry"])
def test_an_unknown_outcome_is_never_told_as_completed(
    call: Call, scheduler: FakeScheduler, verb: str
) -> None:
    answer = submitted(view(**UNKNOWN), "done")
    scheduler.answers["submit_job"] = scheduler.answers["retry_job"] = answer
    scheduler.answers["show_job"] = {"kind": "job", "job": answer["job"]}
    words = ("retry", "j-1") if verb == "retry" else (verb, *LAUNCH[1:], "--", "true")
    outcome = call(*words)
    assert outcome.exit_code == 79
    assert "completed" not in outcome.err
    assert "the outcome is unknown" in outcome.err
    assert "look at the log and the results; it is not run again under this tag" in outcome.err
    assert call(words[0], "--json", *words[1:]).document["exit_code"] == 79


def test_a_dry_run_of_what_is_done_would_run_nothing(call: Call, scheduler: FakeScheduler) -> None:
    scheduler.answers["submit_job"] = submitted(view(**COMPLETED), "done")
    told = call("submit", "--dry-run", *LAUNCH[1:], "--", "true").err
    assert told.startswith("would run nothing: mixup-a0.4/protoA/seed0/full  j-1 already completed")


# -- tables, pages, logs


def test_a_list_longer_than_the_screen_repeats_its_head(
    scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, run_dir: Path
) -> None:
    waits = ({"code": "run_limit", "detail": "3 of 3 running"},)
    jobs = [view(job=f"j-{n}", tag=f"t{n}", blockers=waits) for n in range(1, 61)]
    scheduler.answers["list_jobs"] = {**jobs_reply(), "jobs": jobs, "total": 61}
    monkeypatch.setenv("LINES", "24")
    screen = FakeTerminal()
    monkeypatch.setattr(sys, "stdout", screen)
    run(["--run-dir", str(run_dir), "queue"])
    lines = screen.getvalue().splitlines()
    assert lines[1] == lines[-3]
    assert lines[0] == lines[-2]
    assert lines[-1] == "why: praxist-zmq explain j-1"
    jobs[:] = jobs[:5]
    screen.truncate(0)
    run(["--run-dir", str(run_dir), "queue"])
    assert screen.getvalue().count("running") == 1


def test_states_are_taken_in_one_list(call: Call, scheduler: FakeScheduler) -> None:
    scheduler.answers["list_jobs"] = jobs_reply()
    assert call("queue", "--state", "failed,running", "--state", "queued").exit_code == 0
    assert scheduler.requests[-1]["states"] == ["failed", "running", "queued"]
    assert scheduler.requests[-1]["include_terminal"] is True
    wrong = call("queue", "--state", "faild")
    assert wrong.exit_code == 2
    assert "did you mean `failed`?" in wrong.err


def test_the_blocker_topic_names_the_coarse_words_too(call: Call) -> None:
    text = call("help", "blockers").out
    assert all(f" {word} " in text for word in COARSE.values())
    assert "resource_pressure_or_capacity" in text


def test_the_age_of_what_a_dead_scheduler_saw_goes_on(
    call: Call, scheduler: FakeScheduler, run_dir: Path
) -> None:
    scheduler.refuse_to_connect = PraxistError("no_scheduler", "its owner is gone")
    host = {"cpu_pct": 61.2, "memory_pct": 48.0, "io_pct": None, "age_s": 0.5}
    file = run_dir / "resource_scheduler" / "status.json"
    file.write_text(json.dumps({"host": host, "at": "2026-11-29T12:05:00.000Z"}))
    assert "io unknown  (30m00s old)" in call("status").out


def test_a_log_too_long_to_print_is_cut_and_the_whole_of_it_named(
    call: Call, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    log = tmp_path / "j-1.1.log"
    log.write_bytes(b"a\rb" + b"x" * (1 << 21) + b"\n")
    scheduler.tell(view(**{**COMPLETED, "log_path": str(log)}))
    told = call("logs", "j-1")
    assert len(told.out) == 1 << 20
    assert "--full" in told.err
    assert str(log) in told.err
    assert len(call("logs", "j-1", "--full").out) == log.stat().st_size


def test_a_log_cannot_steer_a_terminal_and_stays_as_it_is_in_a_pipe(
    call: Call, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    assert shown("a\x1b[31mb\tc\r\n10%\r20%\nü") == "a\\x1b[31mb\tc\n20%\nü"
    log = tmp_path / "j-1.1.log"
    log.write_bytes(b"\x1b[31mred\xff\n")
    scheduler.tell(view(**{**COMPLETED, "log_path": str(log)}))
    # the byte that is no UTF-8 is what the reading side of this test cannot show as it is
    assert call("logs", "j-1").out.startswith("\x1b[31mred")
    document = call("logs", "j-1", "--json").document
    assert document["text"] == "\x1b[31mred\\xff\n"
    assert document["truncated"] is False


def test_long_lines_break_between_words_on_a_screen(
    scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, run_dir: Path
) -> None:
    scheduler.refuse_to_connect = PraxistError("no_scheduler", "word " * 60)
    text = on_screen(monkeypatch, 60, "--run-dir", str(run_dir), "show", "j-1")
    assert all(len(line) <= 60 for line in text.splitlines() if str(run_dir) not in line)
    assert text.count("word") == 60


def test_events_can_be_the_last_few(call: Call, scheduler: FakeScheduler) -> None:
    events = [
        {
            "sequence": number, "at": f"2026-11-29T12:3{number}:00.000Z", "type": "x",
            "job": "j-1", "attempt": None,
            "text": "j-1.1 holds GPU-00000000-0000-4000-8000-000000000003",
        }
        for number in range(5)
    ]  # fmt: skip
    scheduler.answers["read_events"] = {
        "kind": "events", "events": events, "epoch": 1, "last_sequence": 4, "first_sequence": 0,
    }  # fmt: skip
    lines = call("events", "-n", "2").out.splitlines()
    assert [line.split()[0] for line in lines] == ["3", "4"]
    assert lines[0].endswith("j-1.1 holds GPU 3")
    assert "JSON Lines" in call("events", "--help").out
