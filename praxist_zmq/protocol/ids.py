"""The names of things, as constrained strings.

A job is `j-12`, its second attempt `j-12.2`. Numbers come from the ledger's order, so no id needs
randomness, and the order of ids is the order of acceptance.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

JobId = Annotated[str, StringConstraints(pattern=r"^j-[1-9][0-9]{0,11}$")]
AttemptId = Annotated[str, StringConstraints(pattern=r"^j-[1-9][0-9]{0,11}\.[1-9][0-9]{0,5}$")]
FollowedAttempt = Annotated[
    str, StringConstraints(pattern=r"^j-[1-9][0-9]{0,11}\.(0|[1-9][0-9]{0,5})$")
]
"""The attempt that a retry follows; number 0 is of a job of which none was made."""
LongJobId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Identity = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{8,80}$")]
DeviceUuid = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/-]{1,96}$")]
LeaseId = Annotated[str, StringConstraints(pattern=r"^supply-[0-9]{1,12}-[0-9a-f]{16}$")]
"""`supply-12-` and 16 hex digits that nobody can guess: a number alone would be taken by others."""
RunId = Annotated[str, StringConstraints(min_length=1, max_length=255)]
PeerId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}$")]
Tag = Annotated[
    str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]+$")
]
ProfileName = Annotated[
    str, StringConstraints(pattern=r"^[^\x00-\x20\x7f][^\x00-\x1f\x7f]{0,127}$")
]


def job_id(number: int) -> str:
    """`12` -> `j-12`."""
    return f"j-{number}"


def job_number(job: str) -> int:
    """`j-12` -> `12`."""
    return int(job[2:])


def attempt_id(job: str, attempt: int) -> str:
    """`j-12`, `2` -> `j-12.2`."""
    return f"{job}.{attempt}"


def job_of(attempt: str) -> str:
    """`j-12.2` -> `j-12`."""
    return attempt[: attempt.index(".")]


def attempt_number(attempt: str) -> int:
    """`j-12.2` -> `2`."""
    return int(attempt[attempt.index(".") + 1 :])
