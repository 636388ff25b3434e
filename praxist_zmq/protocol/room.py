"""How much room a disk has. Values only: who measures and who judges are others."""

from __future__ import annotations

from typing import NamedTuple


class DiskRoom(NamedTuple):
    """One look at the file system of a directory."""

    free_bytes: int
    """For our user."""
    bytes: int
    free_inodes: int
    inodes: int
    """0 where the file system does not count them."""
