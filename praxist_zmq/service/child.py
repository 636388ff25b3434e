"""One child of the supervisor: its start, what it says on its descriptor, its end.

Holds what is known of the process and decides nothing: whether to start it again is
`service.supervisor`'s work, by the rule of `service.restart`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import ERRORS, PraxistError
from ..host.spawn import Exit, ask_to_end, spawn_child
from .restart import is_passing, is_permanent
from .service_log import find_fatal, open_log, tail

MESSAGE_BYTES_MAX = 65_536
Said = Literal["nothing", "progress", "ready"]

_CODE_OF_EXIT = {
    65: "profile_unsatisfiable",
    73: "path_unusable",
    74: "ledger_write_failed",
    78: "contract_invalid",
}


def service_command(name: str) -> list[str]:
    """How a process of ours is started: this interpreter, and nothing of the working directory."""
    return [sys.executable, "-P", "-m", f"praxist_zmq.service.{name}"]


@dataclass(slots=True)
class Child:
    """A process with a name; `pid` is None while there is none."""

    name: str
    command: list[str]
    log: Path
    passed: int | None = None
    """A descriptor of ours that it inherits."""
    pid: int | None = None
    ready: bool = False
    started_ms: int = 0
    """CLOCK_BOOTTIME milliseconds of its latest start."""
    silent_since_ms: int = 0
    """When it last said something while starting."""
    rest_until_ms: int | None = None
    """When it is started again; None unless it rests after too many restarts."""
    starts: int = 0
    unready_ends: int = 0
    """How often in a row it was given up because it did not get ready."""
    starts_in_vain: int = 0
    """How often in a row it ended by itself before it was ready."""
    messages: int | None = None
    """Read end of its readiness messages while it has not closed them."""
    fatal: dict[str, str] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What it said with its readiness."""
    _stdin: int | None = None
    _heard: bytearray = field(default_factory=bytearray)

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return max(self.starts - 1, 0)

    def start(self, first_line: bytes, now_ms: int) -> None:
        """Spawn it. Raises `start_failed`, `unsafe_path`, `path_unusable`, `no_space`."""
        output = open_log(self.log)
        try:
            self.pid, self._stdin, self.messages = spawn_child(
                self.command, first_line, output, self.passed
            )
        finally:
            os.close(output)
        self.ready = False
        self.fatal = None
        self.facts = {}
        self._heard.clear()
        self.started_ms = self.silent_since_ms = now_ms
        self.starts += 1

    def listen(self, now_ms: int) -> Said:
        """Read what it said. Never blocks; closes the descriptor at its end."""
        said: Said = "nothing"
        while self.messages is not None:
            try:
                piece = os.read(self.messages, MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return said
            self._heard += piece
            if not piece or len(self._heard) > MESSAGE_BYTES_MAX:
                os.close(self.messages)
                self.messages = None
            while b"\n" in self._heard:
                line, _, rest = bytes(self._heard).partition(b"\n")
                self._heard[:] = rest
                said = self._understand(line, now_ms, said)
        return said

    def _understand(self, line: bytes, now_ms: int, before: Said) -> Said:
        try:
            message: Any = json.loads(line)
        except ValueError:
            return before
        if not isinstance(message, dict):
            return before
        self.silent_since_ms = now_ms
        fatal = message.get("fatal")
        if isinstance(fatal, dict):
            self.fatal = {key: str(fatal.get(key, "")) for key in ("code", "detail")}
            return before
        if "progress" in message:
            return before if before == "ready" else "progress"
        self.ready = True
        facts = message.get("ready")
        self.facts = facts if isinstance(facts, dict) else {}
        self.unready_ends = self.starts_in_vain = 0
        return "ready"

    def ask_to_end(self) -> None:
        """SIGTERM, and the end of its stdin: whichever it listens to first."""
        assert self.pid is not None, "only a living child is asked"
        ask_to_end(self.pid)
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    def ended(self) -> int:
        """Close what belonged to the process that was just reaped; its pid."""
        pid = self.pid
        assert pid is not None, "only a started child ends"
        for descriptor in (self.messages, self._stdin):
            if descriptor is not None:
                os.close(descriptor)
        self.messages = self._stdin = self.pid = None
        self.starts_in_vain += not self.ready
        return pid

    def permanent_failure(self, how: Exit, pid: int) -> PraxistError | None:
        """The reason it left, when that is one which a restart cannot mend."""
        fatal = self.fatal or find_fatal(self.log, pid)
        if not is_permanent(how.code):
            return None
        assert how.code is not None
        code = fatal["code"] if fatal and fatal["code"] in ERRORS else _CODE_OF_EXIT[how.code]
        reason = self.reason(how, pid)
        # What is wrong with the contract is wrong with none of our processes.
        return PraxistError(
            code, reason if code == "profile_unsatisfiable" else f"{self.name}: {reason}"
        )

    def passing_failure(self, how: Exit, pid: int) -> PraxistError | None:
        """The reason it left, when that is one which passes, as a full disk does.

        Its exit status is enough: on a full disk its last words are lost.
        """
        if not is_passing(how.code):
            return None
        fatal = self.fatal or find_fatal(self.log, pid) or {"code": "no_space", "detail": ""}
        known = fatal["code"] if fatal["code"] in ERRORS else "no_space"
        return PraxistError(known, f"{self.name}: {fatal['detail'] or how}")

    def reason(self, how: Exit, pid: int) -> str:
        """Why it ended, in one line: its own words, else its exit and the last line of its log."""
        fatal = self.fatal or find_fatal(self.log, pid)
        if fatal:
            return fatal["detail"] or fatal["code"]
        last = self.log_tail().strip().splitlines()[-1:]
        return f"{how}" + (f"; its log ends with: {last[0][-300:]}" if last else "")

    def log_tail(self) -> str:
        """The end of its log."""
        return tail(self.log)
