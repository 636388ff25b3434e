"""The broker's side of the claim registry: register, reserve, bind, release, and compare notes.

Every request is safe to repeat. After any interruption the run registers again and says which
attempts hold allocations; the registry drops the rest, and what it lacks is reserved and bound
again before anything new is planned.
"""

from __future__ import annotations

from ..protocol import claims
from ..protocol import events as ev
from ..protocol.evidence import AttemptCard
from ..protocol.orders import AbandonAttempt, AdoptAttempt, ReleaseAttempt, SpawnAttempt
from . import concurrency, credentials, holds, lease_grant
from .admission import halted_words
from .commands import RegistrySaid
from .concurrency import occupied
from .elsewhere import elsewhere_words
from .last_look import expect_look, room_is_there, waits_for_look
from .plan import denied as plan_denied
from .plan import kept_envelope
from .recall import wanted as still_wanted
from .soft import SoftState
from .state import Attempt, BrokerState, Job
from .turn import Turn
from .withdraw import drop_plan

GO_HOLDS_MS = 5_000
"""A launcher that stalls longer asks again; a shim that does gives its attempt back."""
REGISTER_PAUSE_MS = 2_000
"""Before a registration that was denied is tried again."""
WANT_AGAIN_MS = 2_000
"""The registry forgets a want after 6 s, for the sake of a broker that hangs."""
LOAD_PAUSE_MS = 250
"""Between reports of our counts: they are for display, and each costs two turns here and one of
the registry's."""


def connected(turn: Turn) -> None:
    """The link is up: register, and forget what was asked over the old one."""
    soft, state = turn.soft, turn.state
    _forget_requests(turn)
    soft.register_again_at_ms = None
    if soft.broker is None:
        return
    run = claims.RunRow(
        run_key=soft.run_key,
        run_id=state.run_id,
        run_dir=soft.run_dir,
        user=soft.user,
        broker=soft.broker,
        epoch=state.epoch,
        running=len(state.attempts),
        queued=state.counts["queued"],
        limit=state.limit,
    )
    soft.load_reported, soft.want_reported = _load(state), None
    soft.registrations += 1
    attempts = tuple(sorted(state.attempts))
    turn.claim(
        claims.RegisterRun(run=run, registration=soft.registrations, attempts=attempts), "register"
    )


def register_again(turn: Turn) -> None:
    """Try a registration again that was denied, when its pause is over."""
    due = turn.soft.register_again_at_ms
    if due is not None and turn.stamp.mono_ms >= due:
        connected(turn)


def lost(turn: Turn) -> None:
    """The link is down: nothing new is planned until the run is registered again."""
    _forget_requests(turn)
    turn.soft.register_again_at_ms = None
    turn.soft.warnings["registry"] = "the host's claim registry does not answer"


def leave(turn: Turn) -> None:
    """We end in order: the registry need not find out. What our attempts hold stays held."""
    if turn.soft.registry_ready:
        turn.claim(
            claims.DeregisterRun(
                run_key=turn.soft.run_key,
                epoch=turn.state.epoch,
                registration=turn.soft.registrations,
            ),
            "deregister",
        )


def _forget_requests(turn: Turn) -> None:
    soft = turn.soft
    soft.registry_ready = False
    soft.registry_requests.clear()
    soft.raise_asked = False
    lease_grant.registry_lost(turn)
    for attempt in list(soft.plans):
        drop_plan(turn, attempt, put_back=True)


