"""One submission: join, refuse, or accept.

The order of the tests is part of the contract: a repeated request is answered from memory, then
what is wrong with the request itself, then duplicates, then whether the run takes work at all.
Sources: seed 000 "Submission"; design 2 (promise 2) and 5 ("Joining is told").
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import PraxistError
from ..protocol import events as ev
from ..protocol.ids import job_id
from ..protocol.replies import Refusal, Submitted, Verdict
from ..protocol.requests import SubmitJob, SubmitJobs
from ..protocol.text import OsText
from . import credentials, leases
from .admission import closed_help, closed_words
from .commands import ClientRequest
from .exec_limits import check_command, check_environment
from .generation_gate import generation_of, generation_refusal
from .identity import identity_of, long_job_id
from .next_number import next_job_number
from .on_disk import check_new_tag
from .placement import never_fits, stale_sample
from .retry_of import followed_already, lost_notes, retry_conflict, retry_help
from .soft import ENVIRONMENT_CACHE, JOINED_KEPT, PreparedEnvironment, SoftState
from .state import Job
from .transitions import LOST, RETRIABLE
from .turn import Refused, Turn, refusal_of
from .views import Viewer, view
from .wish import ProfileSource, Wish

INCIDENTAL_VARIABLES = frozenset({credentials.LEASE_VARIABLE, "_", "SHLVL", "PWD", "OLDPWD"})
"""Differ between two submissions of the same request: not part of what is compared."""

ORIGINAL_WORDS = {
    "unavailable": "accelerator_unavailable",
    "unsupported": "accelerator_unsupported",
}
"""The original system's words for why a profile can never run here, by the probe's state."""


def submissions(batch: SubmitJobs) -> Iterator[SubmitJob]:
    """The submissions of a batch with the environments that they share, one object each."""
    for job in batch.jobs:
        shared = job.shared_environment
        if shared is None or shared >= len(batch.environments):
            yield job  # one that names none of the batch's is refused as any lone one
        else:
            own = {"environment": batch.environments[shared], "shared_environment": None}
            yield job.model_copy(update=own)


def submit(
    turn: Turn, request: ClientRequest, submission: SubmitJob, index: int = 0
) -> Submitted | Refusal:
    """The answer to one submission."""
    try:
        return _submit(turn, request, submission, index)
    except PraxistError as error:
        turn.soft.count(f"refused_{error.code}")
        return refusal_of(error)


def _submit(
    turn: Turn, request: ClientRequest, submission: SubmitJob, index: int
) -> Submitted | Refusal:
    if submission.shared_environment is not None:
        raise Refused(
            "malformed_request", "`shared_environment` names none of a batch's `environments`"
        )
    source: ProfileSource = "default" if submission.profile is None else "named"
    repeated = _answered_before(turn, request, index)
    if repeated is not None:
        # The same body, so the same environment: it also brings back what a restart took.
        prepared = prepare_environment(turn.soft, submission.environment)
        supply_credentials(turn.soft, repeated, prepared, True)
        return _accepted(turn, repeated, "queued", True, source, ())
    profile = _profile(turn, submission)
    prepared = prepare_environment(turn.soft, submission.environment)
    check_command(submission.command, submission.cwd, prepared.exec_bytes)
    command = credentials.store_command(submission.command, prepared.secrets, submission.not_secret)
    texts = (
        ("the tag", submission.tag),
        ("the peer's name", submission.peer),
        ("the lease", submission.lease_id or ""),
        ("the working directory", submission.cwd),
        ("a name that is to be no secret's", "\0".join(submission.not_secret)),
    )
    credentials.refuse_each_in_plain(texts, prepared.secrets)
    generation = generation_of(turn.state, submission.generation, submission.peer)
    identity = identity_of(turn.state.run_id, generation, submission.tag)
    wish = Wish(submission, profile, command, prepared, generation, identity, source)
    existing = turn.soft.joined.get((request.request_id, index))
    existing = existing or turn.state.identities.get(identity)
    if existing is not None:
        return _duplicate(turn, request, turn.state.jobs[existing], wish, index)
    check_new_tag(turn, generation, submission)
    check_open(turn, profile)
    _check_generation(turn, wish)
    if submission.dry_run:
        return _would_queue(turn, wish)
    _record_environment(turn, prepared)
    number = next_job_number(turn.state, turn.soft)
    name = job_id(number)
    _keep_secrets(turn.soft, name, prepared)
    turn.record(
        ev.JobQueued(
            at_ms=turn.stamp.at_ms,
            job=name,
            job_id=long_job_id(identity, number),
            identity=identity,
            tag=submission.tag,
            peer=submission.peer,
            generation=generation,
            profile=profile,
            work_class=submission.work_class,
            eta_ms=wish.eta_ms,
            command=command,
            cwd=submission.cwd,
            environment_id=prepared.environment_id,
            lease_id=submission.lease_id,
            request_id=request.request_id,
            request_digest=request.digest,
            request_index=index,
            not_secret=submission.not_secret,
            uid=request.uid,
        )
    )
    job = turn.state.jobs[name]
    notes = leases.answer(turn, job, submission.lease_id)
    turn.soft.queue.put(job)
    return _accepted(turn, job, "queued", True, source, notes)


def _check_generation(turn: Turn, wish: Wish) -> None:
    """Raises Refused when the generation does not take it."""
    found = generation_refusal(
        wish.generation, wish.profile, wish.submission.work_class, wish.eta_ms,
        turn.state, turn.soft,
    )  # fmt: skip
    if found is not None:
        raise found


def _answered_before(turn: Turn, request: ClientRequest, index: int) -> Job | None:
    record = turn.state.requests.get(request.request_id)
    if record is None:
        return None
    if record.digest != request.digest:
        raise Refused(
            "request_id_conflict", f"request id {request.request_id} came with another body before"
        )
    name = record.jobs.get(index)
    return turn.state.jobs.get(name) if name is not None else None


def _profile(turn: Turn, submission: SubmitJob) -> str:
    profiles = turn.state.policy.profiles
    name = submission.profile
    if name is None:
        return turn.state.policy.default_profile
    if name not in profiles:
        declared = ", ".join(sorted(profiles))
        raise Refused(
            "unknown_profile",
            f"profile {name!r} is not declared; nothing was queued",
            [f"declared: {declared}", "another device class is never chosen for you"],
        )
    return name


def prepare_environment(soft: SoftState, environment: dict[str, OsText]) -> PreparedEnvironment:
    """Take an environment apart, once for all submissions that share it. Raises PraxistError."""
    key = hash(tuple(environment.items()))
    cached = soft.environments.get(key)
    if cached is not None and cached[0] == environment:
        soft.environments.move_to_end(key)
        return cached[1]
    exec_bytes = check_environment(environment)
    # Only by shape: its value may be the name of another variable, which is no secret.
    credentials.refuse_in_plain("a variable's name", "\0".join(environment), {})
    stored, secrets = credentials.split_environment(soft.credentials_key, environment)
    prepared = PreparedEnvironment(credentials.environment_id(stored), stored, secrets, exec_bytes)
    soft.environments[key] = (environment, prepared)
    if len(soft.environments) > ENVIRONMENT_CACHE:
        soft.environments.popitem(last=False)
    return prepared


def _duplicate(
    turn: Turn, request: ClientRequest, job: Job, wish: Wish, index: int
) -> Submitted | Refusal:
    same = _same_environment(turn, job, wish)
    differences = wish.differences(job)
    if job.state not in RETRIABLE:
        wish.check_same_command(turn, job)
    if wish.submission.retry_terminal:
        changed = bool(differences) or not same
        return _retry(turn, request, job, wish, changed, index)
    if job.state in RETRIABLE:
        if job.state == "rejected":
            # While what refused it holds, the same again gets the same answer.
            check_open(turn, wish.profile)
            _check_generation(turn, wish)
        raise Refused(
            "terminal_duplicate",
            f"{job.job} already ended as {job.state} under this tag",
            [*([f"read it: praxist-zmq logs {job.job}"] if job.attempt else []),
             f"{retry_when(job)}: add --retry-terminal, keep this tag"],
            view(turn, job),
        )  # fmt: skip
    supply_credentials(turn.soft, job, wish.prepared, same)
    notes = []
    if job.peer != wish.submission.peer:
        notes.append(f"sent by {job.peer}")
    if differences:
        verb = "differs" if len(differences) == 1 else "differ"
        notes.append(f"your {_listed(differences)} {verb} from what was accepted")
        notes.append("if this is other science, give it another tag")
    _remember_joined(turn.soft, request, index, job)
    verdict: Verdict = "joined" if job.state in ("queued", "running") else "done"
    if verdict == "done" and "command" in differences:
        notes.insert(0, "your command was not run: this is the result of another one")
    return _accepted(turn, job, verdict, False, wish.source, tuple(notes))


def retry_when(job: Job) -> str:
    """When trying again is of use: nothing of a job that somebody ended needs a repair."""
    ended = job.state in ("cancelled", "rejected")
    return "if it should run after all" if ended else "after a repair"


def _same_environment(turn: Turn, job: Job, wish: Wish) -> bool:
    """Whether the environments agree, apart from the lease and what a shell keeps for itself."""
    if job.environment_id == wish.prepared.environment_id:
        return True
    recorded = turn.state.environments.get(job.environment_id)
    if recorded is None:
        return False
    left = {k: v for k, v in recorded.variables.items() if k not in INCIDENTAL_VARIABLES}
    right = {k: v for k, v in wish.prepared.stored.items() if k not in INCIDENTAL_VARIABLES}
    return left == right


def supply_credentials(
    soft: SoftState, job: Job, prepared: PreparedEnvironment, same_environment: bool
) -> None:
    """The same request again brings back the secrets that a restart took."""
    if job.job in soft.lacking_credentials and same_environment:
        del soft.lacking_credentials[job.job]
        soft.vault.put(job.job, prepared.stored, prepared.secrets)
        soft.queue.put(job)
        soft.touched[job.job] = None


def _retry(
    turn: Turn, request: ClientRequest, job: Job, wish: Wish, changed: bool, index: int
) -> Submitted | Refusal:
    verdict: Verdict
    joined = (request.request_id, index) in turn.soft.joined
    if job.peer == wish.submission.peer:
        followed = followed_already(job, wish.submission.retry_of)
        if followed is not None:
            wish.check_same_command(turn, job)
            supply_credentials(turn.soft, job, wish.prepared, _same_environment(turn, job, wish))
            verdict = "joined" if job.state in ("queued", "running") else "done"
            return _accepted(turn, job, verdict, False, wish.source, (followed,))
    may = RETRIABLE | {LOST} if wish.submission.lost else RETRIABLE
    if job.state not in may or joined:
        if changed or job.peer != wish.submission.peer:
            raise Refused(
                "retry_conflict",
                retry_conflict(job),
                retry_help(job),
                job=view(turn, job),
            )
        supply_credentials(turn.soft, job, wish.prepared, True)
        _remember_joined(turn.soft, request, index, job)
        verdict = "joined" if job.state in ("queued", "running") else "done"
        return _accepted(turn, job, verdict, False, wish.source, lost_notes(job))
    if job.peer != wish.submission.peer:
        raise Refused("not_yours", f"{job.job} belongs to {job.peer}")
    check_open(turn, wish.profile)
    _check_generation(turn, wish)
    if wish.submission.dry_run:
        return _accepted(turn, job, "retrying", False, wish.source, ("dry run",))
    _record_environment(turn, wish.prepared)
    _keep_secrets(turn.soft, job.job, wish.prepared)
    turn.record(
        ev.JobRetried(
            at_ms=turn.stamp.at_ms,
            job=job.job,
            prior_state=job.state,  # type: ignore[arg-type]
            profile=wish.profile,
            work_class=wish.submission.work_class,
            eta_ms=wish.eta_ms,
            command=wish.command,
            cwd=wish.submission.cwd,
            environment_id=wish.prepared.environment_id,
            lease_id=wish.submission.lease_id,
            request_id=request.request_id,
            request_digest=request.digest,
            request_index=index,
            not_secret=wish.submission.not_secret,
        )
    )
    told = leases.answer(turn, job, wish.submission.lease_id)
    turn.soft.queue.put(job)
    return _accepted(turn, job, "retrying", True, wish.source, told)


def _remember_joined(soft: SoftState, request: ClientRequest, index: int, job: Job) -> None:
    """Its sender was told of this job: a copy that comes late makes no other, and retries none."""
    soft.joined[request.request_id, index] = job.job
    if len(soft.joined) > JOINED_KEPT:
        soft.joined.popitem(last=False)


def _listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def check_open(turn: Turn, profile: str) -> None:
    """Refuse what the run does not take now, whoever sends it."""
    closed = closed_words(turn.state, turn.soft)
    if closed is not None:
        raise Refused("admission_closed", closed, closed_help(closed))
    if turn.soft.low_space:
        raise Refused("no_space", "the ledger's disk has only its reserve left")
    sample = turn.soft.sample
    if sample is None or stale_sample(turn.soft) is not None:
        return
    reason = never_fits(turn.state.policy.profiles[profile], sample)
    if reason is not None:
        word = ORIGINAL_WORDS.get(sample.probe_state, "accelerator_profile_unsatisfied")
        raise Refused("profile_unsatisfiable", f"profile {profile!r} {reason} ({word})")


def _record_environment(turn: Turn, prepared: PreparedEnvironment) -> None:
    if prepared.environment_id not in turn.state.environments:
        turn.record(
            ev.EnvironmentRecorded(
                at_ms=turn.stamp.at_ms,
                environment_id=prepared.environment_id,
                variables=prepared.stored,
            )
        )


def _keep_secrets(soft: SoftState, job: str, prepared: PreparedEnvironment) -> None:
    soft.lacking_credentials.pop(job, None)
    soft.vault.put(job, prepared.stored, prepared.secrets)


def _accepted(
    turn: Turn,
    job: Job,
    verdict: Verdict,
    new: bool,
    source: ProfileSource,
    notes: tuple[str, ...],
) -> Submitted:
    if verdict == "queued" and job.state == "running":
        verdict = "started"
    elif verdict == "queued" and job.state != "queued":
        verdict = "done"
    shown = view(turn, job)
    return Submitted.known(
        kind="submitted", verdict=verdict, new=new, profile_source=source, notes=notes, job=shown
    )


def _would_queue(turn: Turn, wish: Wish) -> Submitted:
    """What a real submission would be told now. Nothing is changed."""
    sequence = turn.state.last_sequence + 1
    number = next_job_number(turn.state, turn.soft)
    ghost = Job(
        job=job_id(number),
        number=number,
        job_id=long_job_id(wish.identity, number),
        identity=wish.identity,
        tag=wish.submission.tag,
        peer=wish.submission.peer,
        generation=wish.generation,
        profile=wish.profile,
        work_class=wish.submission.work_class,
        eta_ms=wish.eta_ms,
        command=wish.command,
        cwd=wish.submission.cwd,
        environment_id=wish.prepared.environment_id,
        lease_id=wish.submission.lease_id,
        uid=None,
        state="queued",
        submitted_at_ms=turn.stamp.at_ms,
        queue_sequence=sequence,
        version=sequence,
    )
    # Not by what serves the others of its batch: the next one that is taken has the ghost's name.
    shown = Viewer(turn.state, turn.soft).job(ghost)
    return Submitted(
        verdict="would_queue", new=False, profile_source=wish.source, notes=("dry run",), job=shown
    )
