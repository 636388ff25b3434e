"""How credentials are kept out of everything that is written.

What is one, `credential_names` and `credential_shapes` tell: by the name that a value is given to,
or by the shape of the value (of a URL only when it names a user). A credential is stored as
HMAC-SHA256 over name, NUL and value under a key that is not in the ledger (a plain hash would let
anyone with the ledger test guesses).
Source: seed 000 "State And Compatibility" (last paragraph).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import shlex
from collections.abc import Collection, Iterable, Mapping

from ..errors import PraxistError
from ..protocol import limits
from ..protocol.events import MixedText, SecretDigest, SecretSpan, StoredCommand, StoredText
from ..protocol.text import OsText, RawBytes, display, to_bytes
from .credential_names import LOGIN, is_public_name, is_secret_name, named_values, words_of
from .credential_shapes import is_secret_value, literal_mark, without_shapes

LEASE_VARIABLE = "PRAXIST_RESOURCE_SUPPLY_LEASE_ID"

_NOT_LITERAL = ("$", "-", "/", "@", "<", "[", "{")
"""What begins so is a reference, another option, a path, or a word of a tokenizer's."""
_REFERENCE = re.compile(
    r"""[A-Za-z_][\w.]*[(\[] | [a-z_]\w*(?:\.[a-z_]\w*)+$ | \.\.?/ | ~
    | .*\.(?:json|ya?ml|toml|ini|env|txt|pem|key|crt|pub)$""",
    re.VERBOSE,
)
"""A call, a setting of a program's, a file: where a value is, not the value."""
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_OWN_KEYS = ("API_KEY", "ACCESS_KEY", "SECRET_KEY", "ACCOUNT_KEY", "AUTH_KEY", "PRIVATE_KEY")
_KEY_VALUE = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+/=]{16,}")
"""What no key of a dictionary looks like."""
_LOGIN_LENGTH_MIN = 4
_PLAIN_LENGTH_MIN = 16
"""A shorter value in a tag or a path may be a word that somebody also uses there: it is taken for
one when it is of one kind of character, or very short."""
_JOINS = "-_./ "
"""What joins words in tags and paths."""
_INNER_LENGTH_MIN = 8
"""A shorter value inside an argument is as likely to be chance as the secret."""
CREDENTIALS_COMPARED_MAX = 64
"""An environment with more long ones is taken as nothing but credentials: to look for each of very
many in all the rest would cost time by the square of what a peer may send."""
_SPAN_BYTES = 24
"""What the JSON of a span takes besides the name, with the text around it."""


def is_credential(name: str, value: OsText) -> bool:
    """Whether a variable bears a credential, by its name or by the shape of its value."""
    if not value or is_public_name(name):
        return False
    if is_secret_name(name):
        return True
    return is_secret_value(_legible(value))


def _legible(text: OsText) -> str:
    """What shapes are looked for in: a byte that is no text must not look like part of a word."""
    return text if isinstance(text, str) else to_bytes(text).decode("utf-8", errors="replace")


def digest(key: bytes, name: str, value: OsText) -> SecretDigest:
    """The keyed hash that stands for a credential."""
    message = name.encode("utf-8", errors="surrogatepass") + b"\0" + to_bytes(value)
    return SecretDigest(hmac_sha256=hmac.new(key, message, hashlib.sha256).hexdigest())


def split_environment(
    key: bytes, environment: Mapping[str, OsText]
) -> tuple[dict[str, OsText | SecretDigest], dict[str, OsText]]:
    """(what may be written, the credential values that stay in memory)."""
    secrets = {name: value for name, value in environment.items() if is_credential(name, value)}
    repeating = _repeats_one(secrets, environment)
    stored: dict[str, OsText | SecretDigest] = {}
    for name, value in environment.items():
        if name in repeating:
            secrets[name] = value
        stored[name] = digest(key, name, value) if name in secrets else value
    return stored, secrets


def _repeats_one(secrets: Mapping[str, OsText], environment: Mapping[str, OsText]) -> set[str]:
    """Variables that are none by themselves and hold the value of one, as the last command line
    of a shell may."""
    long = {to_bytes(value) for value in secrets.values()}
    long = {raw for raw in long if len(raw) >= _PLAIN_LENGTH_MIN and not raw.startswith(b"/")}
    plain = {name: to_bytes(value) for name, value in environment.items() if name not in secrets}
    if len(long) > CREDENTIALS_COMPARED_MAX:
        return set(plain)
    whole = b"\0".join(plain.values())
    found = [raw for raw in long if raw in whole]
    return {name for name, value in plain.items() if any(raw in value for raw in found)}