def said(turn: Turn, command: RegistrySaid) -> None:
    """An answer, or a pushed view."""
    soft, reply = turn.soft, command.reply
    if isinstance(reply, claims.HostView):
        _take_view(turn, reply)
        return
    if command.request_id is None:
        return
    asked = soft.registry_requests.pop(command.request_id, None)
    if asked is None:
        soft.count("registry_late_answers")
        return
    what, attempt = asked.what, asked.attempt
    if isinstance(reply, claims.Denied):
        _denied(turn, what, attempt, reply)
    elif isinstance(reply, claims.Registered):
        _registered(turn, reply)
    elif what == "raise":
        concurrency.raise_answered(turn, granted=True)
    elif what == "claim_lease" and isinstance(reply, claims.Granted):
        lease_grant.hold_granted(turn, attempt)
    elif what == "release_lease":
        lease_grant.released(turn, attempt)
    elif what == "reserve":
        _reserved(turn, attempt)
    elif what in ("reserve_again", "bind"):
        soft.warnings.pop(_warning(attempt), None)
        if what == "bind":
            _bound(turn, attempt)
        elif attempt not in turn.state.attempts:
            # It ended meanwhile, and the release that we sent then went ahead of this request.
            release(turn, attempt)


def _take_view(turn: Turn, view: claims.HostView) -> None:
    soft = turn.soft
    if soft.host_view is not None and view.version < soft.host_view.version:
        return
    soft.host_view = view
    asked = {(request.what, request.attempt) for request in soft.registry_requests.values()}
    others = [
        row
        for row in view.allocations
        if row.run_key != soft.run_key or _is_stray(turn, row, asked)
    ]
    soft.others_hold = len(others)
    soft.fleet.take_rows([row for row in others if row.envelope.device_uuids], soft.now_ms)
    soft.fleet.take_elsewhere({other.uuid: elsewhere_words(other) for other in view.elsewhere})
    holds.compare(turn)


def _is_stray(turn: Turn, row: claims.AllocationRow, asked: set[tuple[str, str]]) -> bool:
    """Whether a row of our run is none of ours: an experiment of a run directory that was here
    before still runs. Ours are those that hold here, and those that an answer to come will end.
    """
    if row.attempt in turn.state.attempts:
        return False
    whats = ("release",) if row.bound is not None else ("reserve", "release")
    return not any((what, row.attempt) in asked for what in whats)


def _registered(turn: Turn, reply: claims.Registered) -> None:
    soft, state = turn.soft, turn.state
    # A new registry counts its versions from its own ledger; its first view always holds.
    soft.host_view = None
    _take_view(turn, reply.view)
    soft.registry_ready = True
    soft.registry_denial = None
    for name in ("registry", _warning("register")):
        soft.warnings.pop(name, None)
    lease_grant.registered(turn, reply.view)
    soft.claim_again_ms.clear()
    holds.compare(turn)
    bound = {r.attempt for r in reply.view.allocations if r.run_key == soft.run_key and r.bound}
    for attempt in state.attempts.values():
        if attempt.phase == "bound" and attempt.attempt in bound:
            _bound(turn, attempt.attempt)


def _denied(turn: Turn, what: str, attempt: str, reply: claims.Denied) -> None:
    soft = turn.soft
    soft.count(f"registry_denied_{reply.code}")
    if what in ("reserve_again", "bind"):
        holds.denied(turn, attempt)
    if reply.view is not None:
        _take_view(turn, reply.view)
    if what == "load" and reply.code == "not_now":
        soft.load_reported = None  # it came too soon after another, and is told again
    if what == "raise":
        concurrency.raise_answered(turn, granted=False)
    if what == "claim_lease":
        lease_grant.hold_denied(turn, attempt, reply.code)
    if what == "release_lease" and reply.code != "unknown_run":
        lease_grant.released(turn, attempt)
    if what == "reserve":
        plan_denied(turn, attempt, reply.code, reply.detail)
    if reply.code == "unknown_run" or (reply.code == "stale_epoch" and what != "register"):
        # Of a higher epoch that is not ours, the answer to a registration tells.
        connected(turn)
        return
    lost_hold = turn.state.attempts.get(attempt)
    if (
        what in ("reserve_again", "bind")
        and lost_hold is not None
        and not holds.runs_already(lost_hold, soft)
    ):
        # Another run holds its devices now. Nothing of it has run: it waits again.
        turn.order(AbandonAttempt(attempt=attempt))
    elif what == "register":
        soft.register_again_at_ms = turn.stamp.mono_ms + REGISTER_PAUSE_MS
        soft.warnings[_warning(what)] = _not_registered(reply)
    elif what in ("reserve_again", "bind") and lost_hold is not None:
        soft.warnings[_warning(attempt)] = f"the registry said of {attempt}: {reply.detail}"


