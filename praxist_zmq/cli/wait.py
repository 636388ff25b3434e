"""`wait`: block until jobs have ended; one line a change; exit by result."""

from __future__ import annotations

import click

from ..errors import PraxistError
from ..protocol.envelope import Json
from . import output
from .connect import Caller, ask, ask_job, connect
from .documents import head, job_body, job_document
from .duration import DURATION
from .feed import Feed
from .settings import Settings, global_options, settings_of
from .verdict import (
    alive_line,
    change_line,
    exit_of,
    final_line,
    is_terminal_state,
    own_code_lines,
    phase,
)
from .waiting import HEARTBEAT_S, changes, mono_s, now_s
from .words import count, local_time, safe

LIST_LIMIT = 10_000


@click.command("wait")
@click.argument("jobs", nargs=-1, metavar="JOB...")
@click.option("--peer", metavar="P", help="All jobs of this peer in the current generation.")
@click.option("--all", "everything", is_flag=True, help="All jobs of the current generation.")
@click.option("--any", "any_one", is_flag=True, help="End with the first job that ends.")
@click.option(
    "--timeout",
    "limit",
    type=DURATION,
    metavar="DUR",
    help="Stop waiting for the jobs then; they go on (exit 124).",
)
@global_options(without=("timeout",))
@click.pass_context
def command(
    ctx: click.Context,
    jobs: tuple[str, ...],
    peer: str | None,
    everything: bool,
    any_one: bool,
    limit: float | None,
) -> int:
    """Wait until jobs have ended.

    One job: exit with its code. Several: 0 if all completed, else 1. Of a peer, and with --all,
    what has ended before counts too, and what goes on of an earlier generation.

    \b
    praxist-zmq wait j-12
    praxist-zmq wait --peer p1 --timeout 9m
    """
    if bool(jobs) + (peer is not None) + everything != 1:
        raise click.UsageError("name jobs, or --peer P, or --all", ctx)
    settings = settings_of(ctx)
    settings.about = " ".join(jobs) if jobs else f"--peer {peer}" if peer is not None else "--all"
    waiting = _Waiting(settings, any_one, None if limit is None else mono_s() + limit)
    with connect(waiting.settings) as client:
        try:
            return waiting.run(client, jobs, peer)
        except KeyboardInterrupt:
            told = f"{jobs[0]} goes on" if len(jobs) == 1 else "the jobs go on"
            raise PraxistError(
                "interrupted", told, [f"`praxist-zmq wait {settings.about}` waits on"]
            ) from None


def _number(job: str) -> int:
    return int(job.removeprefix("j-"))