def environment_id(stored: Mapping[str, OsText | SecretDigest]) -> str:
    """sha256 of an environment's canonical form."""
    hasher = hashlib.sha256()
    for name in sorted(stored):
        value = stored[name]
        hasher.update(name.encode("utf-8", errors="surrogatepass") + b"\0")
        if isinstance(value, SecretDigest):
            hasher.update(b"h" + value.hmac_sha256.encode())
        else:
            hasher.update(b"v" + to_bytes(value))
        hasher.update(b"\0\0")
    return hasher.hexdigest()


def restore_environment(
    stored: Mapping[str, OsText | SecretDigest], secrets: Mapping[str, OsText]
) -> dict[str, OsText] | None:
    """The whole environment again, or None when a credential's value is not in memory."""
    whole: dict[str, OsText] = {}
    for name, value in stored.items():
        if isinstance(value, SecretDigest):
            if name not in secrets:
                return None
            whole[name] = secrets[name]
        else:
            whole[name] = value
    return whole


def missing_credentials(
    stored: Mapping[str, OsText | SecretDigest], secrets: Mapping[str, OsText] | None
) -> list[str]:
    """Names of the credential variables whose values are not in memory."""
    known = secrets or {}
    return [n for n, v in stored.items() if isinstance(v, SecretDigest) and n not in known]


def store_command(
    command: tuple[OsText, ...], secrets: Mapping[str, OsText], not_secret: Collection[str] = ()
) -> StoredCommand:
    """The command with every credential value replaced by the name of its variable.

    `not_secret` are names that the submitter says bear none in this command. Raises PraxistError
    `literal_secret` for a credential that no variable holds, `too_large` when the names would take
    so much more than the values that no record of the ledger could hold them.
    """
    values = sorted(
        ((n, v) for n, v in secrets.items() if isinstance(v, str) and v),
        key=lambda item: -len(item[1]),
    )
    for index, word in enumerate(command):
        if isinstance(word, RawBytes):
            _refuse_in_bytes(index, word, secrets)
    stored: StoredCommand = command
    if values:
        _check_growth(command, values)
        stored = tuple(_store_argument(argument, values) for argument in command)
    _refuse_literal(stored, frozenset(map(words_of, not_secret)) | frozenset(not_secret))
    return stored


def _check_growth(command: tuple[OsText, ...], values: list[tuple[str, str]]) -> None:
    grown = 0
    for argument in command:
        if isinstance(argument, RawBytes):
            continue
        for name, value in values:
            if len(value) >= _INNER_LENGTH_MIN or argument == value:
                size = len(name.encode("utf-8", errors="surrogatepass")) + _SPAN_BYTES
                grown += argument.count(value) * size
    if grown > limits.SECRET_SPANS_BYTES_MAX:
        raise PraxistError(
            "too_large",
            "the command repeats credential values too often; let the program read the variables",
        )


def _store_argument(argument: OsText, values: list[tuple[str, str]]) -> StoredText:
    if isinstance(argument, RawBytes):
        return argument
    parts: list[str | SecretSpan] = [argument]
    for name, value in values:
        if len(value) < _INNER_LENGTH_MIN and argument != value:
            continue
        split: list[str | SecretSpan] = []
        for part in parts:
            if isinstance(part, SecretSpan) or value not in part:
                split.append(part)
                continue
            pieces = part.split(value)
            for number, piece in enumerate(pieces):
                if number:
                    split.append(SecretSpan(variable=name))
                if piece:
                    split.append(piece)
        parts = split
    if all(isinstance(part, str) for part in parts):
        return argument
    return MixedText(parts=tuple(parts))


def _refuse_in_bytes(index: int, word: RawBytes, secrets: Mapping[str, OsText]) -> None:
    """Only text is stored in parts."""
    raw = to_bytes(word)
    for name, value in secrets.items():
        inner = to_bytes(value)
        if inner and (inner == raw or (len(inner) >= _INNER_LENGTH_MIN and inner in raw)):
            raise PraxistError(
                "literal_secret",
                f"argument {index} holds the value of {name[:64]} and is not UTF-8; let the "
                "program read the variable",
            )


