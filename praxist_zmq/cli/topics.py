"""The help topics. Tables that exist in code are read from there, so they can't disagree."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ERRORS
from .route import CONFIG_VARIABLE, ENDPOINT_VARIABLE, MODE_VARIABLE
from .settings import ENVIRONMENT_PREFIX
from .submission import LEASE_VARIABLE
from .words import PROGRAM, cut, safe


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: a summary for the list, and its lines."""

    summary: str
    lines: Callable[[], list[str]]


_EXITS = (
    ("the job's own", "of `launch`, `wait` on one job and `logs -f`; 128+n for death by signal n"),
    ("0", "done"),
    ("1", "failed in part: `status` troubled, survivors after `stop`, a failure among several"),
    ("2", "wrong usage"),
    ("3", "`status`: not running"),
    ("65", "rejected: the request is wrong as sent; change it"),
    ("69", "absent or closed: no scheduler, admission or generation closed, no time left"),
    ("70", "a fault of ours; a report file is named"),
    ("73, 74", "a file: unsafe or unusable; the ledger is damaged or cannot be written"),
    ("75", "temporary: send the very same command again"),
    ("76", "client and scheduler speak different protocols"),
    ("77", "not yours"),
    ("78", "the contract is invalid"),
    ("79", "outcome unknown: look before running it again"),
    ("124", "the waiting time is over; the job lives"),
    ("130", "interrupted; detached, the job lives"),
)


def _exit_codes() -> list[str]:
    lines = ["Exit codes", ""]
    lines += [f"  {code:<14} {text}" for code, text in _EXITS]
    lines += ["", "By error code", ""]
    lines += [
        f"  {row.exit_code:>3}  {row.code:<22} {row.title}"
        for row in sorted(ERRORS.values(), key=lambda row: (row.exit_code, row.code))
    ]
    return [
        *lines,
        "",
        "Under --json, `exit_source` is `job` or `scheduler`. `--scheduler-exit N` on launch and",
        "submit puts N in the place of the scheduler's codes (124 and 130 stay).",
    ]


_VARIABLES = (
    ("PRAXIST_RUN_DIR", "the run, when --run-dir is absent; then AUTO_RESEARCH_RUN_DIR"),
    ("PRAXIST_PEER_ID", "the peer, when --peer is absent"),
    (LEASE_VARIABLE, "the lease that is answered, when --lease is absent"),
    ("PRAXIST_ZMQ_HOST_DIR", "directory of the host scope that runs share"),
    ("PRAXIST_MAX_PARALLEL_RUNS_PER_PEER", "running jobs of one peer, for `up`"),
    ("PRAXIST_ZMQ_REGISTRY_IDLE_S", "seconds after which an unused claim registry ends, for `up`"),
    (MODE_VARIABLE, "`legacy`: `launch` starts it itself where no scheduler ever was"),
    (CONFIG_VARIABLE, "the contract as JSON, for its mode; as above"),
    (ENDPOINT_VARIABLE, "a scheduler is expected: without one `launch` is an error"),
    ("PRAXIST_ZMQ_RUNTIME_DIR", "where sockets and the scope live; else /tmp/praxist-zmq-UID"),
    ("NO_COLOR", "no colour"),
    ("FORCE_COLOR", "colour also in a pipe"),
    ("COLUMNS", "width of tables"),
)
_GIVEN = (
    "PRAXIST_RUN_DIR PRAXIST_PEER_ID PRAXIST_EXPERIMENT_ID PRAXIST_EXPERIMENT_ATTEMPT_ID",
    "PRAXIST_EXPERIMENT_ATTEMPT_DIR PRAXIST_RESOURCE_PROFILE PRAXIST_ASSIGNED_GPU_UUIDS",
    "CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES",
)


def _environment() -> list[str]:
    lines = ["Environment of the command", ""]
    for name, text in _VARIABLES:
        value = os.environ.get(name)
        lines += [f"  {name}", f"      {text}"]
        lines += [] if value is None else [f"      now: {cut(safe(value), 66)}"]
    given = [name for name in sorted(os.environ) if name.startswith(f"{ENVIRONMENT_PREFIX}_")]
    known = {name for name, _ in _VARIABLES}
    return [
        *lines,
        "",
        "Options have variables too; what is typed goes before. Global ones PRAXIST_ZMQ_OPTION, as",
        "PRAXIST_ZMQ_OUTPUT=json; a verb's own PRAXIST_ZMQ_VERB_OPTION, as",
        "PRAXIST_ZMQ_LAUNCH_PROFILE=gpu_work. Not so what is meant for one call: --yes, --all,",
        "--tag, --follow, --watch, --rerun, --retry-terminal and the --allow ones. Set now:",
        "",
        *(
            [f"  {name}={cut(safe(os.environ[name]), 50)}" for name in given if name not in known]
            or ["  none"]
        ),
        "",
        "An experiment gets these, and for the rest the submitter's environment:",
        "",
        *(f"  {line}" for line in _GIVEN),
    ]


def _states() -> list[str]:
    return [
        "States of a job",
        "",
        "  queued            accepted, on disk, waits for admission",
        "  waiting_for_credentials",
        "                    queued, but its credentials were lost in a restart: send it again",
        "  running           an attempt holds its devices",
        "  completed         ended with exit 0",
        "  failed            ended otherwise; --retry-terminal tries again under the same identity",
        "  cancelled         ended or withdrawn by somebody: no result, whatever its exit status;",
        "                    --retry-terminal runs it after all",
        "  rejected          will not run: withdrawn, refused, or the run was stopped",
        "  drained_unknown   ended while nothing could see how; not run again under its tag",
        "",
        "First word of `launch` and `submit`:",
        "",
        "  started queued joined done retrying rejected unavailable",
        "",
        "Other first words: `timeout` your waiting time is over, the job goes on; `detached` you",
        "interrupted the wait; `withdrawn` it did not start in --admission-timeout; `usage`.",
    ]


