"""Folds sealed segments into a snapshot and deletes what is covered; made to be killed.

`python -m tests.crash.snapshot_writer DIR SEQUENCE`
"""

from __future__ import annotations

import sys
from pathlib import Path

from praxist_zmq.ledger.snapshot import Snapshots, read_until


def main() -> int:
    directory, sequence = Path(sys.argv[1]), int(sys.argv[2])
    snapshots = Snapshots(directory)
    base = snapshots.newest()
    state = base.data if base else b""
    for _, payload in read_until(directory, sequence, base.sequence if base else 0):
        state += payload + b"\n"
    snapshots.write(sequence, state)
    snapshots.delete_covered()
    return 0


if __name__ == "__main__":
    sys.exit(main())