def _refuse_literal(command: StoredCommand, allowed: frozenset[str]) -> None:
    """What is beside a credential of a variable may be one of no variable."""
    texts = tuple(
        # A variable's value is where a `$` is.
        "".join(part if isinstance(part, str) else "$" for part in word.parts)
        if isinstance(word, MixedText)
        else _legible(word)
        for word in command
    )
    # All at once first: hardly any command holds anything of the kind.
    if literal_mark("\0".join(texts)) is not None:
        for index, text in enumerate(texts):
            mark = literal_mark(text, allowed)
            if mark is not None:
                raise _literal(index, f"by `{mark}`", mark)
    for index, name, value in named_values(texts):
        if words_of(name) not in allowed and _is_written_out(name, value):
            raise _literal(index, f"by the name `{display(name[:64])}`", name)


def _is_written_out(name: str, value: str) -> bool:
    """Whether a value that a credential's name is given is one itself, and says not only where
    one is."""
    if name == LOGIN:
        return len(value) >= _LOGIN_LENGTH_MIN and not value.startswith(_NOT_LITERAL)
    if len(value) < _INNER_LENGTH_MIN or value.startswith(_NOT_LITERAL) or _REFERENCE.match(value):
        return False
    words = words_of(name)
    if _URL.match(value) and "WEBHOOK" not in words:
        return False  # what is one in a URL, its shape tells
    if words.endswith("_KEY") and not words.endswith(_OWN_KEYS):
        return _KEY_VALUE.fullmatch(value) is not None
    return True


def _literal(index: int, how: str, name: str) -> PraxistError:
    return PraxistError(
        "literal_secret",
        f"argument {index} looks like a credential, {how}; nothing was written",
        [
            "put the secret in an environment variable and let the program read that",
            f"if it is none: --not-secret {shlex.quote(name[:64])}; its value is then kept and "
            "shown as it is",
        ],
    )


def restore_command(
    command: StoredCommand, secrets: Mapping[str, OsText]
) -> tuple[OsText, ...] | None:
    """The exact command again, or None when a credential's value is not in memory."""
    whole: list[OsText] = []
    for argument in command:
        if isinstance(argument, MixedText):
            text = ""
            for part in argument.parts:
                if isinstance(part, str):
                    text += part
                    continue
                value = secrets.get(part.variable)
                if not isinstance(value, str):
                    return None
                text += value
            whole.append(text)
        else:
            whole.append(argument)
    return tuple(whole)


def redact(text: str, secrets: Mapping[str, OsText]) -> str:
    """Text for people with every known credential value and every telling shape removed."""
    return redact_all(text, (secrets,))


def redact_all(text: str, known: Iterable[Mapping[str, OsText]]) -> str:
    """The same with the values of many jobs."""
    pairs = dict.fromkeys((display(v), name) for vault in known for name, v in vault.items())
    # The longest first: one value may be the beginning of another.
    for shown, name in sorted(pairs, key=lambda pair: -len(pair[0])):
        if len(shown) >= 4:
            text = text.replace(shown, f"[{name}]")
    return without_shapes(text)


def refuse_in_plain(what: str, text: OsText, secrets: Mapping[str, OsText]) -> None:
    """Raises PraxistError `literal_secret` for a credential in what is kept and shown as it is: a
    tag, a directory."""
    shown = display(text)
    for name, value in secrets.items():
        inner = display(value)
        if _tells_in_plain(inner) and not inner.startswith("/") and inner in shown:
            raise PraxistError("literal_secret", f"{what} holds the value of {name[:64]}")
    if literal_mark(_legible(text)) is not None:
        raise PraxistError("literal_secret", f"{what} looks like a credential; nothing was written")


def refuse_each_in_plain(
    texts: Collection[tuple[str, OsText]], secrets: Mapping[str, OsText]
) -> None:
    """`refuse_in_plain` for several texts with their names."""
    if secrets or literal_mark("\0".join([_legible(text) for _, text in texts])):
        for what, text in texts:
            refuse_in_plain(what, text, secrets)


def _tells_in_plain(value: str) -> bool:
    """Whether a value that stands in a tag or a path is no word that is used there anyway."""
    if len(value) >= _PLAIN_LENGTH_MIN:
        return True
    kinds = (str.islower, str.isupper, str.isdigit, lambda c: not c.isalnum() and c not in _JOINS)
    mixed = sum(any(kind(character) for character in value) for kind in kinds)
    return len(value) >= _INNER_LENGTH_MIN and mixed >= 2
