"""What the kernel will not execute is refused when it is submitted, not when it is started.

Source: execve(2): one string at most 131,071 bytes, all strings together a quarter of the stack
limit, no NUL; environ(7): no `=` in a name.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import PraxistError
from ..protocol import limits
from ..protocol.text import OsText, to_bytes

_POINTER_BYTES = 8


def check_environment(environment: Mapping[str, OsText]) -> int:
    """The bytes an environment takes. Raises `bad_command` or `too_large`, naming the variable."""
    total = 0
    for name, value in environment.items():
        if "=" in name or "\0" in name:
            raise PraxistError("bad_command", f"variable name {name[:80]!r} holds '=' or NUL")
        size = len(name.encode("utf-8", errors="surrogatepass")) + 1
        size += _checked(value, "variable", name)
        _check_string(size, "variable", name)
        total += size + 1 + _POINTER_BYTES
    return total


def check_command(command: tuple[OsText, ...], cwd: OsText, environment_bytes: int) -> None:
    """Raises `bad_command`, `bad_directory` or `too_large`, naming the argument."""
    if not to_bytes(command[0]):
        raise PraxistError("bad_command", "the program's name is empty")
    total = environment_bytes
    for index, argument in enumerate(command):
        size = _checked(argument, "argument", index)
        _check_string(size, "argument", index)
        total += size + 1 + _POINTER_BYTES
    if total > limits.EXEC_TOTAL_BYTES_MAX:
        raise PraxistError(
            "too_large",
            f"arguments and environment have {total} bytes together; "
            f"the limit is {limits.EXEC_TOTAL_BYTES_MAX}",
        )
    where = to_bytes(cwd)
    if not where.startswith(b"/") or b"\0" in where or len(where) > 4095:
        raise PraxistError("bad_directory", "the working directory must be an absolute path")


def _check_string(size: int, kind: str, which: str | int) -> None:
    if size > limits.EXEC_STRING_BYTES_MAX:
        raise PraxistError(
            "too_large",
            f"{_named(kind, which)} has {size} bytes; the kernel takes "
            f"{limits.EXEC_STRING_BYTES_MAX}",
        )


def _checked(text: OsText, kind: str, which: str | int) -> int:
    try:
        raw = to_bytes(text)
    except ValueError:
        raise PraxistError("bad_command", f"{_named(kind, which)} is not valid base64") from None
    if b"\0" in raw:
        raise PraxistError(
            "bad_command", f"{_named(kind, which)} holds a NUL byte; no program can receive one"
        )
    return len(raw)


def _named(kind: str, which: str | int) -> str:
    return f"{kind} {which}" if isinstance(which, int) else f"{kind} {which[:80]!r}"
