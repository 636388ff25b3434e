"""The states of a job as readers are shown them, for whoever must not load the models.

Standard library only: the client and the command line import this module.
"""

from typing import Literal

JobState = Literal[
    "queued",
    "waiting_for_credentials",
    "running",
    "completed",
    "failed",
    "cancelled",
    "rejected",
    "drained_unknown",
]
TERMINAL_STATES = frozenset({"completed", "failed", "cancelled", "rejected", "drained_unknown"})
