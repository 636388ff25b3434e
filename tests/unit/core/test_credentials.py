"""Credentials: what counts as one, that none is written, and that commands come back exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from praxist_zmq.core import credentials
from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.events import MixedText, SecretDigest
from praxist_zmq.protocol.text import RawBytes, from_bytes

KEY = b"k" * 32


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "x"),
        ("MY_SERVICE_TOKEN", "x"),
        ("DB_PASSWORD", "x"),
        ("PGPASSWORD", "x"),
        ("SSHPASS", "x"),
        ("GOOGLE_CREDENTIALS_JSON", "{}"),
        ("HARMLESS", "ghp_abcdefghijklmnop1234"),
        ("HARMLESS", "Bearer abcdefgh12345"),
        ("HARMLESS", "https://user:pass@host/simple"),
        ("HTTPS_PROXY", "http://user:pass@proxy:3128"),
        ("HARMLESS", "-----BEGIN RSA PRIVATE KEY-----"),
        ("HARMLESS", "Server=x;Password=hunter22"),
        ("HARMLESS", "-ihttps://user:pass@host/simple"),
        ("HARMLESS", "pip --index-url=https://user:pass@host/simple"),
        ("REDISCLI_AUTH", "x"),
        ("SMTP_PASS", "x"),
        ("DB_PWD", "x"),
        ("SLACK_WEBHOOK_URL", "https://hooks.example/x"),
        ("RABBITMQ_URL", "amqp://x"),
        ("HARMLESS", "https://ghs-token-as-user@github.example/x"),
        ("HARMLESS", "https://:only-password@host/simple"),
        ("HARMLESS", "https://host/blob?sv=1&sig=abcdefgh"),
        ("HARMLESS", "-H Authorization: token abc"),
        ("HARMLESS", "got Bearer abcdefgh12345"),
        ("HARMLESS", "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
        ("HARMLESS", "run_7-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
    ],
)
def test_credentials_are_known_by_name_or_shape(name: str, value: str) -> None:
    assert credentials.is_credential(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin"),
        ("SIGNING_PUBLIC_KEY", "abc"),
        ("HTTPS_PROXY", "http://proxy:3128"),
        ("PIP_INDEX_URL", "https://mirror.example/simple"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MODULE", "the-HeyJohnathanSmith.config_of"),
        ("API_KEY", ""),
        ("MONKEY", "banana"),
        ("MAX_TOKENS", "4096"),
        ("PWD", "/home/me"),
        ("OLDPWD", "/home/me"),
        ("SSH_AUTH_SOCK", "/tmp/ssh/agent"),
        ("REPOSITORY", "ssh://git@github.com/a/b"),
        ("CALLBACK", "https://host/path?page=keyboard"),
    ],
)
def test_ordinary_variables_are_not_credentials(name: str, value: str) -> None:
    assert not credentials.is_credential(name, value)


def test_values_become_keyed_hashes_and_come_back_from_memory() -> None:
    environment = {"API_KEY": "s3cr3t-value", "A": "b", "RAW": RawBytes(base64="/w==")}
    stored, secrets = credentials.split_environment(KEY, environment)
    assert isinstance(stored["API_KEY"], SecretDigest)
    assert "s3cr3t" not in repr(stored)
    assert credentials.restore_environment(stored, secrets) == environment
    assert credentials.restore_environment(stored, {}) is None
    assert credentials.missing_credentials(stored, None) == ["API_KEY"]
    other, _ = credentials.split_environment(b"other", environment)
    assert other["API_KEY"] != stored["API_KEY"]


SECRET = "0123456789abcdef0"


def test_a_value_that_is_not_utf_8_is_known_by_its_shape_too() -> None:
    assert credentials.is_credential("HARMLESS", from_bytes(b"\xffghp_abcdefghijklmnop1234"))
    assert not credentials.is_credential("HARMLESS", from_bytes(b"\xff/usr/bin"))


@pytest.mark.parametrize("other", [f"run --key {SECRET}", from_bytes(b"\xff" + SECRET.encode())])
def test_a_variable_that_repeats_a_credential_is_one(other: str | RawBytes) -> None:
    environment = {"LAST_COMMAND": other, "A": "b", "MY_TOKEN": SECRET}
    stored, secrets = credentials.split_environment(KEY, environment)
    assert [name for name, value in stored.items() if isinstance(value, SecretDigest)] == [
        "LAST_COMMAND",
        "MY_TOKEN",
    ]
    assert credentials.restore_environment(stored, secrets) == environment


def test_what_a_short_value_or_a_path_repeats_stays_plain() -> None:
    environment = {"A_KEY": "mixup", "B": "mixup", "C_KEY": "/home/me/some/where", "D": "/home/me"}
    environment["E"] = "/home/me/some/where/x"
    stored, _ = credentials.split_environment(KEY, environment)
    assert (stored["B"], stored["D"], stored["E"]) == ("mixup", "/home/me", "/home/me/some/where/x")


def test_an_environment_of_very_many_credentials_is_taken_as_nothing_else() -> None:
    environment = {f"N{n}_TOKEN": f"{n:020}" for n in range(credentials.CREDENTIALS_COMPARED_MAX)}
    few, _ = credentials.split_environment(KEY, {**environment, "PLAIN": "x"})
    assert few["PLAIN"] == "x"
    many, _ = credentials.split_environment(KEY, {**environment, "MY_TOKEN": SECRET, "PLAIN": "x"})
    assert isinstance(many["PLAIN"], SecretDigest)


def test_environment_id_depends_on_content_not_order() -> None:
    one = credentials.environment_id({"A": "1", "B": "2"})
    assert one == credentials.environment_id({"B": "2", "A": "1"})
    assert one != credentials.environment_id({"A": "1", "B": "3"})
    assert credentials.environment_id({"A": "1B"}) != credentials.environment_id({"A1": "B"})


@given(
    command=st.lists(st.text(max_size=30), min_size=1, max_size=5),
    secret=st.text(alphabet="abcdefgh", min_size=8, max_size=12),
)
def test_a_stored_command_comes_back_exactly(command: list[str], secret: str) -> None:
    command = [*command, secret, f"x{secret}y{secret}"]
    secrets = {"MY_TOKEN": secret}
    stored = credentials.store_command(tuple(command), secrets)
    assert all(secret not in repr(part) for part in stored)
    assert credentials.restore_command(stored, secrets) == tuple(command)
    assert credentials.restore_command(stored, {}) is None


def test_a_short_secret_is_replaced_only_as_a_whole_argument() -> None:
    stored = credentials.store_command(("run", "abc", "xabcx"), {"PIN_TOKEN": "abc"})
    assert isinstance(stored[1], MixedText)
    assert stored[2] == "xabcx"


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--api-key", "abcdefgh1234"),
        ("run", "--password=abcdefgh1234"),
        ("run", "ghp_" + "a" * 36),
        ("run", "--db-token", "zzzzzzzzzz"),
        ("run", "hf_" + "b" * 34),
        ("run", "https://me:abcdefgh1234@host/simple"),
        ("curl", "-H", "Authorization: Bearer abcdefgh1234"),
        ("run", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
        ("run", "--name=a-run-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
    ],
)
def test_a_literal_credential_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(PraxistError) as caught:
        credentials.store_command(command, {})
    assert caught.value.code == "literal_secret"
    assert "abcdefgh1234" not in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        ("run", from_bytes(b"\xff" + SECRET.encode())),
        ("run", from_bytes(b"\xff\xfebytes-only")),
        ("run", from_bytes(b"\xffghp_" + b"a" * 36)),
        ("run", "--api-key", from_bytes(b"\xff-abcdefgh1234")),
        ("run", f"{SECRET} ghp_{'a' * 36}"),
    ],
)
def test_a_credential_in_bytes_or_beside_another_is_refused(
    command: tuple[str | RawBytes, ...],
) -> None:
    secrets = {"MY_TOKEN": SECRET, "BYTES_TOKEN": from_bytes(b"\xff\xfebytes-only")}
    with pytest.raises(PraxistError) as caught:
        credentials.store_command(command, secrets)
    assert caught.value.code == "literal_secret"
    assert SECRET not in str(caught.value)


def test_bytes_without_a_credential_are_an_argument_like_any_other() -> None:
    command = ("run", from_bytes(b"\xff/data"), "--max-tokens", from_bytes(b"\xff"))
    assert credentials.store_command(command, {"MY_TOKEN": SECRET}) == command


def test_options_that_only_look_alike_are_accepted() -> None:
    command = (
        "run",
        "--max-tokens",
        "100000000",
        "--token",
        "$TOKEN",
        "--secret-seed",
        "12345678",
        "--eos-token",
        "<|endoftext|>",
        "https://host:8080/x",
        "https://u:$PASS@host/",
        "http://localhost:8080/a@b",
    )
    assert credentials.store_command(command, {}) == command


def test_redaction_removes_known_values_and_telling_shapes() -> None:
    text = credentials.redact("failed with s3cr3t-value at https://u:p@h", {"T": "s3cr3t-value"})
    assert "s3cr3t" not in text
    assert "u:p@" not in text


def test_redaction_takes_the_longer_of_two_values_whole() -> None:
    secrets = {"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefgh-and-more"}
    assert credentials.redact("bad abcdefgh-and-more", secrets) == "bad [B_TOKEN]"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("curl: Authorization: Bearer abc.def-ghi failed", "abc.def"),
        ("header 'Authorization: token abcdef1234'", "abcdef1234"),
        ("bad token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("no run-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEabc\nxyz\n-----END PRIVATE KEY-----\ndone", "MIIEabc"),
        ("-----BEGIN EC PRIVATE KEY-----\nMIIEabc\ncut", "MIIEabc"),
        ("GET https://h/b?sig=abcdefgh&x=1", "abcdefgh"),
    ],
)
def test_redaction_takes_all_of_a_header_a_key_and_a_token(text: str, secret: str) -> None:
    assert secret not in credentials.redact(text, {})


@given(st.text(alphabet="eyJ.Bar:/@=-h tps?&sig", max_size=4000))
def test_a_long_value_costs_no_square_of_its_length(value: str) -> None:
    credentials.redact(value * 20, {})


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("mixup/ghp_" + "a" * 36, {}),
        (from_bytes(b"/data/\xffghp_" + b"a" * 36), {}),
        ("/data/0123456789abcdef0/x", {"MY_TOKEN": "0123456789abcdef0"}),
        ("/data/0123456789ab/x", {"MY_TOKEN": "0123456789ab"}),
        ("runs/Hunter2!0123456789", {"DB_PASSWORD": "Hunter2!"}),
    ],
)
def test_a_credential_in_what_is_shown_as_it_is_is_refused(
    text: str | RawBytes, secrets: dict[str, str | RawBytes]
) -> None:
    with pytest.raises(PraxistError) as caught:
        credentials.refuse_in_plain("the tag", text, secrets)
    assert caught.value.code == "literal_secret"
    assert "0123456789" not in str(caught.value)


def test_a_word_that_a_short_value_or_a_path_also_is_may_stand_in_a_tag() -> None:
    secrets = {"PROJECT_KEY": "mixup", "KEY_DIR_SECRET": "/home/me/some/where"}
    secrets |= {"STUDY_KEY": "resnet-wide", "SHORT_KEY": "seed0"}
    credentials.refuse_in_plain("the tag", "resnet-wide/seed0", secrets)
    credentials.refuse_in_plain("the tag", "mixup/seed0", secrets)
    credentials.refuse_in_plain("the directory", "/home/me/some/where/x", secrets)


@pytest.mark.parametrize(
    "piece",
    [
        "a-",
        "eyJ-",
        "-eyJ",
        "_",
        "a_eyJ0 ",
        "a.b+",
        "-----BEGIN ",
        "sk-",
        "a://b:",
        "xoxb-",
        "token=",
    ],
)
def test_long_values_are_looked_at_in_one_pass(piece: str) -> None:
    # By the square of its length this would take hours.
    value = piece * (1_000_000 // len(piece))
    assert credentials.redact(value, {}) in (value, "[redacted]")


PLAIN_KEY = "sk-" + "a1B2" * 6


@pytest.mark.parametrize("place", range(3))
def test_one_literal_among_several_texts_is_named(place: int) -> None:
    texts = [(f"text {number}", "plain") for number in range(3)]
    credentials.refuse_each_in_plain(texts, {})
    texts[place] = (f"text {place}", f"/x/{PLAIN_KEY}")
    with pytest.raises(PraxistError, match=f"text {place} looks like a credential"):
        credentials.refuse_each_in_plain(texts, {})
    words = ["echo", "a", "b"]
    words[place] = PLAIN_KEY
    with pytest.raises(PraxistError, match=f"argument {place} looks like a credential"):
        credentials.store_command(tuple(words), {})


def test_nothing_is_read_across_the_border_of_two_texts() -> None:
    texts = [("the tag", "postgres://user:hunter22"), ("the directory", "/@host")]
    credentials.refuse_each_in_plain(texts, {})
    assert credentials.store_command(("x://u:longer", "@y"), {}) == ("x://u:longer", "@y")
