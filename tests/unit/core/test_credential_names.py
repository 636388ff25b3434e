"""One list of names: whatever bears a credential's name and is given a value in a command."""

from __future__ import annotations

import pytest

from praxist_zmq.core.credential_names import is_secret_name
from praxist_zmq.core.credentials import store_command
from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.events import MixedText
from praxist_zmq.protocol.requests import RetryJob, SubmitJob
from tests.support.broker_world import World

X = "hunter2hunter2XY"
SPELLINGS = (
    "api_key",
    "API_KEY",
    "apiKey",
    "ApiKey",
    "api-key",
    "logger.api_key",
    "X-Api-Key",
    "apikey",
)


@pytest.mark.parametrize("name", [*SPELLINGS, "HF_TOKEN", "hfToken", "--private-key".strip("-")])
def test_a_name_is_its_words_however_they_are_joined(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "command",
    [
        ("env", f"HF_TOKEN={X}", "true"),
        ("x", "--private-key", X),
        ("sh", "-c", f"x --api-key {X}"),
        ("sh", "-c", f"HF_TOKEN={X} x"),
        ("sh", "-c", f"export WANDB_API_KEY='{X}'; x"),
        ("x", f"logger.api_key={X}"),
        ("x", f"+logger.wandb.apiKey={X}"),
        ("x", "--apiKey", X),
        ("x", f"--api-key={X}"),
        ("x", f"-api_key={X}"),
        ("curl", "-u", f"user:{X}", "https://host"),
        ("curl", f"-uuser:{X}", "https://host"),
        ("/usr/bin/curl", "-s", f"--user=user:{X}"),
        ("sh", "-c", f"curl -u user:{X} https://host | tar x"),
        ("curl", "-H", f"X-Api-Key: {X}"),
        ("x", f'{{"api_key": "{X}"}}'),
        ("python", "-c", f"login(token='{X}')"),
        ("x", f"https://host/?token={X}"),
        ("x", f"postgres://me:{X}@host/db"),
        ("x", "--password", "correct horse battery"),
        ("env", f"KAGGLE_KEY={X}"),
        ("sh", "-c", f"x --api-key $MINE; y --auth-token {X}"),
        ("docker", "run", f"--env=HF_TOKEN={X}", "image"),
        ("x", f"--set=logger.api_key={X}"),
        ("python", "-c", f"run = wandb.init(api_key='{X}')"),
        ("python", "-c", f"os.environ['HF_TOKEN'] = '{X}'"),
        ("sh", "-c", f'x "{{\\"api_key\\": \\"{X}\\"}}"'),
        ("curl", "-H", f"authorization: Bearer {X}"),
        ("curl", "-H", f"Authorization: token {X}"),
        ("x", f'{{"Authorization": "Bearer {X}"}}'),
        *[("x", f"--{name}", X) for name in SPELLINGS],
    ],
)
def test_a_credential_in_a_command_is_refused_by_its_name(command: tuple[str, ...]) -> None:
    with pytest.raises(PraxistError) as caught:
        store_command(command, {})
    assert caught.value.code == "literal_secret"
    assert "hunter2" not in str(caught.value) + str(caught.value.help)
    assert "--not-secret" in caught.value.help[1]


@pytest.mark.parametrize(
    "command",
    [
        ("x", "--max-token", "12345678"),
        ("x", "--max_token=12345678"),
        ("x", "--tokenizer", "meta-llama/Llama-3"),
        ("x", "--token-count", "12345678"),
        ("x", "--num-tokens", "12345678"),
        ("x", "--pad-token", "endoftext"),
        ("x", "model.image_key=pixel_values_224"),
        ("x", "--sort-key", "accuracy_at_5"),
        ("x", "--monkey=capuchin1234"),
        ("x", "--api-key", "$WANDB_API_KEY"),
        ("sh", "-c", 'x --api-key "$KEY" --token ${HF_TOKEN}'),
        ("x", "--api-key", "/run/secrets/key"),
        ("x", "--credentials", "conf/service.json"),
        ("x", "--database-url", "sqlite:///study.db"),
        ("python", "-c", "token = tokenizer.eos_token; key = os.environ['HF_TOKEN']"),
        ("python", "-c", "login(token=getpass.getpass())"),
        ("python", "-u", "train.py:main_function"),
        ("docker", "run", "-u", "1000:1000", "image"),
        ("curl", "-u", "user:$PASSWORD", "https://host:8080/path"),
        ("x", "--public-key", X),
        ("x", "--author", "somebody-or-other"),
        ("x", "--path", "keyboard-layouts"),
        ("x", "--use-auth-token", "True"),
        ("docker", "run", "--env=HF_TOKEN", "--env=API_KEY=$API_KEY", "image"),
        ("sh", "-c", 'curl -H "Authorization: Bearer $HF_TOKEN" https://host'),
        ("x", '{"Authorization": "Bearer $HF_TOKEN"}'),
        ("python", "-c", "assert config['auth'] == 'disabled'"),
    ],
)
def test_what_only_sounds_like_one_is_taken(command: tuple[str, ...]) -> None:
    assert store_command(command, {}) == command


def test_what_a_variable_holds_is_none_and_what_stands_beside_it_may_be_one() -> None:
    secrets = {"WANDB_API_KEY": "0123456789abcdef"}
    shell = "x --api-key 0123456789abcdef --rate 3"
    stored = store_command(("sh", "-c", shell), secrets)
    assert isinstance(stored[2], MixedText)
    with pytest.raises(PraxistError):
        store_command(("sh", "-c", f"{shell} --token {X}"), secrets)


@pytest.mark.parametrize("allowed", ["api-key", "api_key", "apiKey"])
def test_a_false_alarm_has_a_way_through_by_its_name_alone(allowed: str) -> None:
    command = ("x", "--api-key", "not-a-secret-at-all")
    assert store_command(command, {}, (allowed,)) == command
    with pytest.raises(PraxistError):
        store_command((*command, "--token", X), {}, (allowed,))


def test_a_false_alarm_of_a_shape_has_one_too() -> None:
    command = ("x", "--model", "sk-learn-forest-of-many-trees")
    with pytest.raises(PraxistError, match="`sk-`"):
        store_command(command, {})
    assert store_command(command, {}, ("sk-",)) == command
    with pytest.raises(PraxistError):
        store_command((*command, "AKIA" + "A" * 16), {}, ("sk-",))


def test_many_words_and_long_runs_cost_no_time_by_the_square() -> None:
    for run in ("a.", "key=", "-", " ", "--a ", "'", "token", "curl -u", "a:", "a=", "a=\"b='"):
        store_command(("sh", "-c", run * (120_000 // len(run))), {})


def test_the_word_of_the_submitter_is_recorded_and_holds_for_a_retry() -> None:
    world = World()
    submission = SubmitJob(
        peer="p", tag="t", command=("x", "--api-key", "not-a-secret-at-all"), cwd="/",
        environment={}, not_secret=("api-key",),
    )  # fmt: skip
    job = world.ask(submission).job.job
    world.settle()
    assert world.broker.state.jobs[job].not_secret == ("api-key",)
    world.finish_one(3)
    world.settle()
    world.ask(RetryJob(job=job, environment={"PWD": "/where/the/sender/is"}))
    world.settle()
    kept = world.broker.state.environments[world.broker.state.jobs[job].environment_id]
    assert kept.variables == {"PWD": "/"}, "where it works"
    assert world.broker.state.jobs[job].state == "running"
    assert world.broker.state.jobs[job].not_secret == ("api-key",)
