"""Which job a text means: `j-12` or `12`, a prefix of the long id, `last`, or `tag:TEXT`."""

from __future__ import annotations

import re

from .state import BrokerState, Job
from .turn import Refused

_SHORT = re.compile(r"^j-[1-9][0-9]*$")
_NUMBER = re.compile(r"^[1-9][0-9]{0,11}$")
_PREFIX = re.compile(r"^[0-9a-f]{4,32}$")


def select(state: BrokerState, text: str) -> Job:
    """The one job. Raises `unknown_job` or `ambiguous_job`."""
    if text == "last":
        if not state.last_job_number:
            raise Refused("unknown_job", "this run has no job yet")
        text = f"j-{state.last_job_number}"
    if _SHORT.match(text):
        job = state.jobs.get(text)
        if job is None:
            raise Refused("unknown_job", f"no job {text} in run {state.run_id}")
        return job
    if _NUMBER.match(text) and f"j-{text}" in state.jobs:
        return state.jobs[f"j-{text}"]
    if text.startswith("tag:"):
        name = state.tags.get(text[4:])
        if name is None:
            raise Refused("unknown_job", f"no job with the tag {text[4:]!r}")
        return state.jobs[name]
    if _PREFIX.match(text):
        found = [job for job in state.jobs.values() if job.job_id.startswith(text)]
        if len(found) > 1:
            names = ", ".join(job.job for job in found[:5])
            raise Refused("ambiguous_job", f"{text!r} may be {names}")
        if found:
            return found[0]
    raise Refused(
        "unknown_job",
        f"{text[:80]!r} is no job",
        ["use j-12 or 12, a long id's prefix, last, tag:TEXT"],
    )
