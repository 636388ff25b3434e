"""A whole run with dozens of secrets: not one byte of them in any file or output of ours.

The log of an experiment holds what the experiment printed; that file alone is not looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from tests.support import oracle
from tests.support.run import Command, Run
from tests.support.run_fixtures import MakeRun
from tests.support.wait import wait_until

BY_NAME = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "WANDB_API_KEY", "HF_TOKEN", "GITHUB_PAT",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_SAS", "KAGGLE_KEY", "DB_PASSWORD",
    "PGPASSWORD", "MYSQL_PWD", "SSHPASS", "SMTP_PASS", "SENTRY_DSN", "SESSION_COOKIE",
    "CLIENT_SECRET", "TLS_PASSPHRASE", "REDIS_URL", "DATABASE_URL", "GOOGLE_CREDENTIALS_JSON",
    "NPM_AUTH", "SLACK_WEBHOOK_URL", "STORAGE_CONNECTION_STRING",
)  # fmt: skip
BY_SHAPE = (
    "Bearer {}", "Basic {}", "Authorization: token {}", "sk-{}", "ghp_{}", "github_pat_{}",
    "glpat-{}", "xoxb-{}", "AKIA{:.16}", "AIza{0}{0}", "hf_{}", "eyJhbGciOiJIUzI1NiJ9.eyJ{}.c2ln",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", "postgres://u:{}@host/db",
    "https://{}@proxy:3128", "https://:{}@index/simple", "Server=x;Password={}",
    "https://host/blob?sig={}",
)  # fmt: skip


def _made() -> dict[str, tuple[str, str]]:
    """Variable to (value, the bytes that may be nowhere)."""
    made = {}
    for number, name in enumerate(BY_NAME):
        core = f"n{number:02}{secrets.token_hex(10)}"
        made[name] = (core, core)
    for number, form in enumerate(BY_SHAPE):
        core = f"S{number:02}{secrets.token_hex(10)}".upper()
        made[f"HARMLESS_{number}"] = (form.format(core), core[:16])
    return made


def _files(*places: Path) -> Iterator[Path]:
    for place in places:
        for folder, _, names in os.walk(place):
            if folder.endswith("logs/experiments"):
                continue
            yield from (Path(folder) / name for name in names)


def _held(body: bytes, made: dict[str, tuple[str, str]]) -> list[str]:
    return [name for name, (_, core) in made.items() if core.encode() in body]


def _ask_everything(run: Run, jobs: list[str]) -> list[Command]:
    words = [["status"], ["queue", "-a"], ["events"]]
    words.append(["explain", jobs[0]])
    told = [run.cli(*each, "--json") for each in words]
    return [*told, run.cli("ledger", "story", jobs[0])]


def test_no_secret_byte_is_kept_or_told(make_run: MakeRun) -> None:
    run = make_run(slots=2, retries=0)
    made = _made()
    environment = {**run.environment, **{name: value for name, (value, _) in made.items()}}
    token, password = made["HF_TOKEN"][0], made["DB_PASSWORD"][0]
    typed = f"typed{secrets.token_hex(10)}"
    hold = f"while ! [ -e {run.gate('go')} ]; do sleep 0.05; done"
    run.up()
    told: list[Command] = []
    with run.client() as client:
        loud = " ".join(f'"${name}"' for name in made)
        fails = run.submit(
            client, "fails", environment=environment,
            command=["sh", "-c", f"printf '%s\\n' {loud} >&2; echo failed with $0 >&2; exit 9",
                     f"Authorization: Bearer {token}"],
        ).job.job  # fmt: skip
        assert client.wait(fails, 30).exit_code == 9
        missing = run.submit(
            client, "missing", environment=environment, command=[f"/opt/{token}/tool", password]
        ).job.job
        assert client.wait(missing, 30).state == "failed"
        holds = [
            run.submit(
                client, f"holds{number}", environment=environment,
                command=["sh", "-c", hold, token],
            ).job.job
            for number in range(2)
        ]  # fmt: skip
        waits = run.submit(
            client, "waits", environment=environment, command=["true", token]
        ).job.job
        wait_until(lambda: client.show(holds[1]).state == "running", "both to run")
        for command in (
            ["true", "--api-key", typed],
            ["true", f"https://me:{typed}@host/"],
            ["true", f"Authorization: Bearer {typed}"],
        ):
            with pytest.raises(PraxistError) as caught:
                run.submit(client, "literal", environment=environment, command=command)
            assert caught.value.code == "literal_secret"
            assert typed not in str(caught.value)
    words = ["launch", "--peer", "p1", "--tag", f"t/{password}", "--", "true"]
    told += [run.cli(*words, env=environment), run.cli("--json", *words, env=environment)]
    assert [command.status for command in told] == [65, 65]
    run.kill_all()
    run.up()
    with run.client() as client:
        wait_until(
            lambda: client.show(waits).state == "waiting_for_credentials",
            "the secrets to be missed",
        )
        told += _ask_everything(run, [missing])
        told.append(run.cli("cancel", holds[0], "--yes", "--reason", f"uses ghp_{token}"))
        run.open_gate("go")
        again = run.submit(client, "waits", environment=environment, command=["true", token])
        assert again.job.job == waits
        assert client.wait(waits, 30).state == "completed"
    told.append(run.cli("stop", "--yes", "--json"))
    oracle.check_ended(run)
    places = (run.dir.parent, run.host_dir, Path(os.environ["PRAXIST_ZMQ_RUNTIME_DIR"]))
    log = run.paths.attempt_log(f"{fails}.1").read_bytes()
    assert len(_held(log, made)) == len(made), "the experiment had them all"
    made["typed"] = (typed, typed)
    found = {str(path): names for path in _files(*places)
             if path.is_file() and (names := _held(path.read_bytes(), made))}  # fmt: skip
    assert not found
    spoken = [command for command in told if _held((command.out + command.err).encode(), made)]
    assert not spoken


def _told_by_proc(pid: int) -> bytes:
    """What any process of the user can read of another one without its memory."""
    read = b""
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            read += Path(f"/proc/{pid}/{name}").read_bytes()
    return read


def _core_limit(pid: int) -> str:
    """The soft limit on the size of a core dump, in bytes."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line.split()[4] for line in lines if line.startswith("Max core file size"))


