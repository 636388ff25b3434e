"""`lease`: an idle peer's side of supply: register, wait, look, decline.

A lease is an offer of room for one experiment that is planned already; it names no device. Never
decides anything: the scheduler offers, the peer answers or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any

import click

from ..errors import PraxistError
from ..protocol.envelope import Json
from . import output
from .connect import ask, connect
from .documents import LEASE_KEYS, head, pick
from .duration import DURATION
from .settings import CallableT, Settings, global_options, settings_of
from .words import safe, span

PEER_VARIABLE = "PRAXIST_PEER_ID"
GENERATIONS_MAX = 1_000_000


@click.group("lease")
def command() -> None:
    """Wait for a lease as an idle peer; show or decline it.

    A lease wakes an idle peer when there is room for one experiment that it has planned already.
    It names no device, and limits only when the peer may answer.
    """


def _peer_option(function: CallableT) -> CallableT:
    option: Callable[[Any], Any] = click.option(
        "--peer",
        required=True,
        envvar=PEER_VARIABLE,
        metavar="P",
        help=f"The peer; else {PEER_VARIABLE}.",
    )
    return option(function)  # type: ignore[no-any-return]


def _generation_option(function: CallableT) -> CallableT:
    option: Callable[[Any], Any] = click.option(
        "--generation",
        type=click.IntRange(0, GENERATIONS_MAX),
        metavar="N",
        help="Generation; else that of the peer's name, else the current one.",
    )
    return option(function)  # type: ignore[no-any-return]


@command.command("idle")
@_peer_option
@_generation_option
@click.option("--withdraw", is_flag=True, help="Take no lease any more.")
@global_options()
@click.pass_context
def idle(ctx: click.Context, peer: str, generation: int | None, withdraw: bool) -> int:
    """Register a peer that has finished its session, and return.

    \b
    praxist-zmq lease idle --peer gen3_peer5
    """
    settings = settings_of(ctx)
    with connect(settings) as client:
        if withdraw:
            ask(client, {"kind": "unregister_idle", "peer": peer}, settings.timeout_s)
            lease, words = None, f"{safe(peer)} takes no lease any more"
        else:
            request = {"kind": "register_idle", "peer": peer, "generation": generation}
            reply = ask(client, request, settings.timeout_s)
            lease = reply["lease"]
            if reply.get("note"):
                output.talk(f"note  {safe(reply['note'])}")
            words = f"{safe(peer)} is idle; `praxist-zmq lease wait --peer {safe(peer)}` waits"
    return _tell(settings, peer, lease, words)


@command.command("wait")
@_peer_option
@_generation_option
@click.option(
    "--timeout",
    "limit",
    type=DURATION,
    metavar="DUR",
    help="Stop waiting then; the peer stays registered (exit 124).",
)
@global_options(without=("timeout",))
@click.pass_context
def wait(ctx: click.Context, peer: str, generation: int | None, limit: float | None) -> int:
    """Register, and wait until the peer has a lease.

    \b
    praxist-zmq lease wait --peer gen3_peer5 --timeout 15m
    LEASE=$(praxist-zmq lease wait --peer gen3_peer5 -q)
    """
    settings = settings_of(ctx)
    try:
        with connect(settings) as client:
            lease = client.lease_wait(peer, limit, generation)
    except KeyboardInterrupt:
        again = [f"`praxist-zmq lease wait --peer {safe(peer)}` waits on"]
        raise PraxistError("interrupted", f"{peer} stays registered", again) from None
    except PraxistError as error:
        if error.code == "wait_timeout":
            error.help = [f"`praxist-zmq lease wait --peer {safe(peer)}` waits on"]
        raise
    return _tell(settings, peer, asdict(lease) if is_dataclass(lease) else lease, "")  # type: ignore[arg-type]


@command.command("show")
@_peer_option
@global_options()
@click.pass_context
def show(ctx: click.Context, peer: str) -> int:
    """Show the peer's lease and what it may be used for.

    \b
    praxist-zmq lease show --peer gen3_peer5
    """
    settings = settings_of(ctx)
    with connect(settings) as client:
        reply = ask(client, {"kind": "get_lease", "peer": peer}, settings.timeout_s)
    return _tell(settings, peer, reply["lease"], "\n".join(_without_lines(peer, reply)))


@command.command("decline")
@_peer_option
@click.option("--lease", metavar="ID", help="The lease; else the one that the peer has.")
@click.option("--reason", default="nothing planned", metavar="T", help="Kept and shown.")
@global_options()
@click.pass_context
def decline(ctx: click.Context, peer: str, lease: str | None, reason: str) -> int:
    """Give a lease back: nothing that is planned fits. The peer cools down for a while.

    \b
    praxist-zmq lease decline --peer gen3_peer5 --reason "nothing planned"
    """
    settings = settings_of(ctx)
    request = {"kind": "decline_lease", "peer": peer, "lease_id": lease, "reason": reason}
    with connect(settings) as client:
        ended = ask(client, request, settings.timeout_s)["lease"]
    if settings.is_json:
        output.document({**head("lease"), "peer": peer, "lease": pick(LEASE_KEYS, ended)})
        return 0
    cooling = ended.get("cooling_s")
    told = (
        "" if cooling is None else f"; nothing {ended['priority']} is offered for {span(cooling)}"
    )
    output.answer(f"{safe(ended['lease_id'])} {ended['state']}{told}")
    return 0


def _tell(settings: Settings, peer: str, lease: Json | None, without: str) -> int:
    """The lease, or what there is instead."""
    if settings.is_json:
        body = None if lease is None else pick(LEASE_KEYS, lease)
        output.document({**head("lease"), "peer": peer, "lease": body})
    elif settings.format == "name":
        output.answer(*([] if lease is None else [safe(lease["lease_id"])]))
    elif lease is None:
        output.answer(without)
    else:
        output.page(settings, lease_lines(lease))
    return 0


def _without_lines(peer: str, reply: Json) -> list[str]:
    """A peer without a lease: whether it waits, what became of its last one, what to do next."""
    words = "is idle and waits" if reply["waiting"] else "is not registered as idle"
    lines = [f"{safe(peer)} has no lease; it {words}"]
    last = reply.get("last")
    if last is not None:
        why = f": {safe(last['reason']).replace('_', ' ')}" if last.get("reason") else ""
        lines.append(f"  last      {safe(last['lease_id'])} {safe(last['state'])}{why}")
    if reply.get("cooling_s") is not None:
        lines.append(f"  cooling   it declined; for {span(reply['cooling_s'])} it is offered less")
    if not reply["waiting"]:
        lines.append(f"  next      praxist-zmq lease wait --peer {safe(peer)}")
    return lines


def lease_lines(lease: Json) -> list[str]:
    """What the lease is, what it may be used for, and what to do next."""
    peer, profiles = safe(lease["peer"]), [safe(name) for name in lease["profiles"]]
    mature = lease["priority"] == "mature"
    work = ", class mature" if mature else ""
    send = f"praxist-zmq launch --peer {peer} --lease {safe(lease['lease_id'])}"
    send += f"{' --work-class mature' if mature else ''} --profile {profiles[0]} ..."
    return [
        f"{safe(lease['lease_id'])}  {safe(lease['priority'])}  for {peer}  "
        f"{span(lease['left_s'])} left to submit (run time is not limited by this)",
        f"  may use   {', '.join(profiles)}",
        f"  means     send at most one experiment you already planned{work}; or decline",
        f"  next      {send}",
        f'            praxist-zmq lease decline --peer {peer} --reason "nothing planned"',
    ]
