"""The one table of errors: what the wire, the command line's exit status and the docs share.

Every refusal anywhere in the project names a code of this table. A code is never reused for
another meaning and never removed, because scripts test for it. Exit codes follow sysexits(3)
where it has a fitting one.

Standard library only: the command line's fast verbs import this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One row of the table.

    `exit_code` is the status a command ends with; `retryable` says that the very same command
    may be sent again with a chance to succeed.
    """

    code: str
    exit_code: int
    retryable: bool
    title: str
    help: str


def _rows(*rows: ErrorCode) -> dict[str, ErrorCode]:
    table = {row.code: row for row in rows}
    assert len(table) == len(rows), "an error code occurs twice"
    return table


# fmt: off
ERRORS: dict[str, ErrorCode] = _rows(
    # -- the command as typed
    ErrorCode("usage", 2, False, "wrong usage",
              "see `praxist-zmq help VERB`"),
    ErrorCode("ambiguous_run", 2, False, "more than one run could be meant",
              "name one with --run-dir"),
    ErrorCode("ambiguous_job", 2, False, "more than one job could be meant",
              "use more of the id, or tag:TEXT"),
    # -- 1: a check that found something
    ErrorCode("binding_conflict", 1, False, "a device mask contradicts the assignment",
              "the detail names the variable and the mend; see docs/binding.md"),
    # -- 65: the request is wrong as sent
    ErrorCode("malformed_request", 65, False, "the request is malformed",
              "the detail names what is wrong; mend that and send it again"),
    ErrorCode("unknown_request", 65, False, "this scheduler does not know that request",
              "compare `praxist-zmq version` on both sides"),
    ErrorCode("too_large", 65, False, "the request is over a limit",
              "the detail names the item and the limit"),
    ErrorCode("request_id_conflict", 65, False, "this request id was used for another request",
              "use a fresh request id for a new request"),
    ErrorCode("unknown_job", 65, False, "no such job", "list them with `praxist-zmq queue -a`"),
    ErrorCode("unknown_profile", 65, False, "unknown profile",
              "use a declared profile; another device class is never chosen for you"),
    ErrorCode("profile_unsatisfiable", 65, False, "this profile can never run on this host",
              "tell the task's author; do not send it again"),
    ErrorCode("bad_command", 65, False, "the command cannot be executed as sent",
              "the detail names the argument or variable"),
    ErrorCode("bad_directory", 65, False, "the working directory cannot be used",
              "give one that is there with --cwd"),
    ErrorCode("literal_secret", 65, False, "the command holds a literal secret",
              "put the secret in an environment variable and refer to that"),
    ErrorCode("terminal_duplicate", 65, False, "this tag already ended badly",
              "read its log; after a repair add --retry-terminal and keep the tag"),
    ErrorCode("other_command", 65, False, "this tag's job has another command; nothing was joined",
              "give other science another tag; leave out --same-command to join it"),
    ErrorCode("tag_held", 65, False, "an experiment that the ledger does not know has this tag",
              "wait until it has ended, or read what it left; the detail names it"),
    ErrorCode("attempt_on_disk", 65, False, "an attempt that the ledger does not know is on disk",
              "read its log and results; `praxist-zmq retry JOB` runs it again all the same"),
    ErrorCode("retry_without_job", 65, False, "there is nothing to retry under this tag",
              "leave out --retry-terminal"),
    ErrorCode("retry_conflict", 65, False, "this tag is not in a state that a retry may change",
              "wait for it, or use another tag for other science"),
    ErrorCode("tag_given_back", 65, False, "this job holds its tag no more",
              "nothing of it ran: send it again as a new job, not as a retry"),
    ErrorCode("unknown_lease", 65, False, "no such lease",
              "it has ended or was never given; `praxist-zmq leases` lists them"),
    ErrorCode("not_cancellable", 65, False, "the job already ended", "nothing is left to cancel"),
    ErrorCode("job_runs", 65, False, "the job is running",
              "`praxist-zmq cancel JOB --yes` ends it: TERM, grace, KILL"),
    ErrorCode("cancelled", 65, False, "the job was cancelled",
              "send it again with --retry-terminal if it should run after all"),
    ErrorCode("already_protected", 65, False, "this peer already runs this tag itself",
              "wait for it with `praxist-zmq protected wait`; two at once: --allow-duplicate"),
    # -- 69: absent or closed
    ErrorCode("no_scheduler", 69, False, "no scheduler answers for this run",
              "operator: `praxist-zmq up --run-dir DIR`; peer: report it, start nothing yourself"),
    ErrorCode("no_run", 69, False, "no run was found",
              "give --run-dir, or start one with `praxist-zmq up`"),
    ErrorCode("no_driver", 69, False, "no NVIDIA driver answers here",
              "run it on a host, or in a container, that has the driver's libraries"),
    ErrorCode("no_registry", 69, False, "no claim registry serves this host scope",
              "its owner starts it; the detail says who and how"),
    ErrorCode("admission_closed", 69, False, "the run takes no more work",
              "running jobs go on; an operator may start the run again with `praxist-zmq up`"),
    ErrorCode("generation_closing", 69, False, "this generation takes no more work",
              "running jobs go on to publish; send it again in the next generation"),
    ErrorCode("generation_assessment", 69, False, "this generation takes only mature work now",
              "running jobs go on; send it again in the next generation"),
    ErrorCode("supply_disabled", 69, False, "this run offers no leases",
              "submit what is planned without one; its contract sets supply_signal_enabled"),
    ErrorCode("insufficient_generation_time", 69, False, "it cannot end before the generation does",
              "a shorter experiment may still fit; else send it in the next generation"),
    ErrorCode("generation_unknown", 69, False, "this generation was never opened",
              "`praxist-zmq generation show` tells the current one"),
    ErrorCode("already_running", 69, False, "a scheduler already runs for this run",
              "use it, or end it with `praxist-zmq down`"),
    ErrorCode("second_scope", 69, False, "this user's host scope is served elsewhere",
              "go on with the place that the detail names, or have what serves there end"),
    ErrorCode("start_failed", 69, False, "the scheduler could not be started",
              "the detail and the log under resource_scheduler/log/ say why"),
    ErrorCode("restart_limit", 69, False, "a process failed too often in too short a time",
              "read its log under resource_scheduler/log/, mend the cause, then `up` again"),
    # -- 70: ours
    ErrorCode("internal", 70, False, "a fault of ours",
              "please report it with the log under resource_scheduler/log/"),
    # -- 73, 74: files
    ErrorCode("ledger_damaged", 74, False, "the ledger is damaged",
              "`praxist-zmq ledger verify` says where; `ledger repair --copy` works on a copy"),
    ErrorCode("ledger_newer", 74, False, "the ledger was written by a newer version",
              "use that version; this one changed nothing"),
    ErrorCode("ledger_write_failed", 74, False, "the ledger could not be written",
              "mend the disk, then `up` again; running experiments go on"),
    ErrorCode("file_lost", 74, False, "a file of a live scheduler is not there any more",
              "keep cleaners away from it; then `praxist-zmq up` again; running experiments go on"),
    ErrorCode("ledger_lost", 74, False, "the run's ledger is missing, or older than it was",
              "put it back; `praxist-zmq up --accept-lost-records` goes on with what is there"),
    ErrorCode("run_moved", 74, False, "the run's directory was renamed, or its ledger moved",
              "give the directory the name that the detail tells, then `up`; nothing was changed"),
    ErrorCode("unreadable_record", 74, False, "a record of this job is unreadable",
              "`praxist-zmq ledger story JOB` shows what is left; then --retry-terminal"),
    ErrorCode("unsafe_path", 73, False, "a path is not safe to use",
              "the detail names the path and what is wrong with it"),
    ErrorCode("path_unusable", 73, False, "a path cannot be used",
              "mend what the detail names, or name another path"),
    # -- 75: temporary; send the same command again
    ErrorCode("no_space", 75, True, "the ledger has no room",
              "make room as the detail says and send the same command again; nothing was lost"),
    ErrorCode("scheduler_restarting", 75, True, "the scheduler is restarting",
              "send the same command again; a job that was accepted is kept"),
    ErrorCode("no_threads", 75, True, "this process can start no thread",
              "end something of this user, or raise the limit (`ulimit -u`, pids.max)"),
    ErrorCode("no_answer", 75, True, "the scheduler does not answer in time",
              "send the same command again; it is safe"),
    ErrorCode("admission_timeout", 75, True, "the job did not start in the time you allowed",
              "nothing ran and the tag is free; send the same command again later"),
    ErrorCode("accelerator_probe_unknown", 75, True, "the accelerator driver tells nothing",
              "nothing ran and the tag is free; send the same command again once it answers"),
    ErrorCode("peer_at_capacity", 75, True, "this peer runs as much as it may",
              "send the same command again when something has ended, or add --admission-timeout"),
    ErrorCode("busy", 75, True, "too many requests are waiting", "send the same command again"),
    # -- the rest
    ErrorCode("protocol_mismatch", 76, False, "client and scheduler speak different protocols",
              "use the client of the scheduler's version"),
    ErrorCode("not_yours", 77, False, "that belongs to somebody else",
              "only its owner or the operator may do this"),
    ErrorCode("stale_epoch", 77, False, "a newer scheduler has taken over",
              "nothing to do: the newer one serves the run"),
    ErrorCode("contract_invalid", 78, False, "the contract is invalid",
              "the detail names the key and what it may be"),
    ErrorCode("outcome_unknown", 79, False, "the outcome is unknown",
              "look at the log and the results before running it again"),
    ErrorCode("wait_timeout", 124, True, "the waiting time is over",
              "`praxist-zmq wait JOB` waits on"),
    ErrorCode("interrupted", 130, False, "the wait was interrupted",
              "`praxist-zmq wait JOB` waits on; `praxist-zmq cancel JOB --yes` ends it"),
)
# fmt: on


@dataclass(eq=False)
class PraxistError(Exception):
    """Any failure the project reports on purpose.

    `code` is a row of `ERRORS`; `detail` says what and where in one sentence; `help` overrides
    the row's standing advice with something more exact.
    """

    code: str
    detail: str
    help: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.code, self.detail)
        if self.code not in ERRORS:
            raise KeyError(f"{self.code!r} is not in the error table")

    @property
    def row(self) -> ErrorCode:
        """The table's row for this error."""
        return ERRORS[self.code]

    @property
    def exit_code(self) -> int:
        """The process exit status this error stands for."""
        return self.row.exit_code

    @property
    def retryable(self) -> bool:
        """Whether the very same request may be sent again."""
        return self.row.retryable

    def __str__(self) -> str:
        return f"{self.row.title}: {self.detail}" if self.detail else self.row.title

    def document(self) -> dict[str, object]:
        """The `kind: error` JSON document of interface `--json`."""
        return {
            "format_version": "1.0",
            "kind": "error",
            "code": self.code,
            "title": self.row.title,
            "detail": self.detail,
            "help": self.help or [self.row.help],
            "retryable": self.row.retryable,
            "exit_code": self.exit_code,
        }