def _not_registered(reply: claims.Denied) -> str:
    """What is told of a registration that was denied, until another is granted."""
    told = f"the host's claim registry does not take this run: {reply.detail}; nothing starts"
    if reply.code == "stale_epoch":
        told += (
            "; it takes another process for the run's broker: `praxist-zmq host` names it, and "
            "its end lets this one in"
        )
    return told


def _warning(subject: str) -> str:
    """The name of what the registry said of an attempt, or of our registration."""
    return f"registry {subject}"


def _reserved(turn: Turn, attempt: str) -> None:
    found = drop_plan(turn, attempt, put_back=False)
    job = turn.state.jobs.get(found.job) if found is not None else None
    halted = halted_words(turn.state, turn.soft)
    if found is None or job is None or job.state != "queued" or halted:
        if job is not None and job.state == "queued":
            turn.soft.queue.put(job)
        release(turn, attempt)
        return
    turn.record(
        ev.AttemptAllocated(
            at_ms=turn.stamp.at_ms,
            job=job.job,
            attempt=attempt,
            device_uuids=found.envelope.device_uuids,
            exclusive=found.envelope.exclusive,
            memory_mib=found.envelope.memory_mib,
            utilization_pct=found.envelope.utilization_pct,
        )
    )
    expect_look(
        turn.state, turn.soft, attempt, job.profile, found.envelope.device_uuids, found.planned_ms
    )
    lease_grant.job_placed(turn, job)
    if job.work_class != "mature":
        turn.soft.active_non_mature += 1
    spawn(turn, job, turn.state.attempts[attempt])


def spawn(turn: Turn, job: Job, attempt: Attempt) -> None:
    """Order the attempt up to its barrier."""
    secrets = turn.secrets_of(job.job)
    stored = turn.state.environments[job.environment_id].variables
    environment = credentials.restore_environment(stored, secrets)
    command = credentials.restore_command(job.command, secrets)
    if environment is None or command is None:
        # The secrets went while the registry was asked. The launcher finds no trace of the attempt
        # and says that it never ran; so it is withdrawn.
        turn.order(AdoptAttempt(attempt=attempt.attempt, shim=None, leader=None))
        return
    turn.soft.launcher_talk.spawned[attempt.attempt] = turn.soft.launcher_talk.process
    uuids = ",".join(attempt.device_uuids)
    run_dir = turn.soft.run_dir
    # A submitter inside another attempt may be a worker of it; that says nothing of this one.
    environment.pop("PRAXIST_NARROWED_GPU_UUIDS", None)
    environment.update(
        PRAXIST_RUN_DIR=run_dir,
        PRAXIST_PEER_ID=job.peer,
        PRAXIST_EXPERIMENT_ID=job.job,
        PRAXIST_EXPERIMENT_ATTEMPT_ID=attempt.attempt,
        PRAXIST_EXPERIMENT_ATTEMPT_DIR=f"{run_dir}/resource_scheduler/attempts/{attempt.attempt}",
        PRAXIST_RESOURCE_PROFILE=job.profile,
        PRAXIST_ASSIGNED_GPU_UUIDS=uuids,
        CUDA_VISIBLE_DEVICES=uuids,
        NVIDIA_VISIBLE_DEVICES=uuids,
    )
    turn.order(
        SpawnAttempt(
            attempt=attempt.attempt,
            command=command,
            cwd=job.cwd,
            environment=environment,
            device_uuids=attempt.device_uuids,
            card=AttemptCard(
                attempt=attempt.attempt,
                tag=job.tag,
                generation=job.generation,
                peer=job.peer,
                device_uuids=attempt.device_uuids,
                exclusive=attempt.exclusive,
                memory_mib=attempt.memory_mib,
                utilization_pct=attempt.utilization_pct,
            ),
        )
    )


