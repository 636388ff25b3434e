"""The derived view after a stop that no scheduler carried out: what `status` shows until `up`.

The ledger keeps such experiments as running until the next broker records how they ended; the view
counts them apart, since they are proved gone. It decides nothing, and nothing reads it back as a
fact.
"""

from __future__ import annotations

import json

from ..core.broker import Broker
from ..core.decision import Stamp
from ..core.queries import status
from ..core.turn import Turn
from ..errors import PraxistError
from ..host.paths import RunPaths
from ..ledger.files import read_limited, write_atomically
from ..protocol import codec
from ..protocol.envelope import Json

STATUS_BYTES_MAX = 4 * 1024 * 1024
ENDED_BY_STOP = "ended_by_stop"
"""How many experiments a stop has ended whose outcome is not recorded yet."""
_OF_THE_LEDGER = ("jobs", "jobs_total", "queue_blocked_reasons", "generation", "epoch", "sequence")


def view_of(broker: Broker, stamp: Stamp) -> Json:
    """What the ledger tells of the run's jobs."""
    whole: Json = json.loads(codec.encode(status(Turn(broker.state, broker.soft, stamp))))
    return {key: whole[key] for key in (*_OF_THE_LEDGER, "at") if key in whole}


def write_view(run: RunPaths, view: Json, *, gone: bool) -> str | None:
    """Write it over the last scheduler's. `gone`: no process of the run is left. The trouble, if
    it cannot be written: that stops nothing."""
    try:
        content = json.loads(read_limited(run.status, STATUS_BYTES_MAX))
        kept = content if isinstance(content, dict) else {}
    except (OSError, ValueError, RecursionError, PraxistError):
        kept = {}  # `status` tells of an unreadable one; this one replaces it
    kept.update(view)
    if gone:
        kept[ENDED_BY_STOP] = view["jobs"].get("running", 0)
        kept["jobs"] = {**view["jobs"], "running": 0}
        kept["running_activity"] = None
    try:
        write_atomically(run.status, json.dumps(kept).encode() + b"\n", 0o644, durable=False)
    except (OSError, PraxistError) as error:
        return f"status.json is old: {error}"
    return None
