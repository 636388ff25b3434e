"""The command itself: run selection, global options, topics, endings, and what it imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import praxist_zmq.cli.main as main_module
from praxist_zmq.cli.lazy import ENDING, VERBS
from praxist_zmq.cli.main import command, run
from praxist_zmq.cli.run_selection import find_run, live_runs
from praxist_zmq.cli.settings import expand_home, variables
from praxist_zmq.cli.topics import TOPICS
from praxist_zmq.errors import ERRORS, PraxistError
from praxist_zmq.host.liveness import boot_id, own_namespace, start_ticks
from praxist_zmq.host.paths import runtime_root
from praxist_zmq.protocol.views import BlockerCode

from .conftest import Outcome
from .fake_scheduler import FakeScheduler, submitted, view

Call = Callable[..., Outcome]
ROOT = Path(main_module.__file__).parents[2]


def _published(run_dir: Path) -> None:
    (run_dir / "resource_scheduler").mkdir(parents=True, exist_ok=True)
    (run_dir / "resource_scheduler" / "endpoint.json").write_text("{}")


def _live(name: str, run_dir: Path, pid: int | None = None) -> None:
    pid = os.getpid() if pid is None else pid
    folder = runtime_root() / "runs" / name
    folder.mkdir(parents=True)
    _published(run_dir)
    supervisor = {
        "boot_id": boot_id(),
        "pid_namespace": own_namespace(),
        "pid": pid,
        "start_ticks": start_ticks(os.getpid()),
    }
    (folder / "run.json").write_text(
        json.dumps({"run_dir": str(run_dir), "run_id": "x", "supervisor": supervisor})
    )


def test_a_run_is_found_in_order(
    tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    with pytest.raises(PraxistError) as nothing:
        find_run(None)
    assert nothing.value.code == "no_run"
    _live("a", run_dir)
    assert find_run(None) == run_dir
    inner = tmp_path / "other" / "deep" / "er"
    inner.mkdir(parents=True)
    _published(tmp_path / "other")
    monkeypatch.chdir(inner)
    assert find_run(None) == tmp_path / "other"
    monkeypatch.setenv("PRAXIST_RUN_DIR", str(run_dir))
    assert find_run(None) == run_dir
    assert find_run(str(outside)) == outside


@pytest.mark.parametrize("place", ["", "resource_scheduler", "resource_scheduler/endpoint.json"])
@pytest.mark.parametrize("planted", ["writable", "sticky", "foreign", "parent"])
def test_what_a_stranger_may_have_planted_is_not_believed(
    tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch, place: str, planted: str
) -> None:
    folder, own = tmp_path / "shared" / "other", tmp_path / "own"
    _published(folder)
    _live("a", own)
    odd = folder / place
    if planted == "foreign":
        if os.getuid() != 0:
            pytest.skip("only root can give a file to another user")
        os.chown(odd, 12345, 12345)
    elif planted == "parent":
        folder.parent.chmod(0o777)
    else:
        odd.chmod(0o1777 if planted == "sticky" else 0o707)
    inner = folder / "deep"
    inner.mkdir()
    monkeypatch.chdir(inner)
    with pytest.raises(PraxistError) as refused:
        find_run(None)
    assert refused.value.code == "unsafe_path"
    assert any(f"--run-dir {folder}" in line for line in refused.value.help)
    assert any(f"your own live run: --run-dir {own}" in line for line in refused.value.help)
    assert find_run(str(folder)) == folder, "named, it is meant"
    monkeypatch.chdir("/")
    assert find_run(None) == own
    own.chmod(0o777)
    with pytest.raises(PraxistError) as replaced:
        find_run(None)
    assert replaced.value.code == "unsafe_path"


def test_a_run_of_ours_in_a_sticky_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tmp" / "mine"
    _published(folder)
    folder.parent.chmod(0o1777)
    monkeypatch.chdir(folder)
    assert find_run(None) == folder


def test_live_runs_in_a_directory_of_a_stranger_are_none_of_ours(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a directory to another user")
    _live("a", tmp_path / "own")
    os.chown(runtime_root() / "runs", 12345, 12345)
    assert live_runs() == []


def test_every_spelling_is_the_same_run(
    tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(run_dir)
    spellings = ["vision-42", "./vision-42/", "link", f"{run_dir}/.", "link/../vision-42"]
    assert {find_run(spelling) for spelling in spellings} == {run_dir}


def test_two_live_runs_are_never_guessed_between(
    tmp_path: Path,
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir("/")
    _live("a", run_dir)
    _live("b", tmp_path)
    assert run(["show", "j-1"]) == 2
    err = capfd.readouterr().err
    assert str(run_dir) in err
    assert f"--run-dir {tmp_path}" in err


def test_dead_and_damaged_entries_are_no_runs(tmp_path: Path, run_dir: Path) -> None:
    _live("dead", run_dir, pid=2**22 + 1)
    for name, content in {"empty": "", "list": "[]", "deep": "[" * 60_000, "half": "{"}.items():
        folder = runtime_root() / "runs" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(content)
    fifo = runtime_root() / "runs" / "fifo"
    fifo.mkdir()
    os.mkfifo(fifo / "run.json")
    assert live_runs() == []


@pytest.mark.parametrize("value", ["", "/nonexistent/run"])
def test_a_wrong_run_directory_is_refused(value: str) -> None:
    with pytest.raises(PraxistError) as error:
        find_run(value)
    assert error.value.exit_code in (69, 73)


def test_global_options_stand_before_and_after_the_verb(
    scheduler: FakeScheduler, run_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scheduler.tell(view())
    directory = ["--run-dir", str(run_dir)]
    for arguments in (
        [*directory, "--json", "show", "j-1"],
        ["show", *directory, "--json", "j-1"],
        ["show", "j-1", *directory, "-o", "json"],
    ):
        assert run(arguments) == 0
        assert json.loads(capfd.readouterr().out)["job"] == "j-1"


def test_a_mistyped_verb_is_answered_with_the_nearest(call: Call) -> None:
    outcome = call("lanch")
    assert outcome.exit_code == 2
    assert "did you mean `launch`?" in outcome.err
    assert call("--json", "lanch").document["code"] == "usage"
    assert "\x1b" not in call("\x1b[2J").err


@pytest.mark.parametrize("word", ["top", "stpo", "sotp", "dwon", "cancle", "freze"])
def test_no_advice_names_a_verb_that_ends_something(call: Call, word: str) -> None:
    for outcome in (call(word), call("help", word)):
        assert outcome.exit_code == 2
        assert not [verb for verb in ENDING if f"`{verb}`" in outcome.err]
    assert "`praxist-zmq help` lists them" in call("help", "topics").err


def test_a_tilde_after_the_equals_sign_is_the_home_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    typed = ["--run-dir=~/x", "launch", "--cwd=~", "--tag=~/x", "--", "--config=~/y"]
    assert expand_home(typed) == [
        f"--run-dir={tmp_path}/x", "launch", f"--cwd={tmp_path}", "--tag=~/x", "--", "--config=~/y",
    ]  # fmt: skip
    assert run(["--run-dir=~/nowhere", "status"]) == 69
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["python3 train.py --lr 1"], "python3 train.py --lr 1"),
        (["FOO=1", "train"], "env FOO=1 train"),
        (["echo 'open"], "sh -c"),
    ],
)
@pytest.mark.parametrize("verb", ["launch", "submit"])
def test_what_a_shell_would_have_taken_apart_is_told_at_once(
    call: Call, scheduler: FakeScheduler, verb: str, words: list[str], meant: str
) -> None:
    outcome = call(verb, "--peer", "p", "--tag", "t", "--", *words)
    assert outcome.exit_code == 2
    assert f"did you mean `-- {meant}" in outcome.err
    assert scheduler.requests == []


def test_a_program_of_a_strange_name_is_taken(
    call: Call, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    (tmp_path / "my tool").touch()
    scheduler.answers["submit_job"] = submitted(view(), "queued")
    typed = ("submit", "--peer", "p", "--tag", "t")
    assert call(*typed, "--", str(tmp_path / "my tool")).exit_code == 0
    assert call(*typed, "--cwd", str(tmp_path), "--", "./my tool").exit_code == 0


def test_a_fault_of_ours_is_one_line_and_a_report(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scheduler.answers["get_status"] = {"kind": "status"}
    outcome = call("status")
    assert outcome.exit_code == 70
    assert "Traceback" not in outcome.err
    (line,) = outcome.err.splitlines()
    report = Path(line.split("report: ")[1])
    assert "Traceback" in report.read_text()


def test_a_report_never_holds_the_command(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scheduler.answers["submit_job"] = {"kind": "submitted"}
    outcome = call("submit", "--peer", "p", "--tag", "t", "--", "x", "--token=hunter2")
    assert outcome.exit_code == 70
    (report,) = tmp_path.glob("praxist-zmq-fault-*")
    assert "hunter2" not in report.read_text()


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_topics(call: Call, topic: str) -> None:
    outcome = call("help", topic)
    assert outcome.exit_code == 0
    assert all(len(line) <= 100 for line in outcome.out.splitlines())


def test_the_exit_code_topic_names_every_error(call: Call) -> None:
    text = call("help", "exit-codes").out
    assert all(f" {code} " in text for code in ERRORS)


def test_the_blocker_topic_names_every_blocker(call: Call) -> None:
    text = call("help", "blockers").out
    assert all(f" {code} " in text for code in BlockerCode.__args__)


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"up", "down", "ledger"}))
def test_every_verb_has_a_page_with_an_example(call: Call, verb: str) -> None:
    outcome = call(verb, "--help")
    assert outcome.exit_code == 0
    assert outcome.out.startswith(f"Usage: praxist-zmq {verb}")


def test_version(call: Call) -> None:
    assert call("version").out.startswith("praxist-zmq ")
    assert call("version", "--json").document["protocol_version"] == 1


def test_the_command_is_a_click_group() -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    assert "launch" in result.output


def _python(code: str, *, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["launch", "--peer", "p", "--tag", "t", "--", "true"],
        ["submit", "--peer", "p", "--tag", "t", "--", "true"],
        ["wait", "j-1"],
    ],
)
def test_the_fast_verbs_import_neither_pydantic_nor_rich(
    run_dir: Path, arguments: list[str]
) -> None:
    code = (
        "import sys\n"
        "from praxist_zmq.cli.main import run\n"
        f"status = run(['--run-dir', {str(run_dir)!r}, *{arguments!r}])\n"
        "assert 'praxist_zmq.client' in sys.modules\n"
        "unwanted = ('pydantic', 'rich', 'psutil', 'yaml')\n"
        "heavy = [name for name in unwanted if name in sys.modules]\n"
        "print(status, heavy)\n"
    )
    result = _python(code, environment={})
    assert result.stdout == "69 []\n", result.stderr


def test_a_closed_pipe_is_quiet(run_dir: Path) -> None:
    code = (
        "import os, sys\n"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1)\n"
        "sys.argv = ['praxist-zmq', 'help', 'exit-codes']\n"
        "from praxist_zmq.cli.main import main\n"
        "main()\n"
    )
    result = _python(code, environment={})
    assert result.returncode == 141
    assert result.stderr == ""


def test_closed_streams_do_not_matter(run_dir: Path) -> None:
    code = (
        "import sys\n"
        "sys.argv = ['praxist-zmq', 'version']\n"
        "sys.stdout = sys.stderr = None\n"
        "from praxist_zmq.cli.main import main\n"
        "main()\n"
    )
    assert _python(code, environment={}).returncode == 0


def test_options_have_variables_and_what_is_typed_goes_before(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.answers["list_jobs"] = {
        "kind": "jobs", "jobs": [], "total": 0, "concurrency_limit": 5, "counts": {},
    }  # fmt: skip
    monkeypatch.setenv("PRAXIST_ZMQ_OUTPUT", "json")
    monkeypatch.setenv("PRAXIST_ZMQ_QUEUE_STATE", "running failed")
    assert call("queue").document["kind"] == "queue"
    assert scheduler.requests[-1]["states"] == ["running", "failed"]
    assert call("queue", "-o", "plain", "--state", "queued").out.startswith("JOB\t")
    assert scheduler.requests[-1]["states"] == ["queued"]
    assert call("-q", "queue").out == "", "ids only was typed"
    monkeypatch.setenv("PRAXIST_ZMQ_OUTPUT", "plain")
    assert call("queue", "--json").document["kind"] == "queue"
    assert call("--json", "queue").document["kind"] == "queue"
    monkeypatch.setenv("PRAXIST_ZMQ_COLOR", "mauve")
    assert "(from PRAXIST_ZMQ_COLOR)" in " ".join(call("queue").err.split())


def test_launch_takes_its_options_from_variables(
    scheduler: FakeScheduler, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRAXIST_ZMQ_SUBMIT_PROFILE", "gpu_big")
    monkeypatch.setenv("PRAXIST_ZMQ_SUBMIT_WORK_CLASS", "scout")
    monkeypatch.setenv("PRAXIST_ZMQ_SUBMIT_RETRY_TERMINAL", "1")
    call("submit", "--peer", "p", "--tag", "t", "--", "true")
    request = scheduler.requests[-1]
    assert (request["profile"], request["work_class"]) == ("gpu_big", "scout")
    assert not request["retry_terminal"], "that is meant for one call"


def test_no_option_is_taken_from_a_variable_that_means_something_else() -> None:
    found = variables(command)
    for verb in VERBS:
        loaded = command.get_command(click.Context(command), verb)
        assert loaded is not None
        found += variables(loaded)
    ours = [name for name in found if name.startswith("PRAXIST_ZMQ_")]
    assert len(ours) == len(set(ours))
    taken = ("HOST_DIR", "REGISTRY_IDLE_S", "UNLOCKED", "VENV", "NVML_STUB")
    assert not {f"PRAXIST_ZMQ_{name}" for name in taken} & set(ours)
    for word in ("YES", "ALL", "TAG", "RUN_DIR", "RERUN", "RETRY_TERMINAL", "FOLLOW", "WATCH"):
        assert not [name for name in ours if name.endswith(f"_{word}")]


def test_the_environment_topic_shows_what_is_set(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "  none" in call("help", "environment").out.splitlines()
    monkeypatch.setenv("PRAXIST_ZMQ_LAUNCH_PROFILE", "gpu_work")
    monkeypatch.setenv("PRAXIST_ZMQ_REGISTRY_IDLE_S", "7")
    told = call("help", "environment").out
    assert "  PRAXIST_ZMQ_LAUNCH_PROFILE=gpu_work" in told
    assert "      now: 7\n" in told
    assert max(map(len, told.splitlines())) <= 90


def test_a_run_named_beside_another_variable_is_told_both_mends(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRAXIST_RUN_DIR", str(tmp_path))
    told = call("submit", "--peer", "p", "--tag", "t", "--", "true").err
    assert "  help  leave out --run-dir\n" in told
    assert "  help  to use the other run: unset PRAXIST_RUN_DIR\n" in told


def test_a_pid_of_nobody_is_told_with_its_mend(call: Call) -> None:
    outcome = call("protected", "register", "4194304", "--peer", "p")
    assert outcome.exit_code == 65
    assert outcome.err.splitlines()[1] == "  help  give the pid of one that runs"