def _bound(turn: Turn, name: str) -> None:
    """Both ledgers know the shim: GO, unless the attempt is not wanted any more."""
    attempt = turn.state.attempts.get(name)
    if attempt is None or attempt.phase != "bound":
        return
    if waits_for_look(turn.soft, name):
        turn.soft.go_held[name] = None
        return
    turn.soft.unlooked.pop(name, None)
    if not may_go(turn, attempt):
        # Not wanted any more, nothing may start now, or others took the room since it was planned:
        # then it waits again.
        turn.order(AbandonAttempt(attempt=name))
        return
    go(turn, name)


def go(turn: Turn, name: str) -> None:
    """GO, for a while: whoever stalls with it must not deliver it when the world is another."""
    turn.soft.released.add(name)
    turn.order(ReleaseAttempt(attempt=name, until_ms=turn.stamp.mono_ms + GO_HOLDS_MS))


def may_go(turn: Turn, attempt: Attempt) -> bool:
    """Whether an attempt at its barrier is still wanted, may start now, and the host still has the
    room."""
    if not still_wanted(attempt, turn.state, turn.soft):
        return False
    if room_is_there(attempt, turn.state, turn.soft):
        return True
    turn.soft.turned_away.add(attempt.attempt)
    return False


def let_go(turn: Turn) -> None:
    """Once a turn: those go on that waited at their barrier for a look at the host."""
    for name in list(turn.soft.go_held):
        if not waits_for_look(turn.soft, name):
            del turn.soft.go_held[name]
            _bound(turn, name)


def release(turn: Turn, attempt: str) -> None:
    """The attempt's tree is gone, or it never came to be. Sent also before the run is registered:
    it then follows the registration, which may still have listed the attempt. A lost one is made
    good by the next registration."""
    turn.soft.warnings.pop(_warning(attempt), None)
    holds.over(turn.soft, attempt)
    turn.claim(
        claims.Release(
            run_key=turn.soft.run_key,
            epoch=turn.state.epoch,
            registration=turn.soft.registrations,
            attempt=attempt,
        ),
        "release",
        attempt,
    )


def report_load(turn: Turn) -> None:
    """Counts for the host view and what we wait for, when they changed and the last report is not
    too fresh."""
    soft, state = turn.soft, turn.state
    due = load_due_ms(state, soft)
    if due is None or turn.stamp.mono_ms < due:
        return
    load, want = _load(state), wanted(state, soft)
    soft.load_reported, soft.load_reported_at_ms = load, turn.stamp.mono_ms
    soft.want_reported = want
    turn.claim(
        claims.ReportLoad(
            run_key=soft.run_key, epoch=state.epoch, registration=soft.registrations,
            running=load[0], queued=load[1], limit=load[2], want=want,
        ),
        "load",
    )  # fmt: skip


def load_due_ms(state: BrokerState, soft: SoftState) -> int | None:
    """When the registry is to be told something; None when it knows or is not there. A want is
    told again before the registry forgets it."""
    if not soft.registry_ready:
        return None
    if _load(state) != soft.load_reported or wanted(state, soft) != soft.want_reported:
        return soft.load_reported_at_ms + LOAD_PAUSE_MS
    return None if soft.want_reported is None else soft.load_reported_at_ms + WANT_AGAIN_MS


def wanted(state: BrokerState, soft: SoftState) -> claims.Want | None:
    """What other runs keep from us: a slot of the host, or devices for our oldest job. Alone on the
    host, nobody need know."""
    view = soft.host_view
    if view is None or len(view.runs) < 2:
        return None
    # A slot that is kept here until the next look at the host is to be there then.
    full = soft.others_hold + occupied(state, soft) >= view.limit > 0 or soft.slots_kept
    slot = bool(full and len(soft.queue) and occupied(state, soft) < state.limit)
    envelope = kept_envelope(soft)
    if not slot and envelope is None:
        return None
    return claims.Want(slot=slot, envelope=envelope)


def _load(state: BrokerState) -> tuple[int, int, int]:
    return len(state.attempts), state.counts["queued"], state.limit
