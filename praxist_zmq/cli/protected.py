"""`protected`: the manifests of processes that clean-up must leave alone.

Lists, writes, removes and waits. Never signals a process. Source of the meaning: the original
system's command of that name.
"""

from __future__ import annotations

import click

from ..errors import PraxistError
from ..host.paths import RunPaths
from ..host.protected import Protected, ProtectedFolder
from ..protocol.envelope import Json
from . import output
from .documents import head
from .duration import DURATION
from .legacy_options import allow_duplicate, cap, max_active, poll
from .run_selection import check_boundary, find_run
from .settings import Settings, global_options, settings_of
from .submission import check_names
from .words import safe

PID = click.IntRange(2, 4_194_304)
_PEER = click.option(
    "--peer", envvar="PRAXIST_PEER_ID", metavar="P", help="The peer; else PRAXIST_PEER_ID."
)
_TAG = click.option("--tag", metavar="T", help="Stable name of the experiment.")


@click.group("protected")
def command() -> None:
    """Keep processes of a peer's own from clean-up."""


@command.command("register")
@click.argument("pid", type=PID, metavar="PID")
@_PEER
@_TAG
@click.option("--eta", type=DURATION, metavar="DUR", help="Expected run time.")
@allow_duplicate
@max_active
@global_options()
@click.pass_context
def register_command(
    ctx: click.Context,
    pid: int,
    peer: str | None,
    tag: str | None,
    eta: float | None,
    allow_duplicate: bool,
    max_active: int | None,
) -> int:
    """Protect a process that you started yourself.

    \b
    praxist-zmq protected register 4711 --peer p1 --tag long-eval
    """
    from ..service.peer_start import Slot, register

    settings = settings_of(ctx)
    if peer is None:
        raise click.UsageError("whose is it? --peer P, or PRAXIST_PEER_ID", ctx)
    check_names(peer, tag if tag is not None else "-")
    run = _run(settings)
    manifest = register(run, pid, Slot(peer, tag, eta, allow_duplicate, cap(max_active)))
    if settings.is_json:
        found = Protected(manifest.name, manifest, "live")
        output.document({**head("protected"), "entries": [_entry(found)], "unreadable": []})
    elif not settings.quiet:
        output.answer(f"registered  pid {pid}, group {manifest.pgid}, peer {safe(peer)}")
    return 0


@command.command("unregister")
@click.argument("pid", type=PID, metavar="PID")
@_PEER
@global_options()
@click.pass_context
def unregister_command(ctx: click.Context, pid: int, peer: str | None) -> int:
    """Take a process's manifest away. Exit status 1 when there is none."""
    from ..service.peer_start import unregister

    settings = settings_of(ctx)
    removed = unregister(_run(settings), pid, peer)
    if settings.is_json:
        output.document({**head("unprotected"), "pid": pid, "removed": removed})
    elif removed == 0:
        output.talk(f"absent  no manifest of pid {pid}" + (f", peer {safe(peer)}" if peer else ""))
    elif not settings.quiet:
        output.answer(f"removed  the manifest of pid {pid}")
    return 0 if removed else 1


@command.command("list")
@click.option("--peer", metavar="P", help="Of this peer only.")
@click.option("--tag", metavar="T", help="Of this tag only.")
@global_options()
@click.pass_context
def list_command(ctx: click.Context, peer: str | None, tag: str | None) -> int:
    """List protected processes: the pids proved live on stdout, doubts and rests on stderr."""
    settings = settings_of(ctx)
    folder = ProtectedFolder(_run(settings))
    found = folder.read()
    entries = [
        entry
        for entry in found.entries
        if peer in (None, entry.manifest.peer) and tag in (None, entry.manifest.tag)
    ]
    if settings.is_json:
        rows = [_entry(entry) for entry in entries]
        unreadable = [{"file": file, "reason": reason} for file, reason in found.unreadable]
        output.document({**head("protected"), "entries": rows, "unreadable": unreadable})
        return 0
    output.answer(*(str(entry.manifest.process.pid) for entry in entries if entry.counts))
    if not settings.quiet:
        rest = [f"{e.state}  {safe(e.file)}  {_MEANING[e.state]}" for e in entries if not e.counts]
        bad = [f"unreadable  {safe(file)}  {safe(why)}" for file, why in found.unreadable]
        output.talk(*rest, *bad)
    return 0


_MEANING = {
    "stale": "nothing of it is left",
    "doubtful": "not proved to be that process: left alone",
}


@command.command("wait")
@_PEER
@_TAG
@click.option(
    "--timeout", "limit", type=DURATION, metavar="DUR", help="Stop waiting then (exit 1)."
)
@poll
@global_options(without=("timeout",))
@click.pass_context
def wait_command(
    ctx: click.Context, peer: str | None, tag: str | None, limit: float | None, poll: float
) -> int:
    """Wait until no process of that peer and tag is protected. Exit status 1 when time is over.

    \b
    praxist-zmq protected wait --peer p1 --tag long-eval --timeout 9m
    """
    from ..service.peer_start import wait_clear

    settings = settings_of(ctx)
    try:
        left = wait_clear(_run(settings), peer, tag, limit, poll)
    except KeyboardInterrupt:
        raise PraxistError("interrupted", "the processes go on", ["wait again"]) from None
    if settings.is_json:
        output.document({**head("protected_wait"), "left": left})
    elif left:
        output.talk("timeout  still running: pid " + ", ".join(str(pid) for pid in left[:20]))
    return 1 if left else 0


def _run(settings: Settings) -> RunPaths:
    check_boundary(settings.run_dir)
    return RunPaths.of(find_run(settings.run_dir))


def _entry(found: Protected) -> Json:
    body = found.manifest.body()
    del body["format_version"]
    return {"file": found.file, "state": found.state, **body}
