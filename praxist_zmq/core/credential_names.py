"""Which names bear a credential: of variables, options, assignments, headers and settings alike.

One list for all of them. A name is its words: `apiKey`, `api-key`, `API_KEY` and `logger.api_key`
end with the same two. `named_values` finds the names of a command with what is given to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]|[0-9]+")
_SECRET = re.compile(
    r"""(?:^|_)(?:
        TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PASSCODE|API_?KEYS?|CREDENTIALS?|
        COOKIES?|PAT|DSN|SAS|JWT|BEARER|AUTH|AUTHORIZATION|CREDENTIALS_JSON|
        CONNECTION_STRING|CONN_STR|WEBHOOK|WEBHOOK_UR[IL]|PGPASSWORD|SSHPASS|PGPASS
    )$ | _(?:KEY|PWD|PASS)$
    | (?:^|_)(?:DATABASE|DB|PG|POSTGRES(?:QL)?|MYSQL|MARIADB|REDIS|MONGO(?:DB)?|AMQP|RABBITMQ|
        BROKER|CLICKHOUSE|ELASTIC(?:SEARCH)?|JDBC|KAFKA)_UR[IL]$""",
    re.VERBOSE,
)
_PUBLIC = re.compile(
    r"""(?:^|_)PUBLIC_KEY$ | ^SSH_AUTH_SOCK$
    | (?:^|_)(?:MAX|MIN|NUM|N|TOTAL|PER|PAD|EOS|BOS|UNK|MASK|SEP|CLS|START|END|STOP|IMAGE|SPECIAL)
      _TOKEN$""",
    re.VERBOSE,
)
"""Public keys, and what counts or marks the tokens of a text."""
NAME_CHARACTERS_MAX = 128
"""A longer one is no name that anybody gave."""
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*+"
_GIVEN = r"""(?:"([^"]*)"|'([^']*)'|([^\s"'`;|&,]+))"""
_SCHEME = r"(?i:bearer|basic|token|apikey)\s++"
"""Of an `Authorization` header, before the credential."""
_INNER = rf"""(?:\\?"(?:{_SCHEME})?+([^"]{{0,256}})|'(?:{_SCHEME})?+([^']{{0,256}})
    |(?:{_SCHEME})?+([^\s"'`;|&,]{{1,256}}))"""
"""As `_GIVEN`, its first characters: enough to judge by, and read again for every name in it."""
_ASSIGNED = re.compile(
    rf"""(?<![A-Za-z0-9_.-])-{{0,2}}({_NAME})\\?["']?
    (?:\]\s*+=(?!=)|\s*+(?::(?!//)|==?))\s*+(?={_INNER})""",
    re.VERBOSE,
)
"""What is given to a name may hold names itself: `--env=HF_TOKEN=...`, `key = login(token=...)`."""
_OPTION = re.compile(rf"(?<![^\s\"'(;|&])--?({_NAME})\s++{_GIVEN}")
_OPTION_ALONE = re.compile(rf"--?({_NAME})")
_LOGIN_OPTION = re.compile(r"(?<!\S)(-u|-U|--user|--proxy-user)(?:=|\s++)?['\"]?([^\s'\"]+)")
_LOGIN_PROGRAM = re.compile(r"(?:^|[\s/;|&(])(?:curl|https?|xh)(?=\s|$)")
_LOGIN = re.compile(r"[^\s:/]*:(?![0-9]+$)(?!//)(.+)", re.DOTALL)
_MAYBE = re.compile(
    "token|secret|pass|pwd|key|credential|cookie|pat|dsn|sas|jwt|bearer|auth|conn|webhook|ur[il]"
    "|curl|http|xh",
    re.IGNORECASE,
)
LOGIN = "user"
"""The name under which the password of `curl -u user:password` is told."""


def is_secret_name(name: str) -> bool:
    """Whether what bears that name is a credential, whatever its value."""
    return _kind(name[-NAME_CHARACTERS_MAX:]) == "secret"


def is_public_name(name: str) -> bool:
    """Whether what bears that name is none, whatever its value."""
    return _kind(name[-NAME_CHARACTERS_MAX:]) == "public"


@lru_cache(maxsize=4096)
def _kind(name: str) -> Literal["secret", "public", "plain"]:
    forms = (words_of(name), re.sub(r"[^A-Z0-9]+", "_", name.upper()))
    if any(_PUBLIC.search(form) for form in forms):
        return "public"
    return "secret" if any(_SECRET.search(form) for form in forms) else "plain"


def words_of(name: str) -> str:
    """`X-Api-Key` as `X_API_KEY`."""
    return "_".join(_WORD.findall(name)).upper()


def named_values(words: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    """(argument, name, value) of every credential's name in a command that is given a value: in
    arguments, and in the text of an argument as a shell, a program or a document has it."""
    if _MAYBE.search("\0".join(words)) is None:
        return  # hardly any command has anything of the kind
    login = False
    for index, word in enumerate(words):
        before = _OPTION_ALONE.fullmatch(words[index - 1]) if index else None
        if before is not None and is_secret_name(before[1]):
            yield index, before[1], word
        if login and index and _LOGIN_OPTION.fullmatch(words[index - 1] + " -"):
            yield from _login(index, word)
        inner = _LOGIN_PROGRAM.search(word) is not None
        login |= inner
        if login:
            for found in _LOGIN_OPTION.finditer(word):
                yield from _login(index, found[2])
        for pattern in (_ASSIGNED, _OPTION):
            for found in pattern.finditer(word):
                if is_secret_name(found[1]):
                    yield index, found[1], next(filter(None, found.groups()[1:]), "")


def _login(index: int, text: str) -> Iterator[tuple[int, str, str]]:
    found = _LOGIN.fullmatch(text)
    if found is not None:
        yield index, LOGIN, found[1]
