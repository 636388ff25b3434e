"""A run in one thread with leases: the world of `broker_world`, a real planner, a fake host desk.

The desk is a fake of the registry's part that holds room for leases, so that a test decides what it
grants, denies, takes back and leaves unanswered. Everything else is the real registry's.
"""

from __future__ import annotations

from typing import Any

from praxist_zmq.core.commands import RegistrySaid, SupplySaid
from praxist_zmq.core.supply import SupplyPlanner
from praxist_zmq.protocol.claims import (
    ClaimLease,
    Denied,
    Granted,
    HostView,
    LeaseRow,
    Registered,
    ReleaseLease,
)
from praxist_zmq.protocol.policy import Profile, SchedulerPolicy
from praxist_zmq.protocol.replies import LeaseReply, Submitted
from praxist_zmq.protocol.requests import GetLease, OpenGeneration, RegisterIdle, SubmitJob
from praxist_zmq.protocol.views import LeaseView
from tests.support.broker_world import World


def supply_policy(slots: int = 3, **settings: Any) -> SchedulerPolicy:
    """Profiles without pressure domains, so that all slots may fill at once."""
    return SchedulerPolicy(
        max_concurrent_experiments=slots,
        min_concurrent_experiments=slots,
        initial_concurrent_experiments=slots,
        default_profile="cpu",
        profiles={
            "cpu": Profile(pressure_domains=()),
            "gpu": Profile(accelerator="gpu", gpu_count=1, pressure_domains=()),
            "half": Profile(
                accelerator="gpu",
                gpu_count=1,
                gpu_memory_gb=30,
                gpu_utilization_pct=45,
                pressure_domains=(),
            ),
        },
        **{"supply_idle_samples": 2, "supply_lease_seconds": 180, **settings},
    )


class LeaseWorld(World):
    """A world whose host desk holds room for leases as the test says."""

    def __init__(self, devices: int = 0, slots: int = 3, **settings: Any) -> None:
        self.planner = SupplyPlanner()
        self.rows: dict[str, LeaseRow] = {}
        self.deny: str | None = None
        self.silent = False
        self.unanswered: list[tuple[str, Any]] = []
        super().__init__(devices, slots, contract=supply_policy(slots, **settings))
        self.turn(SupplySaid("supply"))
        self.settle()

    def registry_step(self) -> None:
        """The registry answers one request; the fake desk those about leases."""
        if not self.to_registry or not isinstance(
            self.to_registry[0][1], ClaimLease | ReleaseLease
        ):
            before = len(self.to_broker)
            reserve = self.to_registry[0][1] if self.to_registry else None
            super().registry_step()
            if getattr(reserve, "lease_id", None) in self.rows:
                del self.rows[reserve.lease_id]  # type: ignore[union-attr]
            for _ in range(len(self.to_broker) - before):
                self.to_broker.append(self._with_rows(self.to_broker[before]))
                del self.to_broker[before]
            return
        request_id, request = self.to_registry.popleft()
        if self.silent:
            self.unanswered.append((request_id, request))
            return
        self.to_broker.append(RegistrySaid(request_id, self._desk(request)))

    def _desk(self, request: ClaimLease | ReleaseLease) -> Granted | Denied:
        if request.epoch < self.broker.state.epoch:
            return Denied(code="stale_epoch", detail="a newer broker serves the run")
        if isinstance(request, ReleaseLease):
            self.rows.pop(request.lease_id, None)
        elif self.deny is not None:
            return Denied(code=self.deny, detail="no")
        else:
            self.rows[request.lease_id] = LeaseRow(
                run_key=request.run_key, lease_id=request.lease_id, envelope=request.envelope
            )
        return Granted(view_version=1)

    def _with_rows(self, command: Any) -> Any:
        reply = command.reply
        rows = tuple(self.rows.values())
        if isinstance(reply, HostView):
            return RegistrySaid(command.request_id, reply.model_copy(update={"leases": rows}))
        if isinstance(reply, Registered):
            view = reply.view.model_copy(update={"leases": rows})
            return RegistrySaid(command.request_id, reply.model_copy(update={"view": view}))
        return command

    def push_view(self) -> None:
        """The host tells what it holds."""
        view = self.broker.soft.host_view
        if view is None:
            return  # not registered yet: the registration brings one
        fresh = view.model_copy(update={"leases": tuple(self.rows.values())})
        self.turn(RegistrySaid(None, fresh))
        self.settle()

    def take_back(self, lease_id: str) -> None:
        """Real work of somebody's took the room of a lease."""
        del self.rows[lease_id]
        self.push_view()

    # -- the supply process ----------------------------------------------------------------

    def turn_supply(self) -> None:
        """A supply process comes, as after every restart of the broker."""
        self.planner = SupplyPlanner()
        self.turn(SupplySaid("supply"))

    def look(self, samples: int = 1) -> None:
        """Samples come; the supply process plans by what it is told."""
        for _ in range(samples):
            self.pass_time(1_000)
            self.settle()
            while self.to_supply:
                plan = self.planner.decide(self.to_supply.popleft())
                if plan.offers:
                    self.turn(SupplySaid("supply", plan))
                    self.settle()

    # -- peers -----------------------------------------------------------------------------

    def open(self, number: int = 0, **facts: Any) -> None:
        """Open a generation."""
        self.ask(OpenGeneration(generation=number, **facts))

    def idle(self, *peers: str, generation: int | None = None) -> None:
        """Peers register."""
        for peer in peers:
            assert isinstance(self.ask(RegisterIdle(peer=peer, generation=generation)), LeaseReply)

    def granted(self, peer: str) -> LeaseView:
        """A peer registers, and room is idle for long enough."""
        self.idle(peer)
        self.look(2)
        found = self.lease(peer)
        assert found is not None
        return found

    def lease(self, peer: str) -> LeaseView | None:
        """A peer's live lease."""
        reply: LeaseReply = self.ask(GetLease(peer=peer))
        return reply.lease

    def send(self, peer: str, tag: str, lease_id: str | None = None, **facts: Any) -> Submitted:
        """A submission that is taken."""
        reply = self.ask(
            SubmitJob(
                peer=peer,
                tag=tag,
                command=("true",),
                cwd="/",
                environment={},
                lease_id=lease_id,
                **facts,
            )
        )
        assert isinstance(reply, Submitted), reply
        return reply

    def ended(self, lease_id: str) -> tuple[str, str | None]:
        """How a lease ended."""
        lease = self.broker.state.leases.ended[lease_id]
        return lease.state, lease.reason