_BLOCKERS = (
    ("generation_frozen", "the generation takes no new attempts"),
    ("assessment_mature_only", "only mature work runs during assessment"),
    ("eta_does_not_fit", "the expected run time passes the deadline"),
    ("low_completion_probability", "it would probably not end in time"),
    ("peer_cap", "the peer runs as many as it may"),
    ("run_limit", "the run runs as many as it may"),
    ("host_limit", "the host runs as many as it may"),
    ("pressure_cpu", "the host's processors are too busy"),
    ("pressure_memory", "the host's memory is too full"),
    ("pressure_io", "the host's disks are too busy"),
    ("gpu_compute_short", "no device has enough compute left"),
    ("gpu_memory_short", "no device has enough memory left"),
    ("gpu_count_short", "too few devices are free at once"),
    ("gpu_needs_exclusive", "its demand is unknown: it needs devices for itself"),
    ("gpu_held_exclusive", "the devices are held by one job alone"),
    ("gpu_held_elsewhere", "the devices are held by another host scope"),
    ("gpu_reserved", "the devices are kept for a job that has waited longer"),
    ("fair_share", "what is free is for a run that holds less and waits"),
    ("probe_unknown", "the accelerator driver does not answer; unknown is never zero"),
    ("probe_unavailable", "there is no accelerator driver"),
    ("recovery_pending", "the scheduler is still finding what it left running"),
    ("registry_refused", "the host's claim registry granted it nothing; it is asked again"),
    ("queue_order", "others are ahead in the queue"),
    ("credentials_missing", "its credentials were lost in a restart"),
    ("admission_closed", "the run starts nothing more"),
    ("placement_paused", "attempts failed quickly there; the placement rests"),
    ("retry_pause", "it was just tried in vain, and pauses before its next attempt"),
    ("disk_full", "the run's disk has no room: nothing starts until there is some"),
    ("host_shortage", "the host lacks processes, memory, descriptors; one attempt tries it"),
    ("profile_undeclared", "the contract in force does not declare its profile"),
)


def _blockers() -> list[str]:
    from ..core.admission import COARSE

    coarse: dict[str, list[str]] = {}
    for code, word in COARSE.items():
        coarse.setdefault(word, []).append(code)
    return [
        "Why a job waits; `explain JOB` gives the numbers",
        "",
        *(f"  {code:<28} {text}" for code, text in _BLOCKERS),
        "",
        "Coarse words of `queue_blocked_reason` and `queue_blocked_reasons` under --json,",
        "by the first blocker:",
        "",
        *(f"  {word:<30} {', '.join(codes)}" for word, codes in coarse.items()),
        "  resource_pressure_or_capacity  every other",
        "  starting                       none: it is being started",
    ]


def _agents() -> list[str]:
    return [
        "For agents that submit experiments",
        "",
        f"  {PROGRAM} launch --peer P --tag T -- CMD...",
        "",
        "  - The first word on stderr is the verdict; it comes within a second.",
        "  - A tag names one experiment for good. The same tag joins what is there;",
        "    another experiment needs another tag. With --same-command, a tag whose job has",
        "    another command is an error (65, `other_command`): nothing is queued or joined.",
        "  - Exit 75: send the very same command again. 65: change it. 69: stop, and report it.",
        "  - Unless the code is the job's own: then the last line on stderr says so, with the next",
        "    step, and --json has `exit_source`: `job`. A job that ended with 75 or 124 has ended:",
        f"    {PROGRAM} retry JOB.",
        "  - Tool calls with a time limit: add --max-wait 9m; exit 124 means that the job lives.",
        f"    Then: {PROGRAM} wait tag:T --timeout 9m",
        "  - A job that failed: read `logs`, repair, then add --retry-terminal, keep the tag.",
        "    After a lost answer `retry j-12.1`, or --retry-of j-12.1, runs it once in any case.",
        "  - The scheduler chooses devices. Never start the evaluator yourself.",
        "  - --json gives one document; `help formatting`.",
    ]


def _formatting() -> list[str]:
    return [
        "Output",
        "",
        "  -o table   fitted to the terminal (the default there)",
        "  -o plain   tab-separated, uncut, a header once (the default in a pipe)",
        "  -o json    one document; --json is the same",
        "  -o jsonl   one document a line: queue, wait, launch; events under --json too",
        "  -o name    ids only; -q is the same",
        "",
        "  Every document has format_version and kind. Keys of a kind are always there; null is",
        "  unknown or not applicable. Errors have kind `error`. Times are RFC 3339, UTC.",
        "  Control characters in tags and peers are shown as escapes; those in log lines on a",
        "  terminal only: in a pipe `logs --full` is the log byte for byte; -n drops the states of",
        "  a progress bar that were painted over. A name that is cut has a +.",
        "  Durations (DUR): 900, 900s, 15m, 1h30m, 2d.",
    ]


TOPICS: dict[str, Topic] = {
    "exit-codes": Topic("every exit status and error code", _exit_codes),
    "environment": Topic("variables that are read, and that experiments get", _environment),
    "states": Topic("states of a job, verdicts of a submission", _states),
    "blockers": Topic("every reason why a job waits", _blockers),
    "agents": Topic("how an agent should submit", _agents),
    "formatting": Topic("output formats", _formatting),
}
