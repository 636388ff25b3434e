"""`generation`: open, assess, close and show a part of the run with its own evidence and end."""

from __future__ import annotations

from typing import Any

import click

from ..errors import PraxistError
from ..protocol.envelope import Json
from . import output
from .connect import ask, connect
from .documents import GENERATION_KEYS, head, pick
from .duration import DURATION
from .settings import Settings, global_options, settings_of
from .waiting import now_s
from .words import count, cut, local_time, parse_stamp, safe, span

NAMES_SHOWN = 20
NUMBER = click.IntRange(0, 1_000_000)
SIZE = click.IntRange(1, 1_000_000)
STATE_WORDS = {"assessment": "in assessment"}
SAYS_NO_MORE = {
    "open": (),
    "assessment": ("assessment",),
    "frozen": ("it was frozen", "frozen"),
    "closed": ("it was closed", "closed"),
}
"""Reasons that only tell the state again."""
YES_HELP = "Do not ask. Needed where there is no terminal to ask on, and with --json."
REASON_HELP = "Kept, and told to those whose work is refused."


@click.group("generation")
def command() -> None:
    """Open, assess, close and show generations."""


@command.command("open")
@click.argument("number", metavar="N", type=NUMBER)
@click.option("--cohort-size", type=SIZE, metavar="N", help="Its peers, as a number.")
@click.option(
    "--deadline", type=DURATION, metavar="DUR", help="It is closed then; without it never."
)
@click.option(
    "--mature-quorum", type=SIZE, metavar="N", help="Distinct mature peers that end assessment."
)
@click.option("--peers", metavar="P,...", help="Its peers in order, for first-wave advice.")
@click.option(
    "--publish-completed", is_flag=True, help="Mature work that completes counts as evidence."
)
@click.option(
    "--rerun",
    is_flag=True,
    help="End its assessment; free the tags that this, its close or a stop refused.",
)
@global_options()
@click.pass_context
def open_one(
    ctx: click.Context,
    number: int,
    cohort_size: int | None,
    deadline: float | None,
    mature_quorum: int | None,
    peers: str | None,
    publish_completed: bool,
    rerun: bool,
) -> int:
    """Take work for generation N from now on; it becomes the current one.

    Opening one that was closed clears its close files. What its close refused stays refused, and
    one in assessment stays in it, unless `--rerun` is given; what ended keeps its result.

    \b
    praxist-zmq generation open 4 --cohort-size 12 --deadline 4h --mature-quorum 3
    praxist-zmq generation open 3 --rerun
    """
    names = [name.strip() for name in (peers or "").split(",") if name.strip()]
    request: Json = {
        "kind": "open_generation",
        "generation": number,
        "cohort_size": cohort_size,
        "deadline_seconds": deadline,
        "mature_quorum": mature_quorum,
        "peers": names,
        "publish_completed": publish_completed,
        "rerun": rerun,
    }
    return _carry_out(ctx, "open", request)


@command.command("assess")
@click.argument("number", metavar="N", type=NUMBER)
@click.option("--reason", default="assessment", metavar="TEXT", help=REASON_HELP)
@global_options()
@click.pass_context
def assess(ctx: click.Context, number: int, reason: str) -> int:
    """Take only mature work that can still end in time; reject the rest of the queue.

    It is no close: what runs goes on, and mature work may still start. When the mature quorum is
    met, where none is set when no debt is left, or at the deadline, the generation is closed; that
    may be at once.

    \b
    praxist-zmq generation assess 3
    """
    request = {"kind": "assess_generation", "generation": number, "reason": reason}
    return _carry_out(ctx, "assess", request)


@command.command("close")
@click.argument("number", metavar="N", type=NUMBER)
@click.option("--reason", default="it was closed", metavar="TEXT", help=REASON_HELP)
@click.option("--yes", is_flag=True, help=YES_HELP)
@global_options()
@click.pass_context
def close(ctx: click.Context, number: int, reason: str, yes: bool) -> int:
    """Freeze generation N, reject its queue, then write CLOSING_SIGNAL; what runs drains.

    \b
    praxist-zmq generation close 3 --yes
    """
    confirm(ctx, yes, freeze_question(number))
    request = {
        "kind": "freeze_generation", "generation": number, "reason": reason, "signal": True,
    }  # fmt: skip
    return _carry_out(ctx, "close", request)


@command.command("show")
@click.argument("number", metavar="[N]", type=NUMBER, required=False)
@global_options()
@click.pass_context
def show(ctx: click.Context, number: int | None) -> int:
    """Show a generation, its counters and its evidence; without N the current one.

    \b
    praxist-zmq generation show
    praxist-zmq generation show 3 --json
    """
    return _carry_out(ctx, "show", {"kind": "show_generation", "generation": number})


def freeze_question(number: int | None) -> str:
    """What a person is asked before a freeze; None is all generations."""
    if number is None:
        return "freeze all generations and the run's admission, and reject all that waits?"
    freed = f"`generation open {number} --rerun` would free its tags"
    return f"freeze generation {number} and reject all that waits in it ({freed})?"


def confirm(ctx: click.Context, yes: bool, question: str) -> None:
    """Go on with `--yes`; ask a person at a terminal once. Raises `usage` otherwise."""
    from sys import stdin

    if yes:
        return
    watched = output.watched_by_person() and stdin is not None and stdin.isatty()
    if not watched or settings_of(ctx).is_json:
        raise click.UsageError(f"{question.rstrip('?')}: say --yes", ctx)
    if not click.confirm(question, err=True):
        raise PraxistError(
            "usage", "nothing was changed", ["say --yes to go on without a question"]
        )


