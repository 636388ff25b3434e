"""The command group: a verb's module is imported when the verb is used, not before.

Knows every verb's name, module and one-line help, so that the overview imports nothing.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import click

from .advice import nearest
from .settings import ENVIRONMENT_PREFIX, settings_of, take_environment
from .words import cut, safe


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb lives and what the overview says of it."""

    name: str
    module: str
    help: str
    section: str


VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("launch", "launch", "Submit an experiment, wait, exit with its code.", "Peers"),
        Verb("submit", "submit", "Submit an experiment and return once it is on disk.", "Peers"),
        Verb("wait", "wait", "Wait until jobs have ended.", "Peers"),
        Verb("explain", "explain", "Say why a job waits, or how it ended.", "Peers"),
        Verb("logs", "logs", "Print a job's log.", "Peers"),
        Verb("retry", "retry", "Try a job that ended badly again, under its identity.", "Peers"),
        Verb("progress", "progress", "Tell, inside a job, how far it has come.", "Peers"),
        Verb("cancel", "cancel", "Withdraw queued jobs; with --yes end running ones.", "Peers"),
        Verb("protected", "protected", "Keep processes of a peer's own from clean-up.", "Peers"),
        Verb("results", "results", "Publish and list the evidence of a generation.", "Peers"),
        Verb("lease", "lease", "Wait for a lease as an idle peer; show or decline it.", "Peers"),
        Verb("queue", "queue", "List jobs (also: ps).", "Watching"),
        Verb("show", "show", "Show one job.", "Watching"),
        Verb("status", "status", "Show the state of the run.", "Watching"),
        Verb("gpus", "gpus", "Show the devices and what is free on them.", "Watching"),
        Verb("leases", "leases", "List offers to idle peers and what became of them.", "Watching"),
        Verb("host", "host", "Show all runs of this host.", "Watching"),
        Verb("events", "events", "Print the run's history.", "Watching"),
        Verb("up", "up", "Start the scheduler of a run.", "Operators"),
        Verb("down", "down", "End the scheduler; experiments go on.", "Operators"),
        Verb("stop", "stop", "End the run with all its experiments.", "Operators"),
        Verb("generation", "generation", "Open, assess, close and show generations.", "Operators"),
        Verb("freeze", "freeze", "Start nothing more; what runs goes on.", "Operators"),
        Verb("config", "config", "Write, check and explain the contract.", "Operators"),
        Verb("sim", "sim", "Set foreign load and faults on simulated devices.", "Operators"),
        Verb("ledger", "ledger", "Verify, read or repair the ledger offline.", "Operators"),
        Verb("binding", "binding", "Check that children get the devices given.", "Operators"),
        Verb("help", "help_topic", "Explain a verb or a topic.", "Everybody"),
        Verb("version", "version", "Print the version.", "Everybody"),
    )
}
ALIASES = {"ps": "queue"}
MEANT = {
    "list": "queue", "ls": "queue", "jobs": "queue", "kill": "cancel", "rm": "cancel",
    "delete": "cancel", "add": "submit", "enqueue": "submit", "run": "launch", "start": "up",
    "serve": "up", "log": "logs", "tail": "logs", "follow": "logs", "why": "explain",
    "info": "show", "inspect": "show", "history": "events", "resume": "up", "devices": "gpus",
    "close": "generation", "assess": "generation", "publish": "results", "evidence": "results",
    "top": "status", "htop": "status", "squeue": "queue", "sbatch": "submit", "srun": "launch",
    "scancel": "cancel", "sinfo": "gpus", "topics": "help",
}  # fmt: skip
"""Verbs of other tools, and ours for them: told, never taken."""
ENDING = frozenset({"stop", "down", "cancel", "freeze"})
"""Verbs that end something. A mistyped word is never answered with one of them: whoever follows
such an advice without a thought would lose work."""


class VerbGroup(click.Group):
    """A group whose commands are looked up in `VERBS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, without aliases."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module. None when there is no such verb."""
        verb = VERBS.get(ALIASES.get(cmd_name, cmd_name))
        if verb is None:
            return None
        module = importlib.import_module(f"{__package__}.{verb.module}")
        command = module.command
        assert isinstance(command, click.Command)
        take_environment(command, f"{ENVIRONMENT_PREFIX}_{verb.name.upper()}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb named; a mistyped one is answered with the nearest."""
        if args and self.get_command_name(args[0]) is None:
            close = MEANT.get(args[0]) or nearest(args[0], sorted({*VERBS, *ALIASES} - ENDING))
            hint = f"; did you mean `{close}`?" if close else ""
            raise click.UsageError(f"no such verb `{cut(safe(args[0]), 40)}`{hint}", ctx)
        if args:
            settings_of(ctx).verb = self.get_command_name(args[0])
        return super().resolve_command(ctx, args)

    @staticmethod
    def get_command_name(name: str) -> str | None:
        """The verb behind a name or alias; None when there is none."""
        found = ALIASES.get(name, name)
        return found if found in VERBS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview by section, without importing a verb."""
        for section in dict.fromkeys(verb.section for verb in VERBS.values()):
            rows = [(v.name, v.help) for v in VERBS.values() if v.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)
