"""The rules as short stories: a command, `----`, and everything that followed from it.

Each story runs against the real broker and registry machines with a fake launcher. Run with
`REWRITE_STORIES=1` to write what happens now; commit such a change only if you understand it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.core.narrate import line
from praxist_zmq.protocol import requests as req
from praxist_zmq.protocol.codec import decode_event
from praxist_zmq.protocol.replies import Refusal, Submitted
from tests.support.broker_world import World

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
SEPARATOR = "----"


class Teller:
    """Plays one story and says what follows from each command."""

    def __init__(self) -> None:
        self.world = World(devices=2, limit=2)
        self.told = len(self.world.disk)
        self.world.settle()
        self.told = len(self.world.disk)

    def play(self, command: str) -> list[str]:
        """The lines that follow from one command."""
        verb, *words = shlex.split(command)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        said: list[str] = []
        match verb:
            case "submit":
                said.append(self._submit(options, names))
            case "cancel":
                said += self._cancel(options, names)
            case "stop":
                reply = self.world.ask(req.StopRun(grace_seconds=0))
                said.append(f"client: stopping, rejected {list(reply.rejected)}, "
                            f"ending {list(reply.ending)}")  # fmt: skip
            case "open" | "assess" | "close" | "publish":
                said.append(self._generation(verb, options, names))
            case "pass":
                self.world.pass_time(int(names[0]))
            case "settle":
                self.world.settle()
            case "deliver":
                for _ in range(int(names[0])):
                    self.world.deliver()
            case "finish":
                assert self.world.finish_one(int(names[0])), "nothing runs"
                self.world.settle()
            case "kill":
                {"broker": self.world.crash_broker, "launcher": self.world.crash_launcher}[
                    names[0]
                ]()
            case "show":
                said.append(self._show(names[0]))
            case _:
                raise AssertionError(f"no such command: {verb}")
        return said + self._events()

    def _events(self) -> list[str]:
        new = self.world.disk[self.told :]
        first = self.told + 1
        self.told = len(self.world.disk)
        return [line(n, decode_event(body)).text for n, body in enumerate(new, first)]

    def _submit(self, options: dict[str, str], names: list[str]) -> str:
        reply = self.world.ask(
            req.SubmitJob(
                peer=options.get("peer", "p1"),
                tag=options["tag"],
                command=tuple(options.get("command", "run").split()),
                cwd="/",
                environment={"API_TOKEN": options["token"]} if "token" in options else {},
                profile=options.get("profile"),
                work_class=options.get("class", "ordinary"),  # type: ignore[arg-type]
                eta_seconds=float(options["eta"]) if "eta" in options else None,
                retry_terminal="retry" in names,
            ),
            options.get("id"),
        )
        return _reply(reply)

    def _generation(self, verb: str, options: dict[str, str], names: list[str]) -> str:
        if verb == "publish":
            noted = self.world.ask(req.PublishResult(tag=options["tag"], mature="mature" in names))
            return f"client: published {noted.result.tag} new={noted.new}"
        number = int(names[0])
        request: Any = req.AssessGeneration(generation=number, reason="half time")
        if verb == "open":
            request = req.OpenGeneration(
                generation=number,
                cohort_size=int(options["cohort"]),
                deadline_seconds=float(options["deadline"]),
                mature_quorum=int(options["quorum"]),
                rerun="rerun" in names,
            )
        elif verb == "close":
            request = req.FreezeGeneration(generation=number, reason="closed", signal=True)
        reply = self.world.ask(request)
        signal = " with CLOSING_SIGNAL" if number in self.world.closing else ""
        return (
            f"client: generation {number} {reply.generation.state}{signal}, "
            f"rejected {list(reply.rejected)}, draining {list(reply.draining)}"
        )

    def _cancel(self, options: dict[str, str], names: list[str]) -> list[str]:
        reply = self.world.ask(
            req.CancelJobs(
                jobs=(names[0],),
                peer=options.get("peer"),
                running="running" in names,
                admission_timeout="timeout" in names,
            )
        )
        return [
            f"client: {result.job} {result.outcome} {result.code or ''}".rstrip()
            for result in reply.results
        ]

    def _show(self, name: str) -> str:
        job = self.world.ask(req.ShowJob(job=name)).job
        blockers = ", ".join(blocker.code for blocker in job.blockers)
        text = f"{job.job} {job.state}, attempts {job.attempts}, devices {list(job.gpu_uuids)}"
        return f"client: {text}" + (f", blocked by {blockers}" if blockers else "")


def _reply(reply: Any) -> str:
    if isinstance(reply, Submitted):
        notes = "".join(f"; {note}" for note in reply.notes)
        return f"client: {reply.verdict} {reply.job.job} new={reply.new}{notes}"
    assert isinstance(reply, Refusal)
    return f"client: refused {reply.code}: {reply.detail}"


def retell(text: str) -> str:
    """The story with what really follows in the place of what was written."""
    teller = Teller()
    out: list[str] = []
    blocks = text.strip("\n").split("\n\n")
    for block in blocks:
        lines = block.split("\n")
        if SEPARATOR not in lines:
            out.append(block)
            continue
        command = lines[0]
        out.append("\n".join([command, SEPARATOR, *(teller.play(command) or ["(nothing)"])]))
    return "\n\n".join(out) + "\n"


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path) -> None:
    text = story.read_text()
    told = retell(text)
    if os.environ.get("REWRITE_STORIES"):
        story.write_text(told)
    assert text.count(SEPARATOR) >= 1
    assert told == story.read_text()
