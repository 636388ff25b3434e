"""A submission as a request, checked for what needs no scheduler to be known wrong.

The kernel takes no NUL in an argument, no single string over 131,071 bytes and only so much in
all (execve(2)); better told here, with the item's name, than after a wait in the queue.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import PraxistError
from ..host.paths import check_working_directory
from ..protocol import limits
from ..protocol.os_text import WireText, encoded, to_wire

POINTER_AND_NUL = 9

Text = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def wire_text(value: Text, what: str) -> WireText:
    """The wire form of one string. Raises `bad_command` or `too_large` naming `what`."""
    return to_wire(_checked(value, what))


def _checked(value: Text, what: str) -> bytes:
    try:
        plain = os.fspath(value)
        raw = encoded(plain) if isinstance(plain, str) else plain
    except UnicodeEncodeError:
        raise PraxistError("bad_command", f"{what} has a character that is no byte") from None
    except TypeError:
        raise PraxistError("bad_command", f"{what} is a {type(value).__name__}") from None
    if b"\0" in raw:
        raise PraxistError("bad_command", f"{what} holds a NUL byte")
    if len(raw) > limits.EXEC_STRING_BYTES_MAX:
        raise PraxistError(
            "too_large",
            f"{what} has {len(raw)} bytes; the kernel takes {limits.EXEC_STRING_BYTES_MAX}",
        )
    return raw


def wire_command(command: Iterable[Text]) -> list[WireText]:
    """The wire form of an argument vector."""
    if isinstance(command, (str, bytes)):
        raise PraxistError("bad_command", "the command must be a list of arguments, not one string")
    raws = [_checked(item, f"argument {index}") for index, item in enumerate(command)]
    if not raws or not raws[0]:
        raise PraxistError("bad_command", "the command names no program")
    if len(raws) > limits.ARGUMENTS_MAX:
        raise PraxistError("too_large", f"{len(raws)} arguments; {limits.ARGUMENTS_MAX} at most")
    return [to_wire(raw) for raw in raws]


def wire_environment(environment: Mapping[Any, Any] | None) -> dict[str, WireText]:
    """The wire form of an environment; None is this process's own, byte for byte."""
    source: Mapping[Any, Any] = os.environb if environment is None else environment
    if len(source) > limits.ENVIRONMENT_VARIABLES_MAX:
        raise PraxistError("too_large", f"{len(source)} environment variables")
    wire: dict[str, WireText] = {}
    for name, value in source.items():
        raw = _checked(name, "an environment variable's name")
        try:
            shown = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise PraxistError(
                "bad_command", f"the environment variable {raw[:80]!r} has no UTF-8 name"
            ) from None
        if not shown or "=" in shown:
            raise PraxistError("bad_command", f"{shown[:80]!r} names no environment variable")
        text = wire_text(value, f"environment variable {shown[:80]}")
        _check_pair(shown, raw, text)
        wire[shown] = text
    return wire


class EnvironmentEncoder:
    """`wire_environment` and its size, remembered for the next submission with the same one."""

    def __init__(self) -> None:
        self._source: dict[Any, Any] | None = None
        self._wire: dict[str, WireText] = {}
        self._bytes = 0

    def encode(self, environment: Mapping[Any, Any] | None) -> tuple[dict[str, WireText], int]:
        """The wire form and the bytes it takes. Raises as `wire_environment`."""
        source = dict(os.environb if environment is None else environment)
        if self._source is None or self._source != source:
            wire = wire_environment(source)
            self._source, self._wire, self._bytes = source, wire, environment_bytes(wire)
        return self._wire, self._bytes


def _size(text: WireText) -> int:
    return len(text.encode()) if isinstance(text, str) else len(text["base64"]) * 3 // 4


def _check_pair(shown: str, name: bytes, value: WireText) -> None:
    size = len(name) + 1 + _size(value)
    if size > limits.EXEC_STRING_BYTES_MAX:
        raise PraxistError(
            "too_large",
            f"environment variable {shown[:80]} has {size} bytes with its name; the kernel takes "
            f"{limits.EXEC_STRING_BYTES_MAX}",
        )


