"""Commits numbered records and says after each which one is acknowledged; made to be killed.

`python -m tests.crash.ledger_writer DIR COUNT [SEGMENT_BYTES]`
"""

from __future__ import annotations

import sys
from pathlib import Path

from praxist_zmq.errors import PraxistError
from praxist_zmq.ledger.log import Ledger


def main() -> int:
    directory, count, segment_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    ledger = Ledger.open(directory, "broker", "run", "boot", segment_bytes, 1 << 16)
    for _ in ledger.replay():
        pass
    ledger.start()
    failed = 0
    for _ in range(count):
        number = ledger.last_sequence + 1
        try:
            sequence = ledger.commit([b'{"n":%d,"filling":"%b"}' % (number, b"x" * 90)])
        except PraxistError as error:
            print(f"refused {number} {error.code}", flush=True)
            failed += 1
        else:
            print(f"acknowledged {sequence}", flush=True)
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
