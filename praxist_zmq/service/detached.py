"""Runs a service away from the terminal and tells its starter, by message, how the start went.

One JSON line over a pipe: `{"ready": {...}}` or `{"error": {...}}`. End of file without a line
means that the process died; nothing here depends on time.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import ERRORS, PraxistError
from ..host.spawn import Detached, ask_to_end, detach, leave, wait_for

MESSAGE_BYTES_MAX = 1024 * 1024
Facts = dict[str, Any]


def start_detached(serve: Callable[[Callable[[Facts], None]], object]) -> Facts:
    """Run `serve(announce)` in a process of its own; return what it announced.

    The process goes on after this returns. Raises the PraxistError with which `serve` failed
    before it announced anything, or `start_failed` when it died without a word. An interrupt of
    the starter ends the process again.
    """
    side = detach()
    if isinstance(side, Detached):
        try:
            return _understand(_read(side.messages), side.pid)
        except KeyboardInterrupt:
            ask_to_end(side.pid)
            raise
        finally:
            os.close(side.messages)
    return _serve_and_leave(serve, side)


def _serve_and_leave(serve: Callable[[Callable[[Facts], None]], object], pipe: int) -> NoReturn:
    """The detached process; never returns."""
    open_pipe: list[int] = [pipe]

    def report(message: Facts) -> None:
        while open_pipe:
            descriptor = open_pipe.pop()
            try:
                os.write(descriptor, json.dumps(message).encode() + b"\n")
            except BrokenPipeError:
                logging.getLogger(__name__).warning("whoever started this has not waited")
            finally:
                os.close(descriptor)

    status = 70
    try:
        serve(lambda facts: report({"ready": facts}))
        status = 0
    except PraxistError as error:
        report({"error": {"code": error.code, "detail": error.detail, "help": error.help}})
        status = error.exit_code
    except BaseException as fault:
        logging.getLogger(__name__).exception("a fault of ours")
        report({"error": {"code": "internal", "detail": repr(fault)[:500], "help": []}})
    finally:
        leave(status)


def _read(descriptor: int) -> bytes:
    text = bytearray()
    while not text.endswith(b"\n") and len(text) < MESSAGE_BYTES_MAX:
        piece = os.read(descriptor, 65_536)
        if not piece:
            break
        text += piece
    return bytes(text)


def _understand(line: bytes, pid: int) -> Facts:
    if not line:
        raise PraxistError("start_failed", f"it ended without a word: {wait_for(pid)}")
    message = json.loads(line)
    error = message.get("error")
    if error is not None:
        wait_for(pid)
        code = error["code"] if error["code"] in ERRORS else "start_failed"
        raise PraxistError(code, error["detail"], error["help"])
    facts: Facts = message["ready"]
    return facts