class _Waiting:
    """One call of `wait`."""

    def __init__(self, settings: Settings, any_one: bool, until_s: float | None) -> None:
        self.settings = settings
        self.any_one = any_one
        self.until_s = until_s
        self.views: dict[str, Json] = {}

    def run(self, client: Caller, jobs: tuple[str, ...], peer: str | None) -> int:
        """Wait; the exit status."""
        start = self._last_sequence(client) if len(jobs) != 1 else 0
        for view in self._chosen(client, jobs, peer):
            self.views[view["job"]] = view
        for view in self.views.values():
            # Of many that nobody named, the final line counts those that went well.
            if jobs or view["state"] != "completed":
                self._tell_first(view)
        if len(jobs) == 1:
            (job,) = self.views.values()
            self._one(client, job)
            ended = self.views[job["job"]]
            if self.settings.format in ("table", "plain"):
                output.talk(*own_code_lines(ended))
            return self._end(*exit_of(ended))
        if not self._over():
            self._several(client, start)
        failed = any(v["state"] != "completed" for v in self.views.values() if is_terminal_state(v))
        return self._end(1 if failed else 0)

    def _chosen(self, client: Caller, jobs: tuple[str, ...], peer: str | None) -> list[Json]:
        if jobs:
            return [self._show(client, job) for job in jobs]
        request = {"kind": "list_jobs", "peer": peer, "limit": LIST_LIMIT, "include_terminal": True}
        views: list[Json] = ask(client, request, self.settings.timeout_s)["jobs"]
        alive = [view for view in views if not is_terminal_state(view)]
        if self.any_one and alive:
            return alive  # the first that ends from now on
        current = self._current_generation(client)
        # A job that was withdrawn before it ran leaves its tag to a later one, which then counts.
        latest = {v["tag"]: v for v in sorted(views, key=lambda view: _number(view["job"]))}
        ended = [
            view
            for view in views
            if is_terminal_state(view)
            and view["generation"] == current
            and latest[view["tag"]] is view
        ]
        if not alive and not ended:
            whose = "no job" if peer is None else f"no job of peer {safe(peer)}"
            raise PraxistError("unknown_job", f"{whose} is in generation {current}")
        return [*alive, *ended]

    def _current_generation(self, client: Caller) -> int:
        request: Json = {"kind": "show_generation"}
        shown = ask(client, request, self.settings.timeout_s)["generation"]
        return int(shown["generation"])

    def _show(self, client: Caller, job: str) -> Json:
        request = {"kind": "show_job", "job": job}
        view: Json = ask_job(client, request, job, self.settings.timeout_s)["job"]
        return view

    def _last_sequence(self, client: Caller) -> int:
        request = {"kind": "read_events", "after_sequence": 0, "limit": 1}
        return int(ask(client, request, self.settings.timeout_s)["last_sequence"])

    def _one(self, client: Caller, job: Json) -> None:
        for changed in changes(client, job, self.until_s):
            self._update(changed, beat=changed is self.views[job["job"]])

    def _several(self, client: Caller, start: int) -> None:
        with Feed(self.settings, start) as feed:
            while not self._over():
                left_s = HEARTBEAT_S
                if self.until_s is not None:
                    left_s = min(left_s, self.until_s - mono_s())
                named = feed.next_jobs(left_s) if left_s > 0 else None
                if named is None and left_s < HEARTBEAT_S:
                    alive = sum(not is_terminal_state(v) for v in self.views.values())
                    has = "has" if alive == 1 else "have"
                    raise PraxistError("wait_timeout", f"{count(alive, 'job')} {has} not ended")
                alive_jobs = [n for n, v in self.views.items() if not is_terminal_state(v)]
                for name in alive_jobs:
                    if named is None or name in named:
                        self._update(self._show(client, name), beat=named is None)

    def _over(self) -> bool:
        ended = [is_terminal_state(view) for view in self.views.values()]
        return (any(ended) and self.any_one) or all(ended)

    def _tell_first(self, view: Json) -> None:
        if is_terminal_state(view):
            self._tell(view, final_line(view))

    def _update(self, view: Json, *, beat: bool) -> None:
        before = self.views[view["job"]]
        self.views[view["job"]] = view
        line = change_line(before, view)
        if line is None and beat and not output.watched_by_person():
            line = alive_line(view, now_s())
        if self.settings.format == "jsonl":
            line = None if phase(before) == phase(view) else line or ""
        if line is not None:
            self._tell(view, line)

    def _tell(self, view: Json, line: str) -> None:
        if self.settings.format == "jsonl":
            output.document(job_document(view))
        elif self.settings.format == "name":
            if is_terminal_state(view):
                output.answer(str(view["job"]))
        elif not self.settings.is_json:
            output.answer(f"{local_time(now_s())} {line}")

    def _end(self, exit_code: int, source: str = "scheduler") -> int:
        if self.settings.format == "json":
            bodies = [job_body(view) for view in self.views.values()]
            codes = {"exit_code": exit_code, "exit_source": source}
            output.document({**head("wait"), "jobs": bodies, **codes})
        elif len(self.views) != 1 and self.settings.format in ("table", "plain"):
            counts: dict[str, int] = {}
            for view in self.views.values():
                counts[view["state"]] = counts.get(view["state"], 0) + 1
            told = ", ".join(f"{number} {state}" for state, number in counts.items())
            output.talk(told or "nothing to wait for")
        return exit_code
