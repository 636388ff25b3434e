"""Words for people: safe text, spans of time, stamps, cutting to a width.

A tag, a peer's name or a log line is text that somebody else chose. Nothing of it may steer the
reader's terminal, so every control character is shown as an escape. Never reads a clock, never
prints. Standard library only: the fast verbs import this module.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from typing import Any

from ..protocol.envelope import Json

PROGRAM = "praxist-zmq"
LINE_COLUMNS = 100

# C0, DEL and C1 controls; line and paragraph separators; the marks that reorder text or hide in
# it; and the half characters that stand for undecodable bytes (PEP 383).
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


_GAP = re.compile(r" {2,}(?=[^ ])|^ +(?=[^ ])")
_WORDS = re.compile(r" *(?:[^ `]*`[^`]*`[^ `]*|[^ ]+)")


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe(text: object) -> str:
    """`text` with everything that could steer a terminal as backslash escapes."""
    return _UNSAFE.sub(_escape, str(text))


def cells(text: str) -> int:
    """Terminal columns that safe text takes."""
    if text.isascii():
        return len(text)
    return sum(_cell(character) for character in text)


def _cell(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0  # a mark on the character before it
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """Safe text in at most `columns` columns; a cut is marked by `+`."""
    if cells(text) <= columns:
        return text
    taken = 0
    for index, character in enumerate(text):
        taken += _cell(character)
        if taken > columns - 1:
            return text[:index] + "+"
    return text


def cut_middle(text: str, columns: int) -> str:
    """Safe text in at most `columns` columns; what is left out of the middle is marked by `+`.

    Of a name, the end tells more than the middle: two thirds of the room are the end's.
    """
    if cells(text) <= columns:
        return text
    head = max((columns - 1) // 3, 0)
    return cut(text, head + 1)[:-1] + "+" + _last(text, columns - 1 - head)


def _last(text: str, columns: int) -> str:
    taken = 0
    for index in range(len(text) - 1, -1, -1):
        taken += _cell(text[index])
        if taken > columns:
            return text[index + 1 :]
    return text


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: `1 job`, `2 jobs`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def progress_text(progress: dict[str, Any]) -> str:
    """What a job told of its progress: `3/6 fold 3`."""
    return f"{progress['done']}/{progress['total']} {progress['text']}".rstrip()


def run_words(run: dict[str, Any]) -> str:
    """Another run that holds something: `r1`, `r1 (down)` when no scheduler serves it."""
    return safe(run["run_id"]) + (" (down)" if run["down"] else "")


def queued_at(job: Json) -> str | None:
    """When a job was last put in the queue: a retry does not wait since its first submission."""
    stamp = job.get("queued_at") or job.get("submitted_at")
    return None if stamp is None else str(stamp)


def span(seconds: float | None) -> str:
    """A length of time in words: `41s`, `2m10s`, `1h24m`, `3d4h`; `unknown` for None."""
    if seconds is None:
        return "unknown"
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{seconds:.1f}s" if 0 < seconds < 10 else f"{whole}s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes}m{rest:02d}s"
    if whole < 86_400:
        hours, rest = divmod(whole, 3600)
        return f"{hours}h{rest // 60:02d}m"
    days, rest = divmod(whole, 86_400)
    return f"{days}d{rest // 3600}h"


def age(seconds: float | None) -> str:
    """A rounded length of time for a table's column: `3m`, `2h`, `?` for None."""
    if seconds is None:
        return "?"
    whole = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def parse_stamp(text: str | None) -> float | None:
    """Seconds since 1970 of an RFC 3339 time; None when there is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def local_time(when: str | float | None) -> str:
    """The local date and time, `2026-03-01 15:12:31`, of an RFC 3339 time or of seconds since 1970.

    `unknown` for what is none. Every page for people tells times so; documents and logs tell them
    in UTC (RFC 3339).
    """
    seconds = parse_stamp(when) if isinstance(when, str) else when
    if seconds is None:
        return "unknown"
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def between(first: str | None, last: str | None) -> float | None:
    """Seconds from one RFC 3339 time to another; None when either is unknown."""
    start, end = parse_stamp(first), parse_stamp(last)
    return None if start is None or end is None else max(0.0, end - start)


_SIMULATED = re.compile(r"^GPU-00000000-0000-4000-8000-([0-9a-f]{12})$")
_DEVICE = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def is_simulated(uuid: str) -> bool:
    """Whether a device's name is one of the simulated ones."""
    return _SIMULATED.match(uuid) is not None


def device_name(uuid: str) -> str:
    """A device in few letters: `GPU 3` when simulated, else the head of its name."""
    match = _SIMULATED.match(uuid)
    if match:
        return f"GPU {int(match.group(1), 16)}"
    return "GPU " + safe(uuid.removeprefix("GPU-"))[:8]


def devices(uuids: list[str]) -> str:
    """Where an attempt runs: `cpu`, `GPU 0`, `GPU 0,1`; `SIMULATED` is said."""
    if not uuids:
        return "cpu"
    names = ",".join(device_name(uuid).removeprefix("GPU ") for uuid in uuids)
    simulated = " SIMULATED" if any(is_simulated(uuid) for uuid in uuids) else ""
    return f"GPU {names}{simulated}"


def named_devices(text: str) -> str:
    """A text of the scheduler with every device named as the tables name it."""
    return _DEVICE.sub(lambda match: device_name(match.group()), text)


def fitted(line: str, columns: int) -> list[str]:
    """A safe line broken at spaces; later lines begin under the text of the first."""
    if cells(line) <= columns:
        return [line]
    starts = [match.end() for match in _GAP.finditer(line) if match.end() <= columns // 2]
    indent = starts[-1] if starts else 0
    return _broken(line[:indent], line[indent:], " " * (indent or 4), columns)


def wrapped(label: str, text: str, columns: int = LINE_COLUMNS) -> list[str]:
    """`  label text` broken at spaces; later lines are indented to the text."""
    return _broken(f"  {label:<5} ", safe(text), " " * 8, columns)


def _broken(head: str, text: str, indent: str, columns: int) -> list[str]:
    """Lines of `text` after `head`; what stands between backticks stays whole if it can."""
    lines: list[str] = []
    now, bare = head, True
    for word in _WORDS.findall(text):
        # What is too long for any line gains nothing by a line of its own.
        fits_alone = len(indent) + cells(word.lstrip()) <= columns
        if not bare and fits_alone and cells(now) + cells(word) > columns:
            lines.append(now.rstrip())
            now, bare = indent, True
        now, bare = now + (word.lstrip() if bare else word), False
    return [*lines, now.rstrip()]
