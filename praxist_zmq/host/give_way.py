"""Let whoever is ready run before us. Source: sched_yield(2)."""

from __future__ import annotations

import os


def give_way() -> None:
    """After something was sent by a stream or a pipe, and before longer work of ours.

    Linux then puts the receiver behind the sender on the same processor, because a sender is about
    to sleep as a rule; one that goes on keeps it waiting, while other processors may have nothing
    to do. Where nobody is ready this costs a system call.
    """
    os.sched_yield()
