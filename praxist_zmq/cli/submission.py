"""What `launch` and `submit` share: their options, the request, and its first answer.

Text after `--` is passed on untouched and is mandatory. The environment is the caller's own,
byte for byte. Standard library and click only.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..errors import PraxistError
from ..host.paths import check_working_directory
from ..protocol.envelope import Json
from .connect import Caller, ask
from .duration import DURATION
from .failure import UsageHelp
from .retrying import advise_repeat, attempt_named, last_attempt
from .settings import CallableT, settings_of
from .words import cut, safe

WORK_CLASSES = ("scout", "ordinary", "mature")
STARTS_AT_ONCE_S = 0.3
PEER_VARIABLES = ("PRAXIST_PEER_ID", "PEER_ID")
COMMAND_COLUMNS = 400
AFTER = "the experiment's command goes after `--`"
LEASE_VARIABLE = "PRAXIST_RESOURCE_SUPPLY_LEASE_ID"
LEASE_CHARACTERS_MAX = 128
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PEER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")


class AfterDashes(click.Command):
    """A command whose words after the first `--` are somebody else's command line."""

    needs_command = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the words aside before any parsing."""
        words: list[str] = []
        given = "--" in args
        if given:
            at = args.index("--")
            args, words = args[:at], args[at + 1 :]
        ctx.meta["praxist_zmq.words"] = tuple(words) if given else None
        typed = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            meant = None if given else self._with_dashes(ctx, typed)
            if meant is None:
                raise
            raise UsageHelp(error.format_message(), error.ctx or ctx, [AFTER], meant) from error
        if self.needs_command and not words:
            raise UsageHelp("the experiment's command is missing", ctx, [AFTER])
        if words:
            _check_program(ctx, words)
        return rest

    def _with_dashes(self, ctx: click.Context, typed: list[str]) -> str | None:
        """The same words with the `--` that was forgotten before the command; None if not that."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        try:
            _, rest, _ = parser.parse_args(list(typed))
        except click.UsageError:
            return None  # wrong before any command began: the first error is what to tell
        own = sum(isinstance(param, click.Argument) for param in self.params)
        words = rest[own:]
        if not words or (not self.needs_command and words[0].startswith("-")):
            return None
        before = typed[: len(typed) - len(words)]
        named = settings_of(ctx).run_dir
        if named is not None and not any(word.startswith("--run-dir") for word in before):
            before = ["--run-dir", named, *before]
        text = shlex.join([*ctx.command_path.split(), *before]) + " -- " + shlex.join(words)
        return cut(text, COMMAND_COLUMNS)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the words in the usage line."""
        words = "-- CMD..." if self.needs_command else "[-- CMD...]"
        return [*super().collect_usage_pieces(ctx), words]


def _check_program(ctx: click.Context, words: list[str]) -> None:
    """Refuse what a shell would have taken apart: one word that is a whole command line, or an
    assignment before the command. A program of that very name is what was meant, though.
    """
    first = words[0]
    places = [first, os.path.join(str(ctx.params.get("cwd") or ""), first)]
    if shutil.which(first) is not None or any(os.path.lexists(place) for place in places):
        return
    if _ASSIGNMENT.match(first):
        meant, why = ["env", *words], "is an assignment, and no shell reads it here"
    elif len(words) == 1 and len(first.split()) > 1:
        meant, why = _split(first), "is one word, and no program has that name"
    else:
        return
    shown = cut(safe(first), 60)
    raise UsageHelp(
        f"`{shown}` {why}", ctx, [f"did you mean `-- {cut(safe(shlex.join(meant)), 200)}`?"]
    )


def _split(line: str) -> list[str]:
    """A command line taken apart; one with an open quote goes to a shell as it is."""
    try:
        return shlex.split(line)
    except ValueError:
        return ["sh", "-c", line]


class OptionallyAfterDashes(AfterDashes):
    """The same where the words may be absent."""

    needs_command = False


def words_after_dashes(ctx: click.Context) -> tuple[str, ...] | None:
    """The words after `--`; None when there was no `--`."""
    words: tuple[str, ...] | None = ctx.meta["praxist_zmq.words"]
    return words


@dataclass(frozen=True, slots=True)
class SubmissionOptions:
    """The options of `launch` and `submit` as typed. Times are seconds."""

    peer: str
    tag: str
    profile: str | None
    work_class: str
    eta: float | None
    cwd: str | None
    generation: int | None
    lease: str | None
    retry_terminal: bool
    retry_of: str | None
    same_command: bool
    dry_run: bool
    result_file: str | None
    scheduler_exit: int | None
    not_secret: tuple[str, ...]


def submission_options(function: CallableT) -> CallableT:
    """Decorator: the options of a submission."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--peer",
        required=True,
        envvar="PRAXIST_PEER_ID",
        metavar="P",
        help="Who submits: a name of your choice; else PRAXIST_PEER_ID.",
    ),
    click.option("--tag", required=True, metavar="T", help="Stable name of the experiment."),
    click.option("--profile", metavar="N", help="Resource profile; else the contract's default."),
    click.option(
        "--work-class",
        type=click.Choice(WORK_CLASSES),
        default="ordinary",
        show_default=True,
        help="How mature the work is.",
    ),
    click.option("--eta", type=DURATION, metavar="DUR", help="Expected run time."),
    click.option("--cwd", metavar="DIR", help="Working directory of the command [this one]."),
    click.option(
        "--generation",
        type=click.IntRange(0, 1_000_000),
        metavar="N",
        help="Generation it belongs to; else that of the peer's name, else the current one.",
    ),
    click.option(
        "--lease",
        envvar=LEASE_VARIABLE,
        metavar="ID",
        help=f"Supply lease that this answers; else {LEASE_VARIABLE}. A stale one harms nothing.",
    ),
    click.option("--retry-terminal", is_flag=True, help="Try again what already ended badly."),
    click.option(
        "--retry-of",
        metavar="ATTEMPT",
        callback=attempt_named,
        help="The same for one attempt, j-12.1: it is followed once, however often this is sent.",
    ),
    click.option(
        "--same-command",
        is_flag=True,
        help="Exit 65 where the tag's job has another command, and join nothing.",
    ),
    click.option("--dry-run", is_flag=True, help="Only say what would happen."),
    click.option("--result-file", metavar="F", help="Also write the final JSON document there."),
    click.option(
        "--scheduler-exit",
        type=click.IntRange(1, 255),
        metavar="N",
        help="Exit with N where the code would be the scheduler's; 124 and 130 stay.",
    ),
    click.option(
        "--not-secret",
        multiple=True,
        metavar="NAME",
        help="In the command, NAME bears no credential though it looks so; may be repeated.",
    ),
)


