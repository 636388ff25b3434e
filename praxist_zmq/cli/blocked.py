"""Why a job waits, in few words for a table's cell: `GPU compute -28, peer cap`.

Pure: blockers as the broker tells them become words. Standard library only.
"""

from __future__ import annotations

from ..protocol.envelope import Json
from .words import safe

_WORDS = {
    "gpu_compute_short": "GPU compute",
    "gpu_memory_short": "GPU memory",
    "gpu_count_short": "GPU count",
    "gpu_needs_exclusive": "needs GPU alone",
    "gpu_held_exclusive": "GPU held alone",
    "gpu_held_elsewhere": "GPU of another scope",
    "gpu_reserved": "GPU kept for older",
    "peer_cap": "peer cap",
    "run_limit": "run limit",
    "host_limit": "host limit",
    "fair_share": "fair share",
    "pressure_cpu": "cpu pressure",
    "pressure_memory": "memory pressure",
    "pressure_io": "io pressure",
    "probe_unknown": "devices unknown",
    "probe_unavailable": "no usable device",
    "recovery_pending": "recovery",
    "registry_refused": "registry",
    "queue_order": "after older",
    "credentials_missing": "credentials",
    "admission_closed": "closed",
    "placement_paused": "rests after 75s",
    "retry_pause": "pauses before its retry",
    "host_shortage": "host lacks something",
}


def why_short(blockers: list[Json]) -> str:
    """The reasons with what is short, in the order in which they are told."""
    return ", ".join(_short(blocker) for blocker in blockers)


def _short(blocker: Json) -> str:
    code = str(blocker["code"])
    word = _WORDS.get(code, code.replace("_", " "))
    need, free = blocker.get("need"), blocker.get("free")
    if need is None or free is None:
        return safe(word)
    if code == "gpu_compute_short":
        return f"{word} -{need - free:.0f}"
    if code == "gpu_memory_short":
        return f"{word} -{(need - free) / 1024:.1f} GiB"
    if code == "gpu_count_short":
        return f"{free:.0f} of {need:.0f} GPUs"
    return safe(word)
