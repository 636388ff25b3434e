"""The link between the broker and the supply process: what is known of idle room, what to offer.

The supply process plans; the broker looks again, records and publishes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Frozen
from .ids import PeerId, ProfileName
from .policy import Priority


class SupplyGeneration(Frozen):
    """What a generation that takes work still needs."""

    generation: int = Field(ge=0, description="Its number")
    assessment: bool = Field(description="Whether only mature work is taken")
    needed: int = Field(ge=0, description="Mature work still to be offered")


class IdlePeer(Frozen):
    """One peer that waits for a lease."""

    peer: PeerId = Field(description="Peer")
    generation: int = Field(ge=0, description="Its generation")
    cooling: tuple[Priority, ...] = Field(description="Priorities it has just declined")
    mature: bool = Field(description="Whether a hard quorum counts it already")


class SupplyFacts(Frozen):
    """The room there is and who could use it, at one sample. Sent while peers wait."""

    kind: Literal["supply_facts"] = "supply_facts"
    epoch: int = Field(description="The broker's epoch")
    sample_ms: int = Field(description="CLOCK_BOOTTIME of the sample it rests on, milliseconds")
    previous_ms: int = Field(
        description="`sample_ms` of the facts sent before; -1: peers have not waited since then"
    )
    free_slots: int = Field(
        ge=0, description="Slots that neither jobs, nor the queue, nor live leases fill"
    )
    profiles: tuple[ProfileName, ...] = Field(description="That a job could start with now")
    idle_samples: int = Field(ge=1, description="Good samples in a row before an offer")
    generations: tuple[SupplyGeneration, ...] = Field(description="That take work")
    idle: tuple[IdlePeer, ...] = Field(description="Who waits, longest first")


class LeaseOffer(Frozen):
    """One offer to make."""

    peer: PeerId = Field(description="To whom")
    generation: int = Field(ge=0, description="Generation")
    priority: Priority = Field(description="What is asked for")


class LeasesPlanned(Frozen):
    """What the supply process would offer, by the facts of one sample."""

    kind: Literal["leases_planned"] = "leases_planned"
    sample_ms: int = Field(description="Of the facts it rests on")
    offers: tuple[LeaseOffer, ...] = Field(max_length=4096, description="In order")