def submission_request(options: SubmissionOptions, words: Sequence[str]) -> Json:
    """The `submit_job` request.

    Raises `malformed_request`, `bad_command`, `bad_directory` or `too_large`.
    """
    from ..client.submission import submit_request

    check_options(options)
    return submit_request(
        peer=options.peer,
        tag=options.tag,
        command=[os.fsencode(word) for word in words],
        cwd=None if options.cwd is None else os.fsencode(options.cwd),
        profile=options.profile,
        work_class=options.work_class,
        eta_seconds=options.eta,
        generation=options.generation,
        lease_id=_locator(options.lease),
        retry_terminal=options.retry_terminal,
        retry_of=options.retry_of,
        same_command=options.same_command,
        dry_run=options.dry_run,
        not_secret=options.not_secret,
    )


def _locator(text: str | None) -> str | None:
    """A lease's name as the broker takes it. What can be none is left out: it harms nothing."""
    if not text or len(text) > LEASE_CHARACTERS_MAX or _CONTROL.search(text):
        return None
    return text


def check_options(options: SubmissionOptions) -> None:
    """Refuse names and a directory that can't be, before anything is asked.

    Says in words what the broker would say as a pattern (`protocol.ids` is the rule). Raises
    `malformed_request`, `bad_directory`, or `not_yours` for a retry in the name of another peer
    than the environment says this is.
    """
    check_names(options.peer, options.tag)
    inherited = {os.environ.get(name, "").strip() for name in PEER_VARIABLES} - {""}
    if (options.retry_terminal or options.retry_of) and inherited - {options.peer}:
        raise PraxistError(
            "not_yours", f"this is peer {sorted(inherited)[0][:80]!r}, not {options.peer!r}"
        )
    if options.cwd is not None:
        check_working_directory(options.cwd, "--cwd")


def check_names(peer: str, tag: str) -> None:
    """Refuse what is no peer or no tag. Raises `malformed_request`."""
    if not tag or len(tag) > 512 or _CONTROL.search(tag):
        raise PraxistError(
            "malformed_request",
            "the tag must have 1 to 512 characters, none of them a control character",
            ["give the experiment another --tag"],
        )
    if not _PEER.fullmatch(peer):
        raise PraxistError(
            "malformed_request",
            f"peer {peer[:80]!r}: letters, digits and . _ @ : + - only, at most 128",
            ["give another --peer"],
        )


def submit(client: Caller, request: Json, timeout_s: float) -> Json:
    """The broker's `submitted` reply. Raises its refusal."""
    return ask(client, request, timeout_s)


def submission_answer(
    client: Caller, request: Json, timeout_s: float, options: SubmissionOptions
) -> Json:
    """The same, and a note where the lease as typed can be none. A retry names the attempt that it
    follows. Raises the refusal."""
    if request["retry_terminal"] and request["retry_of"] is None:
        tag = f"tag:{options.tag}"
        request["retry_of"] = last_attempt(client, tag, timeout_s, options.generation)
    try:
        answer = submit(client, request, timeout_s)
    except PraxistError as error:
        raise advise_repeat(error, request) from None
    if options.lease and _locator(options.lease) is None:
        text = f"--lease {cut(safe(options.lease), 40)} can be no lease; taken without it"
        return {**answer, "notes": [*(answer.get("notes") or []), text]}
    return answer


def folded(exit_code: int, source: str, scheduler_exit: int | None) -> int:
    """The exit status under `--scheduler-exit`."""
    if scheduler_exit is None or source == "job" or exit_code in (0, 124, 130):
        return exit_code
    return scheduler_exit