def _carry_out(ctx: click.Context, verb: str, request: Json) -> int:
    settings = settings_of(ctx)
    with connect(settings) as client:
        reply = ask(client, request, settings.timeout_s)
    tell(settings, verb, reply)
    return 0


def tell(settings: Settings, verb: str, reply: Json) -> None:
    """The answer to any request about a generation."""
    generation: Json = reply["generation"]
    if settings.is_json:
        body = {key: reply[key] for key in ("rejected", "draining")}
        output.document({**head("generation"), **pick(GENERATION_KEYS, generation), **body})
    elif settings.format == "name":
        output.answer(str(generation["generation"]))
    elif verb == "show":
        output.page(settings, page(generation))
    else:
        output.page(settings, _done_lines(verb, reply))


def _done_lines(verb: str, reply: Json) -> list[str]:
    generation: Json = reply["generation"]
    lines = [f"{verb:<8} {_title(generation)}"]
    if verb == "open":
        return lines + [f"{'takes':<8} {text}" for text in _terms(generation)]
    if verb == "assess" and generation["state"] == "assessment":
        lines.append(f"{'takes':<8} mature work that can end in time, nothing else")
    elif verb == "assess":
        lines.append(f"{'takes':<8} nothing more: there is nothing left to assess")
    lines += fenced_lines(reply)
    if verb == "close":
        lines.append(f"{'signal':<8} gen_{generation['generation']}/CLOSING_SIGNAL says so")
    return lines


def fenced_lines(reply: Json) -> list[str]:
    """What a fence rejected, and what goes on under it."""
    rejected, draining = reply["rejected"], reply["draining"]
    state = reply["generation"]["state"]
    lines = [f"{'queue':<8} {count(len(rejected), 'job')} rejected  {names_of(rejected)}".rstrip()]
    if draining:
        verb = "goes on to its end" if len(draining) == 1 else "go on to their ends"
        lines.append(f"{'running':<8} {count(len(draining), 'job')} {verb}  {names_of(draining)}")
    elif state in ("frozen", "closed"):
        lines.append(f"{'running':<8} nothing")
    return lines


def names_of(names: list[str]) -> str:
    """The first of many names."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return " ".join(safe(cut(name, 40)) for name in names[:NAMES_SHOWN]) + more


def _title(generation: Json) -> str:
    state, why = generation["state"], generation.get("reason")
    reason = "" if not why or why in SAYS_NO_MORE[state] else f": {safe(why)}"
    return f"generation {generation['generation']} is {STATE_WORDS.get(state, state)}{reason}"


def _terms(generation: Json) -> list[str]:
    told = [deadline_words(generation.get("deadline")) or "no deadline"]
    if generation["cohort_size"] is not None:
        told.append(count(generation["cohort_size"], "peer"))
    if generation["mature_quorum"] is not None:
        told.append(f"{count(generation['mature_quorum'], 'distinct mature peer')} end assessment")
    if generation["publish_completed"]:
        told.append("mature work that completes counts as evidence")
    return [", ".join(told)]


def deadline_words(deadline: str | None) -> str | None:
    """`deadline 2026-03-01 17:15:00 (2h10m left)`; None without one."""
    due = parse_stamp(deadline)
    if due is None:
        return None
    left = due - now_s()
    told = f"{span(left)} left" if left > 0 else f"{span(-left)} ago"
    return f"deadline {local_time(due)} ({told})"


def page(generation: Json) -> list[str]:
    """Where it is in its life, what is in it, what evidence it has."""
    opened = parse_stamp(generation["opened_at"])
    since = f"   opened {local_time(opened)}" if opened else ""
    jobs = {state: number for state, number in generation["jobs"].items() if number}
    facts: dict[str, Any] = {
        "Terms": _terms(generation)[0],
        "Jobs": "  ".join(f"{number} {safe(state)}" for state, number in jobs.items()) or "none",
        "Attempts": generation["attempts"],
        "Evidence": evidence_words(generation["results"], generation["maturity"]),
        **_advice(generation["advice"]),
    }
    lines = [f"* {_title(generation)}{since}"]
    return lines + [f"   {name:<10} {text}" for name, text in facts.items()]


def evidence_words(results: int, maturity: Json) -> str:
    """`4 results; mature 1 of 3 results, 2 on their way, 4 more wanted`."""
    told = count(results, "result")
    if not maturity["target"]:
        return f"{told}; {maturity['completed']} mature, no target"
    return f"{told}; {mature_words(maturity)}"


def mature_words(maturity: Json) -> str:
    """`mature 1 of 3 results, 2 on their way, 4 wanted`."""
    noun = "peers" if maturity["counted_in"] == "peers" else "results"
    told = f"mature {maturity['completed']} of {maturity['target']} {noun}"
    if maturity["debt"]:
        told += f", {maturity['inflight_jobs']} on their way, {maturity['needed_inflight']} wanted"
    return told


def _advice(advice: dict[str, str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for peer, what in advice.items():
        found.setdefault(what, []).append(peer)
    titles = {"direct_mature": "Mature", "explore": "Explore"}
    return {titles[what]: names_of(peers) for what, peers in found.items()}
