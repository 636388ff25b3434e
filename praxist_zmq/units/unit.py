"""A unit as its child process sees it, the statuses with a meaning, and the helper's error.

Decides nothing. A child reads its unit from the environment, so a worker in any language can.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

TEMPORARY = 75
"""Exit status of a unit that met a passing fault of the infrastructure (EX_TEMPFAIL)."""
SCIENTIFIC = 20
"""Exit status of a unit that ran and found that its science failed: never a reason to stop."""
UNIT_VARIABLE = "PRAXIST_UNIT"
MARK_VARIABLE = "PRAXIST_UNIT_MARK"
"""What tells a unit's descendants from other processes; see `units.descendants`."""


@dataclass(eq=False)
class UnitsError(Exception):
    """The helper was used in a way that cannot work.

    `what` is wrong, `where` is the argument, variable or file, `mend` what to do about it.
    """

    what: str
    where: str
    mend: str

    def __post_init__(self) -> None:
        super().__init__(self.what, self.where, self.mend)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.mend}"


class ScientificFailure(Exception):
    """Raised by a function in a child: the unit ran, and its science failed (`SCIENTIFIC`)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One try of one unit.

    `device` is the UUID it is to use, None on the CPU; `slot` counts the places on that device,
    or the CPU's, from 0; `attempt` counts its tries from 1; `result` is the file that its result
    goes to, as JSON.

    >>> Unit("seed0", 0, 1, "GPU-a", 0, "/tmp/r.json").device
    'GPU-a'
    """

    key: str
    index: int
    attempt: int
    device: str | None
    slot: int
    result: str

    def as_text(self) -> str:
        """For the child's environment."""
        return json.dumps(asdict(self), ensure_ascii=True)


def current(environ: Mapping[str, str] | None = None) -> Unit:
    """The unit that this process, or one above it, was started for. Raises UnitsError."""
    text = (os.environ if environ is None else environ).get(UNIT_VARIABLE)
    mend = "call it in a process that `units.run` started, and pass the variable on as it is"
    if text is None:
        raise UnitsError("absent: this process is of no unit", UNIT_VARIABLE, mend)
    try:
        return Unit(**json.loads(text))
    except (TypeError, ValueError):
        raise UnitsError("malformed", UNIT_VARIABLE, mend) from None
