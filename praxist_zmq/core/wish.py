"""A submission after its own validation, before it meets what is there."""

from __future__ import annotations

from typing import Literal

from ..protocol.events import StoredCommand
from ..protocol.requests import SubmitJob
from .soft import PreparedEnvironment
from .state import Job
from .turn import Refused, Turn
from .views import view

ProfileSource = Literal["named", "default", "stored"]


class Wish:
    """A submission after its own validation, before it meets what is there."""

    __slots__ = ("command", "generation", "identity", "prepared", "profile", "source", "submission")

    def __init__(
        self,
        submission: SubmitJob,
        profile: str,
        command: StoredCommand,
        prepared: PreparedEnvironment,
        generation: int,
        identity: str,
        source: ProfileSource,
    ) -> None:
        self.submission = submission
        self.profile = profile
        self.command = command
        self.prepared = prepared
        self.generation = generation
        self.identity = identity
        self.source = source

    @property
    def eta_ms(self) -> int | None:
        """The run time that it declares."""
        seconds = self.submission.eta_seconds
        return None if seconds is None else round(seconds * 1000)

    def check_same_command(self, turn: Turn, job: Job) -> None:
        """Refuse to join another command's job, or to take its result, where that was asked for."""
        if not self.submission.same_command or self.command == job.command:
            return
        raise Refused(
            "other_command",
            f"{job.job} holds the tag {job.tag!r} with another command and is {job.state}",
            [f"see its command: praxist-zmq show {job.job}", "give other science another --tag"],
            view(turn, job),
        )

    def differences(self, job: Job) -> list[str]:
        """What this request has other than the job that holds its identity. The environment is
        not named: two terminals of one peer hardly ever agree in it."""
        found = []
        if self.command != job.command:
            found.append("command")
        if self.profile != job.profile:
            found.append("profile")
        if self.submission.work_class != job.work_class:
            found.append("work class")
        if self.submission.cwd != job.cwd:
            found.append("working directory")
        if self.eta_ms != job.eta_ms:
            found.append("ETA")
        return found
