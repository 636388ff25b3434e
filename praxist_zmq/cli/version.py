"""`version`: of the program, its protocol and its ledger format."""

from __future__ import annotations

import platform

import click

from .. import __version__
from ..protocol.envelope import LEDGER_VERSION, PROTOCOL_VERSION
from . import output
from .documents import head
from .settings import global_options, settings_of
from .words import PROGRAM


@click.command("version")
@global_options()
@click.pass_context
def command(ctx: click.Context) -> int:
    """Print the version.

    \b
    praxist-zmq version
    praxist-zmq version --json
    """
    facts = {
        "version": __version__,
        "protocol_version": PROTOCOL_VERSION,
        "ledger_version": LEDGER_VERSION,
        "python": platform.python_version(),
    }
    if settings_of(ctx).is_json:
        output.document({**head("version"), **facts})
        return 0
    output.answer(version_line())
    return 0


def version_line() -> str:
    """The version in one line."""
    return (
        f"{PROGRAM} {__version__}  protocol {PROTOCOL_VERSION}  ledger {LEDGER_VERSION}  "
        f"Python {platform.python_version()}"
    )
