"""The client's calls about generations and their evidence; answers are the scheduler's JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..protocol.envelope import Json


class GenerationCalls(ABC):
    """A part of `Client`."""

    @abstractmethod
    def _ask(
        self, request: Mapping[str, Any], timeout_s: float | None = None, **options: Any
    ) -> Json:
        """Send one request; its reply. Raises PraxistError."""

    def open_generation(
        self,
        generation: int,
        *,
        cohort_size: int | None = None,
        deadline_seconds: float | None = None,
        mature_quorum: int | None = None,
        peers: Sequence[str] = (),
        publish_completed: bool = False,
        rerun: bool = False,
    ) -> Json:
        """Take work for a generation; it becomes the current one. Keys as `generation --json`."""
        return self._generation(
            "open_generation",
            generation,
            cohort_size=cohort_size,
            deadline_seconds=deadline_seconds,
            mature_quorum=mature_quorum,
            peers=list(peers),
            publish_completed=publish_completed,
            rerun=rerun,
        )

    def assess_generation(self, generation: int, *, reason: str = "assessment") -> Json:
        """Take only mature work from now on."""
        return self._generation("assess_generation", generation, reason=reason)

    def freeze_generation(
        self, generation: int | None, *, reason: str = "it was frozen", signal: bool = False
    ) -> Json:
        """Start nothing more; with `signal` it is a close. None: all, and the run's admission."""
        return self._generation("freeze_generation", generation, reason=reason, signal=signal)

    def show_generation(self, generation: int | None = None) -> Json:
        """One generation; None is the current one."""
        return self._generation("show_generation", generation)

    def _generation(self, kind: str, generation: int | None, **options: Any) -> Json:
        reply = self._ask({"kind": kind, "generation": generation, **options})
        told = {key: reply[key] for key in ("rejected", "draining")}
        return {**reply["generation"], **told}

    def publish_result(
        self,
        tag: str,
        *,
        peer: str | None = None,
        mature: bool = False,
        generation: int | None = None,
        source: Literal["peer", "store"] = "peer",
    ) -> Json:
        """Tell of evidence; the same again changes nothing. Keys as `results publish --json`."""
        request = {
            "kind": "publish_result",
            "tag": tag,
            "peer": peer,
            "mature": mature,
            "generation": generation,
            "source": source,
        }
        reply = self._ask(request)
        notes = list(reply.get("notes") or [])
        return {"new": reply["new"], "notes": notes, **reply["result"]}

    def results(self, generation: int | None = None) -> list[Json]:
        """The published evidence of a generation, the newest 10,000; None is the current one."""
        found: list[Json] = self._ask({"kind": "list_results", "generation": generation})["results"]
        return found