def _vaults(pid: int) -> list[str]:
    """Descriptors of the credentials' memory that a process holds."""
    found = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if "praxist-zmq-vault" in os.readlink(entry.path):
                found.append(entry.path)
    return found


def test_queued_jobs_run_with_their_secrets_after_the_broker_was_killed(make_run: MakeRun) -> None:
    """Each kill comes right after an acknowledgement, also of a second broker's."""
    run = make_run(slots=1, retries=0)
    secret = {f"{name}_TOKEN": secrets.token_hex(12) for name in ("FIRST", "SECOND", "THIRD")}
    written = run.dir.parent / "written"
    hold = f"while ! [ -e {run.gate('go')} ]; do sleep 0.05; done"
    run.up()
    told: list[Command] = []
    with run.client() as client:
        run.submit(client, "holds", command=["sh", "-c", hold])
        wait_until(lambda: client.show("tag:holds").state == "running", "the first to run")
        for name, value in secret.items():
            run.submit(
                client, name, environment={**run.environment, name: value},
                command=["sh", "-c", f'printf "%s\\n" "${name}" | sha256sum >> {written}'],
            )  # fmt: skip
            before = run.processes()["broker"]
            assert run.kill("broker")
            wait_until(lambda b=before: run.processes().get("broker", b) != b, "the next broker")
            told.append(run.cli("queue", "--json"))
        assert {client.show(f"tag:{name}").state for name in secret} == {"queued"}
        ours = run.processes()
        for name, pid in ours.items():
            assert not [v for v in secret.values() if v.encode() in _told_by_proc(pid)], name
        holders = {name for name, pid in ours.items() if _vaults(pid)}
        assert holders == {"supervisor", "broker"}
        cores = {name: _core_limit(ours[name]) for name in ("broker", "gateway", "launcher")}
        assert cores["broker"] in ("0", "1")
        assert cores["gateway"] in ("0", "1")
        assert cores["launcher"] == _core_limit(os.getpid()), "experiments inherit it"
        run.open_gate("go")
        for name in secret:
            assert client.wait(f"tag:{name}", 30).state == "completed"
        vault = Path(_vaults(ours["supervisor"])[0])
        right = [hashlib.sha256(v.encode() + b"\n").hexdigest() for v in secret.values()]
        assert [line.split()[0] for line in written.read_text().splitlines()] == right
        wait_until(
            lambda: not any(v.encode() in vault.read_bytes() for v in secret.values()),
            "the values of ended jobs to be wiped",
        )
    places = (run.dir.parent, run.host_dir, Path(os.environ["PRAXIST_ZMQ_RUNTIME_DIR"]))
    everything = [path.read_bytes() for path in _files(*places) if path.is_file()]
    spoken = [(command.out + command.err).encode() for command in told]
    assert not [v for v in secret.values() if any(v.encode() in b for b in everything + spoken)]


def test_the_secrets_go_with_the_run(make_run: MakeRun) -> None:
    run = make_run(slots=1)
    hold = f"while ! [ -e {run.gate('go')} ]; do sleep 0.05; done"
    run.up()
    with run.client() as client:
        run.submit(client, "holds", command=["sh", "-c", hold])
        run.submit(client, "waits", environment={**run.environment, "HF_TOKEN": "gone with it"})
    run.down()
    run.up()
    with run.client() as client:
        wait_until(
            lambda: client.show("tag:waits").state == "waiting_for_credentials",
            "the secret to be missed",
        )
        run.open_gate("go")
    run.cli("stop", "--yes").ok()
