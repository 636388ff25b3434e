"""What credentials look like: the shapes of values. Their names are in `credential_names`.

The list follows public secret scanners. Each pattern begins at most once in a run of the characters
that it repeats: a value of many kilobytes, which any peer may send, must not cost time by the
square of its length.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_JWT_HEAD = (
    r"(?<![A-Za-z0-9_-])(?>(?:[A-Za-z0-9_-]*?[_-])??eyJ)[A-Za-z0-9_-]{10,}+"  # run-eyJ... too
)
"""The first part of a JWT, with what is joined before it. Tried once in a run of its characters."""
_SECRET_VALUE = re.compile(
    r"""(?:
        \b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,} | Authorization:
        | \bsk-[A-Za-z0-9_-]{16,} | \bgh[pousr]_[A-Za-z0-9]{16,} | \bgithub_pat_[A-Za-z0-9_]{16,}
        | \bglpat-[A-Za-z0-9_-]{12,} | \bxox[abprs]-[A-Za-z0-9-]{10,} | \bAKIA[0-9A-Z]{16}\b
        | \bAIza[0-9A-Za-z_-]{30,} | \bhf_[A-Za-z0-9]{16,}
        | """
    + _JWT_HEAD
    + r"""\.[A-Za-z0-9_-]+
        | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----
        | (?<![a-z0-9+.-])[0-9+.-]*[a-z][a-z0-9+.-]*://[^\s/@:]*:[^\s/@]+@
        | https?://[^\s/@:]+@
        | (?:accountkey|password|passwd|pwd|secret|token|api_?key|access_?key)=[^\s;&]{4,}
        | [?&](?:sig|signature|x-amz-signature|x-amz-credential|auth|key|code)=[^\s;&]{4,}
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_LITERAL = tuple(
    (mark, re.compile(pattern))
    for mark, pattern in (
        ("sk-", r"\bsk-[A-Za-z0-9_-]{20,}"),
        ("gh", r"\bgh[pousr]_[A-Za-z0-9]{30,}"),
        ("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{30,}"),
        ("glpat-", r"\bglpat-[A-Za-z0-9_-]{16,}"),
        ("xox", r"\bxox[abprs]-[A-Za-z0-9-]{20,}"),
        ("AKIA", r"\bAKIA[0-9A-Z]{16}\b"),
        ("AIza", r"\bAIza[0-9A-Za-z_-]{30,}"),
        ("-----BEGIN ", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
        ("hf_", r"\bhf_[A-Za-z0-9]{30,}"),
        ("eyJ", _JWT_HEAD + r"\.eyJ[A-Za-z0-9_-]+"),
        ("Authorization:", r"Authorization:\s*(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}"),
        (
            "://",
            r"(?<![a-z0-9+.-])[0-9+.-]*[a-z][a-z0-9+.-]*"
            r"://[^\s/@:]*:[^\s/@${<\[][^\s/@]{3,}@",
        ),
    )
)
"""(what every match holds, the pattern). Hardly any text holds one of the marks, and to look for
them takes a tenth of the time that the patterns take."""
LITERAL_CHARS_MIN = 10
"""`a://:bcde@`."""
_TELLING = re.compile(
    r"""Authorization:[^\S\n]*(?:[A-Za-z]+[^\S\n]+)?[^\s'"]+
        | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----(?:(?!-----END)[\s\S])*
          (?:-----END\ [A-Z ]*PRIVATE\ KEY-----)?
        | """
    + _JWT_HEAD
    + r"""(?:\.[A-Za-z0-9_-]+)+""",
    re.VERBOSE | re.IGNORECASE,
)
"""What must go whole from a text for people: all of a header, of a key, of a token."""


def is_secret_value(text: str) -> bool:
    """Whether a variable's value has the shape of a credential."""
    return _SECRET_VALUE.search(text) is not None


def literal_mark(text: str, allowed: Collection[str] = ()) -> str | None:
    """What tells that a credential is written out in a text; None: nothing but what is allowed.
    Stricter than for a variable's value: what is taken for one is refused."""
    if len(text) < LITERAL_CHARS_MIN:
        return None
    for mark, pattern in _LITERAL:
        if mark in text and mark not in allowed and pattern.search(text):
            return mark
    return None


def without_shapes(text: str) -> str:
    """Text for people without anything that has the shape of a credential."""
    return _SECRET_VALUE.sub("[redacted]", _TELLING.sub("[redacted]", text))
