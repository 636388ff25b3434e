"""The JSON documents of the command line: which keys each kind always has.

A key is never left out; null is unknown or not applicable. Source: the interface's JSON section.
Standard library only.
"""

from __future__ import annotations

from typing import Any

FORMAT_VERSION = "1.0"

JOB_KEYS = (
    "job", "job_id", "run_id", "generation", "tag", "peer", "profile", "work_class", "state",
    "attempts", "attempt", "pid", "pgid", "gpu_uuids", "exit_code", "signal",
    "submitted_at", "queued_at", "started_at", "ended_at", "eta_seconds", "lease_id",
    "blockers", "queue_blocked_reason", "reject_code", "failure_category", "failure_signature",
    "failure_hint", "log_path", "binding_status", "depends_on", "version", "note",
    "resource_activity", "left_s", "progress",
)  # fmt: skip
SUBMISSION_KEYS = (
    "verdict", "job", "job_id", "tag", "state", "new", "profile", "profile_source", "work_class",
    "blockers", "start_estimate", "retryable", "exit_code", "exit_source", "error",
    "inside_attempt", "notes", "signal", "reject_code", "failure_category", "failure_signature",
    "failure_hint", "log_path",
)  # fmt: skip
STATUS_KEYS = (
    "run_id", "run_dir", "health", "warnings", "processes", "jobs", "jobs_total",
    "concurrency_limit", "host", "accelerator_probe", "queue_blocked_reasons", "running_activity",
    "generation", "resource_supply", "simulated", "epoch", "sequence", "ledger_bytes", "counters",
    "at", "alarms", "max_parallel_runs_per_peer", "limits",
)  # fmt: skip
DEVICE_KEYS = (
    "index", "uuid", "name", "state", "memory_total_mib", "memory_used_mib", "utilization_pct",
    "declared_memory_mib", "declared_utilization_pct", "external_memory_mib",
    "external_utilization_pct", "exclusive", "jobs", "runs", "other_runs",
    "free_memory_mib", "free_utilization_pct", "attribution", "external", "reason",
    "held_elsewhere",
)  # fmt: skip
BLOCKER_KEYS = ("code", "detail", "need", "free", "limit", "unit")
GENERATION_KEYS = (
    "generation", "state", "reason", "opened_at", "deadline", "cohort_size", "mature_quorum",
    "publish_completed", "jobs", "attempts", "results", "maturity", "advice",
)  # fmt: skip
RESULT_KEYS = ("generation", "tag", "peer", "mature", "source", "published_at")
LEASE_KEYS = (
    "lease_id", "peer", "generation", "priority", "profiles", "state", "reason", "detail", "job",
    "issued_at", "expires_at", "left_s", "release_pending", "cooling_s",
)  # fmt: skip
EVENT_KEYS = ("sequence", "at", "type", "job", "attempt", "text")

_LISTS = frozenset(
    {
        "blockers",
        "gpu_uuids",
        "depends_on",
        "warnings",
        "alarms",
        "processes",
        "jobs_list",
        "external",
        "profiles",
    }
)


def pick(keys: tuple[str, ...], source: dict[str, Any]) -> dict[str, Any]:
    """Exactly `keys` of `source`; a missing one is null, a missing list empty."""
    return {key: source.get(key, [] if key in _LISTS else None) for key in keys}


def head(kind: str) -> dict[str, Any]:
    """The two keys every document starts with."""
    return {"format_version": FORMAT_VERSION, "kind": kind}


def job_body(job: dict[str, Any]) -> dict[str, Any]:
    """A job as an item of a list."""
    body = pick(JOB_KEYS, job)
    body["blockers"] = [pick(BLOCKER_KEYS, blocker) for blocker in body["blockers"] or []]
    return body


def job_document(job: dict[str, Any]) -> dict[str, Any]:
    """`show`."""
    return {**head("job"), **job_body(job)}


def submission_document(
    kind: str,
    *,
    verdict: str,
    job: dict[str, Any] | None,
    tag: str,
    answer: dict[str, Any],
    retryable: bool,
    exit_code: int,
    exit_source: str,
    error: dict[str, Any] | None,
) -> dict[str, Any]:
    """`launch` and `submit`. `answer` is the broker's `submitted` reply, or empty."""
    view = job or {}
    facts = {
        **view,
        "verdict": verdict,
        "tag": view.get("tag", tag),
        "new": answer.get("new", False),
        "profile_source": answer.get("profile_source"),
        "blockers": job_body(view)["blockers"],
        "start_estimate": answer.get("start_estimate"),
        "retryable": retryable,
        "exit_code": exit_code,
        "exit_source": exit_source,
        "error": error,
        "inside_attempt": answer.get("inside_attempt"),
        "notes": list(answer.get("notes") or []),
    }
    return {**head(kind), **pick(SUBMISSION_KEYS, facts)}


def status_document(status: dict[str, Any]) -> dict[str, Any]:
    """`status`."""
    return {**head("status"), **pick(STATUS_KEYS, status)}
