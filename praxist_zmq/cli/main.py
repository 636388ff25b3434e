"""The command `praxist-zmq`: parse, run the verb, turn every ending into an exit code.

Never shows a traceback: a fault of ours becomes one line and a report file. Source of the exit
codes: `errors.py`.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

import click

from ..errors import ERRORS, PraxistError
from .failure import UsageHelp, report_error, report_fault, report_usage
from .lazy import VERBS, VerbGroup
from .output import answer, answer_lost, lose_answer, silence_stdout, talk
from .settings import Settings, expand_home, global_options, settings_of, take_environment
from .words import PROGRAM

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # as a shell reports a death by SIGPIPE

CODES_OF_JOBS = ("launch", "wait")
"""Verbs whose exit code tells how a job ended: it does so also where nothing else can be told."""
EXIT_ANSWER_LOST = ERRORS["path_unusable"].exit_code

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """`--version`: the line of the verb `version`."""
    if value:
        from .version import version_line

        answer(version_line())
        ctx.exit()


@click.group(PROGRAM, cls=VerbGroup, context_settings=_CONTEXT)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version and end.",
)
@global_options()
@click.pass_context
def command(ctx: click.Context) -> None:
    """An experiment scheduler for GPU hosts shared by research agents.

    \b
    praxist-zmq launch --peer p1 --tag mixup/seed0 -- python train.py
    praxist-zmq status
    """
    settings = settings_of(ctx)
    given = {"run_dir": settings.run_dir, "json": settings.json, "as_json": settings.json}
    typed = {name: value for name, value in given.items() if value}
    # Verbs that declare their own --run-dir or --json find what was typed before the verb here.
    ledger = {name: dict(typed) for name in ("verify", "story", "repair")}
    ctx.default_map = {
        "up": dict(typed),
        "down": dict(typed),
        "ledger": {**typed, **ledger},
    }


take_environment(command, verb=False)


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line; the exit status."""
    settings = Settings()
    status = _carry_out(list(expand_home(arguments)), settings)
    if status == 0 and answer_lost() and not {*settings.path[:1]} & {*CODES_OF_JOBS}:
        return EXIT_ANSWER_LOST
    return status


def _carry_out(arguments: list[str], settings: Settings) -> int:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    try:
        with command.make_context(PROGRAM, arguments, obj=settings) as ctx:
            result = command.invoke(ctx)
            return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        settings.json = settings.json or "--json" in own
        settings.verbose = settings.verbose or not {"-v", "--verbose"}.isdisjoint(own)
        return report_usage(_with_variable(error), settings)
    except PraxistError as error:
        if error.code == "usage":
            return report_usage(usage_of(error, settings.path), settings)
        return report_error(error, settings)
    except (KeyboardInterrupt, click.Abort):
        talk("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return EXIT_BROKEN_PIPE
    except Exception as fault:  # noqa: BLE001 (the outermost frame: named, filed, exit 70)
        if isinstance(fault, OSError) and _was_no_file(fault):
            lose_answer(fault)
            return EXIT_ANSWER_LOST
        return report_fault(fault, own, settings)


def _was_no_file(fault: OSError) -> bool:
    """Whether it is a stream that took nothing more, as help's and a live page's may."""
    return fault.filename is None and fault.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT)


def _with_variable(error: click.ClickException) -> click.ClickException:
    """A wrong value that came from the environment names its variable: nobody typed it."""
    if not isinstance(error, click.BadParameter) or error.param is None or error.ctx is None:
        return error
    name, variable = str(error.param.name), str(error.param.envvar)
    source = error.ctx.get_parameter_source(name)
    if source is not click.core.ParameterSource.ENVIRONMENT or variable in error.message:
        return error
    return click.BadParameter(f"{error.message} (from {variable})", error.ctx, error.param)


def usage_of(error: PraxistError, path: tuple[str, ...]) -> UsageHelp:
    """A usage error found after parsing, in the one shape that usage errors have. `path` is the
    verb, and a group's own after it."""
    ctx = click.Context(command, info_name=PROGRAM)
    for name in path:
        group = ctx.command
        found = group.get_command(ctx, name) if isinstance(group, click.Group) else None
        if found is None:
            break
        ctx = click.Context(found, info_name=name, parent=ctx)
    return UsageHelp(error.detail, ctx, error.help)


def main() -> None:
    """Entry point of the installed command."""
    status = run(sys.argv[1:])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        status = EXIT_BROKEN_PIPE
    sys.exit(status)


__all__ = ["VERBS", "command", "main", "run"]
