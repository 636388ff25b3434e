"""What is kept of a failure: its kind, its telling line, its log, and no secret."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from praxist_zmq import Client
from tests.support.run import Run


@pytest.fixture
def run(shared_run: Run) -> Run:
    return shared_run


@pytest.fixture
def client(run: Run) -> Iterator[Client]:
    with run.client() as client:
        yield client


@pytest.mark.parametrize(
    ("last_line", "actions", "category", "hint"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory", ("exit:1",), "experiment", "(resource)"),
        ("PermissionError: Permission denied: '/data'", ("exit:1",), "experiment", "(permission)"),
        (
            "ModuleNotFoundError: No module named 'flash'",
            ("exit:1",),
            "experiment",
            "(environment)",
        ),
        ("AssertionError: the loss rose", ("exit:1",), "experiment", None),
        ("going well", ("segv",), "experiment", None),
        ("the licence server is away", ("exit:75",), "infrastructure", None),
    ],
)
def test_each_kind_of_failure_has_its_word_and_its_line(
    run: Run,
    client: Client,
    last_line: str,
    actions: tuple[str, ...],
    category: str,
    hint: str | None,
) -> None:
    """S23, where the original went by the words alone."""
    job = run.submit(client, last_line, f"say:{last_line}", *actions).job.job
    ended = client.wait(job, 60)
    assert (ended.state, ended.failure_category) == ("failed", category)
    assert ended.failure_signature == last_line
    assert ended.failure_hint is None if hint is None else str(ended.failure_hint).endswith(hint)


def test_a_secret_in_the_last_line_is_kept_nowhere_but_in_the_experiment_s_own_log(
    run: Run, client: Client
) -> None:
    """S25: a long log, and a secret in its telling line."""
    secret = "tkn-3f9c0a1d77b2-canary"
    environment = {**run.environment, "SERVICE_TOKEN": secret}
    much = "head -c 1000000 /dev/zero | tr '\\0' x; echo;"
    shell = f'{much} echo "No module named x ($SERVICE_TOKEN) {"y" * 400}" >&2; exit 1'
    job = run.submit(client, "tells", command=["sh", "-c", shell], environment=environment).job.job
    ended = client.wait(job, 60)
    assert str(ended.failure_hint).endswith("(environment)")
    assert str(ended.failure_signature).startswith("No module named x (")
    assert len(str(ended.failure_signature)) <= 320
    kept = [ended.failure_signature, run.cli("status", "--json").out, run.cli("show", job).out]
    kept += [path.read_text() for path in run.paths.scheduler.rglob("*.json*") if path.is_file()]
    kept += [os.fsdecode(path.read_bytes()) for path in run.paths.ledger.iterdir()]
    assert not [text for text in kept if secret in str(text)]
    assert secret in run.paths.attempt_log(f"{job}.1").read_text()


@pytest.mark.parametrize(
    ("what", "attempts", "category"),
    [("directory", 2, "infrastructure"), ("log", 1, "environment")],
)
def test_an_attempt_that_cannot_be_prepared_fails_and_holds_nothing(
    run: Run, client: Client, what: str, attempts: int, category: str
) -> None:
    """S63, S64: tried once more where that may help; a link that was planted is not followed."""
    last = run.submit(client, f"before-{what}", "exit:0").job.job
    client.wait(last, 60)
    job = f"j-{int(last[2:]) + 1}"
    victim = run.dir.parent / f"victim-{what}"
    for name in (f"{job}.1", f"{job}.2"):
        place = run.paths.attempt(name) if what == "directory" else run.paths.attempt_log(name)
        place.symlink_to(victim)
    assert run.submit(client, f"planted-{what}", "exit:0").job.job == job
    ended = client.wait(job, 60)
    assert (ended.state, ended.attempts) == ("failed", attempts)
    assert ended.failure_category == category
    assert not victim.exists()
    assert client.status()["running_activity"]["lifecycle_running"] == 0
    assert not [words for words in run.read_lines("start") if words[1].startswith(f"{job}.")]
