"""Advice is a program: every command that a page or an error names is run, in the state that named
it, and gets where it says. `tests/arch/test_advised_commands.py` looks at the texts alone.
"""

from __future__ import annotations

import re
import shlex
import subprocess

from praxist_zmq.errors import ERRORS
from tests.support.run import Command, Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

_QUOTED = re.compile(r"`(praxist-zmq [^`]+)`")
_PLACEHOLDERS = {"N": "1", "JOB": "j-1", "FILE": "file"}
WRONG = {ERRORS[code].exit_code for code in ("usage", "unknown_job", "internal", "no_run")}
"""Exit statuses of a command that nobody should have been sent to."""


def advised(command: Command) -> list[list[str]]:
    """The commands that an output names, as words without the program's own name."""
    text = re.sub(r"\n {8}(?! )", " ", command.out + "\n" + command.err)
    found = [*_QUOTED.findall(text), *(part.strip() for part in _bare(text))]
    commands = []
    for line in dict.fromkeys(found):
        # What is optional stands in brackets; what people fill in is filled in.
        words = [_PLACEHOLDERS.get(w, w) for w in shlex.split(line.partition(" [")[0])[1:]]
        if words not in commands:
            commands.append(words)
    return commands


def _bare(text: str) -> list[str]:
    """Commands of `next`, `try`, `help` and `YOU CAN` lines, which stand there without quotes."""
    found = []
    for line in text.splitlines():
        if "`" not in line and " praxist-zmq " in line and not line.startswith("  form "):
            found += [part[part.index("praxist-zmq ") :] for part in line.split("   |   ")
                      if "praxist-zmq " in part]  # fmt: skip
    return found


def follow(run: Run, words: list[str]) -> Command:
    """Do what was advised; it must be a command that does something here."""
    if words[:1] == ["up"]:
        command = run.cli("up", "--detach", *words[1:], timeout_s=60)
    else:
        command = run.cli(*words, timeout_s=60)
    assert command.status not in WRONG, (words, command)
    assert "Traceback" not in command.err, command
    return command


def the_one(command: Command, *verbs: str) -> list[str]:
    """The advised command of that verb."""
    chosen = [words for words in advised(command) if [w for w in words if w in verbs]]
    assert chosen, (verbs, command)
    return chosen[0]


def test_what_waits_and_what_runs(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    run.up()
    words = run.evaluator(f"wait:{run.gate('go')}")
    first = run.cli("submit", "--peer", "p1", "--tag", "first", "--", *words).ok()
    run.until_started("j-1.1")
    second = run.cli("submit", "--peer", "p1", "--tag", "second", "--", *words).ok()
    for page in (first, second, run.cli("explain", "j-2"), run.cli("explain", "j-1")):
        commands = advised(page)
        assert commands, page
        for command in commands:
            if not {"wait", "-f", "cancel"} & set(command):
                follow(run, command)
    refused = run.cli("cancel", "j-1")
    assert refused.status == 65
    follow(run, the_one(refused, "cancel")).ok()
    wait_until(lambda: run.show("j-1").state == "cancelled", "j-1 to be ended")
    late = run.cli("wait", "j-2", "--timeout", "0.2")
    assert late.status == 124
    run.open_gate("go")
    assert follow(run, the_one(late, "wait")).status == 0
    follow(run, the_one(second, "wait")).ok()
    run.down()


def test_what_failed(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    words = run.launch_words("t", "say:no data", "codes:3,0")
    assert run.cli(*words).status == 3
    again = run.cli(*words)
    assert again.status == 65
    for command in advised(again):
        follow(run, command)
    explained = run.cli("explain", "tag:t").ok()
    assert follow(run, the_one(explained, "logs")).out.endswith("no data\n")
    follow(run, the_one(explained, "retry")).ok()
    assert run.cli("wait", "tag:t").status == 0
    run.down()


def test_names_that_are_none(make_run: MakeRun) -> None:
    run = make_run(sim="gpus=1,memory=80")
    run.up()
    with run.client() as client:
        run.submit(client, "mixup/seed0", "exit:0")
    for typed in (
        ["show", "j-77"],
        ["generation", "show", "9"],
        ["lease", "decline", "--lease", "nosuch", "--peer", "p1"],
        ["config", "explain", "nosuch"],
        ["quue"],
    ):
        answer = run.cli(*typed)
        assert answer.status != 0, answer
        for command in advised(answer):
            follow(run, command)
    for command in advised(run.cli("lease", "show", "--peer", "p1").ok()):
        assert command == ["lease", "wait", "--peer", "p1"]
    nearly = run.cli("explain", "tag:mixup/seed1")
    assert "tag:mixup/seed0" in nearly.err
    run.down()


def test_a_run_that_is_down_or_stopped(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    with run.client() as client:
        job = run.submit(client, "t", "exit:0").job.job
        client.wait(job, 60)
    run.down()
    for typed in (["status"], ["queue"], ["submit", "--peer", "p", "--tag", "n", "--", "true"]):
        answer = run.cli(*typed)
        assert answer.status in (3, 69), answer
        for command in advised(answer):
            if "up" not in command:
                follow(run, command)
    follow(run, the_one(run.cli("queue"), "up")).ok()
    run.until_healthy()
    already = run.try_up()
    assert already.status == 69
    follow(run, the_one(already, "down")).ok()
    run.up()
    run.cli("stop", "--yes", "--grace", "1s").ok()
    stopped = run.cli("status")
    assert stopped.status == 3
    follow(run, the_one(stopped, "up")).ok()
    assert run.launch("after", "exit:0").status == 0
    run.down()


def test_a_run_that_is_frozen(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    insisted = run.cli("freeze", "--all")
    assert insisted.status == 2
    run.cli("freeze", "--all", "--yes").ok()
    refused = run.launch("t", "exit:0")
    assert refused.status == 69
    follow(run, the_one(refused, "generation")).ok()
    assert run.launch("t", "exit:0").status == 0
    run.down()


def test_a_contract_that_is_wrong_or_can_never_run(make_run: MakeRun) -> None:
    run = make_run()
    wrong = run.contract.with_name("wrong.yaml")
    wrong.write_text("mode: central\nmax_concurrent_experimnts: 2\n")
    refused = run.cli("up", "--detach", "--config", str(wrong))
    assert refused.status == 78
    shown = follow(run, the_one(refused, "config"))
    assert shown.status == 78
    assert "max_concurrent_experiments" in shown.out + shown.err
    never = run.contract.with_name("never.yaml")
    never.write_text("mode: central\nprofiles: {g: {accelerator: gpu}}\ndefault_profile: g\n")
    refused = run.cli("up", "--detach", "--config", str(never))
    assert refused.status == 65
    offered = [words for words in advised(refused) if words[0] == "up"]
    assert len(offered) >= 2, refused
    for words in offered:
        follow(run, [*words, "--config", str(never)]).ok()
        run.down()


def test_a_forgotten_dash_dash_is_told_as_a_command_that_works(make_run: MakeRun) -> None:
    run = make_run()
    run.up()
    forgotten = run.cli("launch", "--peer", "p1", "--tag", "t", "true")
    assert forgotten.status == 2
    words = next(words for words in advised(forgotten) if "--" in words)
    done = subprocess.run(
        [*run.words()[:3], *words], env=run.environment, capture_output=True, check=False
    )
    assert done.returncode == 0
    run.down()