def environment_bytes(environment: Mapping[str, WireText]) -> int:
    """What an environment takes of the kernel's limit."""
    return sum(
        len(name.encode()) + 1 + _size(text) + POINTER_AND_NUL for name, text in environment.items()
    )


def check_total(command: list[WireText], variables: int) -> None:
    """Raise `too_large` when command and environment together are over the kernel's limit."""
    arguments = sum(_size(text) + POINTER_AND_NUL for text in command)
    if arguments + variables > limits.EXEC_TOTAL_BYTES_MAX:
        raise PraxistError(
            "too_large",
            f"command ({arguments} bytes) and environment ({variables} bytes) are over the "
            f"{limits.EXEC_TOTAL_BYTES_MAX} bytes that one program can be given",
        )


def submit_request(
    *,
    tag: str,
    command: Iterable[Text],
    peer: str,
    profile: str | None = None,
    work_class: str = "ordinary",
    eta_seconds: float | None = None,
    cwd: Text | None = None,
    environment: Mapping[Any, Any] | None = None,
    generation: int | None = None,
    lease_id: str | None = None,
    retry_terminal: bool = False,
    retry_of: str | None = None,
    same_command: bool = False,
    dry_run: bool = False,
    not_secret: Sequence[str] = (),
    encoder: EnvironmentEncoder | None = None,
) -> dict[str, Any]:
    """The `submit_job` request. Raises `bad_command`, `bad_directory` or `too_large`."""
    words = wire_command(command)
    variables, size = (encoder or EnvironmentEncoder()).encode(environment)
    check_total(words, size)
    directory = _directory(cwd)
    if cwd is not None and "PWD" in variables:
        # The shell's word for where it was: a program that trusts it would work there.
        variables = {**variables, "PWD": directory}
    return {
        "kind": "submit_job",
        "peer": peer,
        "tag": tag,
        "command": words,
        "cwd": directory,
        "environment": variables,
        "profile": profile,
        "work_class": work_class,
        "eta_seconds": eta_seconds,
        "generation": generation,
        "lease_id": lease_id,
        "retry_terminal": retry_terminal or retry_of is not None,
        "retry_of": retry_of,
        "dry_run": dry_run,
        # Only where they are told: a scheduler of an earlier release does not know them.
        **({"same_command": True} if same_command else {}),
        **({"not_secret": list(not_secret)} if not_secret else {}),
    }


def share_environments(jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`jobs`, and their `environments` told once each: a sweep has one, and a message a limit."""
    numbers: dict[str, int] = {}
    environments: list[dict[str, WireText]] = []
    shared = []
    known: tuple[object, int] = (None, -1)
    for job in jobs:
        own = job["environment"]
        if own is not known[0]:
            number = numbers.setdefault(json.dumps(own, sort_keys=True), len(numbers))
            if number == len(environments):
                environments.append(own)
            known = own, number
        shared.append({**job, "environment": {}, "shared_environment": known[1]})
    if len(environments) == len(shared):
        return {"jobs": list(jobs)}
    return {"jobs": shared, "environments": environments}


def cancel_requests(jobs: Sequence[str], **fields: Any) -> Iterator[dict[str, Any]]:
    """`cancel_jobs` requests for any number of jobs, each as large as one may be."""
    for at in range(0, max(len(jobs), 1), limits.CANCEL_JOBS_MAX):
        some = list(jobs[at : at + limits.CANCEL_JOBS_MAX])
        yield {"kind": "cancel_jobs", "jobs": some, **fields}


def _directory(cwd: Text | None) -> WireText:
    try:
        return working_directory(os.getcwd() if cwd is None else cwd)
    except FileNotFoundError:
        raise PraxistError("bad_directory", "this process's own directory is gone") from None


def working_directory(cwd: Text, option: str = "cwd") -> WireText:
    """A directory that a command is to run in, which its sender calls `option`. Raises
    `bad_directory` for one that is none."""
    check_working_directory(cwd, option)
    return wire_text(os.path.abspath(cwd), "cwd")
