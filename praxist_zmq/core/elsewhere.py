"""In words, who holds a device that belongs to another host scope at this moment."""

from __future__ import annotations

from ..protocol.claims import DeviceElsewhere


def elsewhere_words(other: DeviceElsewhere) -> str:
    """`held by another host scope: process 4711 of dana, /tmp/praxist-zmq-1004/host`."""
    if other.unclaimed:
        by = "" if other.pid is None else f" (shim {other.pid})"
        return (
            f"held by an experiment{by} that the claim registry found when it started and that no "
            "run has claimed: it is free once that run is up again or the experiment has ended"
        )
    told = [] if other.pid is None else [f"process {other.pid}"]
    told += [] if other.user is None else [f"of user {other.user}"]
    who = " ".join(told) or "a process that is not to be seen from here"
    return f"held by another host scope: {who}" + (f", {other.scope}" if other.scope else "")
