"""Published evidence of a generation: told by peers, by the end of mature work, or by a reader of
the task's own store.

A result is told once; mature is never taken back, and a reading that fails takes nothing back.
Source: seed 000 "Mature Evidence"; the reference of the original system, 7.
"""

from __future__ import annotations

from itertools import islice

from ..errors import PraxistError
from ..protocol import events as ev
from ..protocol import requests as req
from ..protocol.replies import ResultNoted, ResultsReply
from ..protocol.reports import StoreRead
from ..protocol.views import ResultView
from .credentials import refuse_in_plain
from .generation_gate import named
from .identity import identity_of
from .maturity import maturity
from .state import BrokerState, Job, Published
from .timestamps import timestamp
from .turn import Turn

STORE = "results command"


def publish(turn: Turn, request: req.PublishResult) -> ResultNoted:
    """Evidence is known. The same again changes nothing; mature is never taken back. Raises
    Refused `generation_unknown`, PraxistError `literal_secret`."""
    refuse_in_plain("the tag", request.tag, {})
    refuse_in_plain("the peer's name", request.peer or "", {})
    found = named(turn.state, request.generation)
    known = found.results.get(request.tag)
    peer = request.peer or _peer_of(turn.state, found.number, request.tag)
    if (
        known is None
        or (request.mature and not known.mature)
        or (known.peer is None and peer is not None)
    ):
        turn.record(
            ev.ResultPublished(
                at_ms=turn.stamp.at_ms,
                generation=found.number,
                tag=request.tag,
                peer=peer,
                mature=request.mature,
                source=request.source,
            )
        )
    result = found.results[request.tag]
    notes = _publish_notes(turn.state, found.number, request, result)
    return ResultNoted(new=known is None, result=_result(found.number, result), notes=notes)


def store_read(turn: Turn, report: StoreRead) -> None:
    """What the task's own store holds. A failed reading is told; it takes nothing back."""
    warnings = turn.soft.warnings
    unknown: set[int] = set()
    problem = None if report.problem is None else turn.redacted(report.problem)
    for one in report.results:
        number = turn.state.generation if one.generation is None else one.generation
        if number not in turn.state.generations:
            unknown.add(number)
            continue
        try:
            publish(
                turn,
                req.PublishResult(
                    tag=one.tag, peer=one.peer, mature=one.mature, generation=number, source="store"
                ),
            )
        except PraxistError as error:
            problem = problem or error.detail
    if problem is None and unknown:
        problem = f"it tells of generations that were never opened: {sorted(unknown)[:8]}"
    if problem is None:
        warnings.pop(STORE, None)
    else:
        warnings[STORE] = f"the results command: {problem}; what is known stays"


def _publish_notes(
    state: BrokerState, generation: int, request: req.PublishResult, result: Published
) -> tuple[str, ...]:
    """What may be a slip: a tag of no job, which a peer's own process may have, or another peer."""
    notes = []
    if _peer_of(state, generation, request.tag) is None:
        notes.append(
            f"no job of generation {generation} has this tag; mistyped it counts all the same"
        )
    if request.peer is not None and request.peer != result.peer:
        notes.append(f"it stays {result.peer}'s, not {request.peer}'s")
    return tuple(notes)


def _peer_of(state: BrokerState, generation: int, tag: str) -> str | None:
    name = state.identities.get(identity_of(state.run_id, generation, tag))
    return None if name is None else state.jobs[name].peer


def results(turn: Turn, request: req.ListResults) -> ResultsReply:
    """The evidence of a generation."""
    found = named(turn.state, request.generation)
    total = len(found.results)
    newest = islice(found.results.values(), max(0, total - request.limit), None)
    return ResultsReply(
        results=tuple(_result(found.number, one) for one in newest),
        total=total,
        maturity=maturity(found, turn.state, turn.state.leases.mature_peers(found.number)),
    )


def completed(turn: Turn, job: Job) -> None:
    """Mature work has ended well: evidence, where its generation says so. Told before its end."""
    found = turn.state.generations[job.generation]
    known = found.results.get(job.tag)
    if not found.publish_completed or job.work_class != "mature":
        return
    if known is None or not known.mature:
        turn.record(
            ev.ResultPublished(
                at_ms=turn.stamp.at_ms,
                generation=found.number,
                tag=job.tag,
                peer=job.peer,
                mature=True,
                source="completion",
            )
        )


def _result(number: int, one: Published) -> ResultView:
    return ResultView(
        generation=number,
        tag=one.tag,
        peer=one.peer,
        mature=one.mature,
        source=one.source,
        published_at=timestamp(one.at_ms),
    )
