"""Keeps a task's processes on the devices that the scheduler gave to its attempt.

For task harnesses: an evaluator calls `bind` before it loads a CUDA framework, and starts workers
with `child_environment`. It restores masks that were lost on the way, and refuses masks that say
something else than the assignment. It never picks a device, never turns a UUID into a number that
an environment carries, and touches nothing where no scheduler assigned anything.

Nothing but the standard library, and nothing else of this package: a task's interpreter can load
it without the scheduler's dependencies.

Rules: `PRAXIST_ASSIGNED_GPU_UUIDS` is the ordered assignment, and `CUDA_VISIBLE_DEVICES` and
`NVIDIA_VISIBLE_DEVICES` equal it byte for byte in every descendant. A worker that is to see fewer
devices is started through `child_environment` or `cpu_environment`, which leave the assignment as
it is and state the narrowing in `PRAXIST_NARROWED_GPU_UUIDS`; a smaller mask without that is a
conflict. Source: the contract's managed descendant binding; docs/binding.md says why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

__all__ = [
    "ASSIGNED",
    "MASKS",
    "NARROWED",
    "Assignment",
    "BindingConflict",
    "BindingError",
    "BindingInvalid",
    "assignment",
    "bind",
    "child_environment",
    "cpu_environment",
    "local_index",
]

ASSIGNED = "PRAXIST_ASSIGNED_GPU_UUIDS"
"""What the scheduler gave to the attempt, in order; empty: no device. Absent: no scheduler."""
NARROWED = "PRAXIST_NARROWED_GPU_UUIDS"
"""The part of it that this process was started for; absent: all of it; empty: no device."""
CUDA_MASK = "CUDA_VISIBLE_DEVICES"
NVIDIA_MASK = "NVIDIA_VISIBLE_DEVICES"
MASKS = (CUDA_MASK, NVIDIA_MASK)

_HIDES_ALL = {CUDA_MASK: ("", "-1"), NVIDIA_MASK: ("", "void", "none")}
"""The values by which each mask hides every device."""
_LOCAL_NUMBERS = (
    "numbers are local to a process; use cuda:N inside the mask and leave the variable alone"
)
_SHOWN_CHARACTERS_MAX = 200


@dataclass(eq=False)
class BindingError(Exception):
    """A variable or an argument that does not fit the assignment.

    `variable` is its name, `found` its value (None: absent), `wanted` what it had to be (None:
    no single value), `mend` what to do about it.
    """

    variable: str
    found: str | None
    wanted: str | None
    mend: str

    def __post_init__(self) -> None:
        super().__init__(self.variable, self.found, self.wanted, self.mend)

    def __str__(self) -> str:
        found = "absent" if self.found is None else _shown(self.found)
        wanted = "" if self.wanted is None else f", but the assignment is {_shown(self.wanted)}"
        return f"{self.variable} is {found}{wanted}: {self.mend}"


class BindingConflict(BindingError):
    """A mask says something else than the assignment. Nothing was changed."""


class BindingInvalid(BindingError):
    """The assignment itself, or an argument, is malformed. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The devices this process may use.

    `uuids` are in the assignment's order and exactly as written; `MIG-...` and other opaque names
    too. `source` is the variable they come from: `PRAXIST_ASSIGNED_GPU_UUIDS`, or
    `PRAXIST_NARROWED_GPU_UUIDS` in a worker that was given a part of it, or None without a
    scheduler. `allocated` are the devices of the whole attempt.

    >>> given = assignment({"PRAXIST_ASSIGNED_GPU_UUIDS": "GPU-b,GPU-a"})
    >>> given.uuids, given.source
    (('GPU-b', 'GPU-a'), 'PRAXIST_ASSIGNED_GPU_UUIDS')
    >>> given.standalone, given.forced_cpu
    (False, False)
    """

    uuids: tuple[str, ...]
    source: str | None
    allocated: tuple[str, ...]

    @property
    def standalone(self) -> bool:
        """Whether no scheduler assigned anything: the process may do as it likes."""
        return self.source is None

    @property
    def forced_cpu(self) -> bool:
        """Whether there is an assignment and it has no device: a CPU profile or a CPU worker."""
        return self.source is not None and not self.uuids

    @property
    def value(self) -> str:
        """What both masks have to be, byte for byte; empty when no device is to be seen."""
        return ",".join(self.uuids)


def assignment(environ: Mapping[str, str] | None = None) -> Assignment:
    """Read the assignment of `environ` (default: this process's). Looks at no mask.

    Raises BindingInvalid when it is malformed: an empty or repeated entry, white space, or a local
    number in the place of a UUID; and when a narrowing is not a part of it in its order.

    >>> assignment({}).standalone
    True
    >>> assignment({"PRAXIST_ASSIGNED_GPU_UUIDS": ""}).forced_cpu
    True
    >>> assignment({"PRAXIST_ASSIGNED_GPU_UUIDS": "0"})
    Traceback (most recent call last):
    ...
    praxist_zmq.binding.BindingInvalid: PRAXIST_ASSIGNED_GPU_UUIDS is '0': '0' is a local number, \
not a device's UUID; pass the variable on as the scheduler set it
    """
    environ = os.environ if environ is None else environ
    given, narrowed = environ.get(ASSIGNED), environ.get(NARROWED)
    if given is None:
        if narrowed is not None:
            mend = f"{ASSIGNED} was lost on the way; pass both on, or neither"
            raise BindingConflict(NARROWED, narrowed, None, mend)
        return Assignment((), None, ())
    allocated = _entries(ASSIGNED, given)
    if narrowed is None:
        return Assignment(allocated, ASSIGNED, allocated)
    uuids = _entries(NARROWED, narrowed)
    _must_be_part(NARROWED, narrowed, uuids, allocated)
    return Assignment(uuids, NARROWED, allocated)


def bind(environ: MutableMapping[str, str] | None = None) -> Assignment:
    """Make the masks of `environ` (default: this process's) say what the assignment says.

    A missing mask is restored, in place; an identical one is kept; a process without an assignment
    is left alone. To be called before the first use of CUDA in the process, which reads its mask
    once. Returns the assignment. Raises BindingConflict, and changes nothing, when a mask is there
    and differs: numbers, another order and a part of the devices differ too. Raises BindingInvalid
    as `assignment` does.

    >>> environ = {"PRAXIST_ASSIGNED_GPU_UUIDS": "GPU-b,GPU-a"}
    >>> bind(environ).uuids
    ('GPU-b', 'GPU-a')
    >>> environ["CUDA_VISIBLE_DEVICES"], environ["NVIDIA_VISIBLE_DEVICES"]
    ('GPU-b,GPU-a', 'GPU-b,GPU-a')

    >>> bind({"PRAXIST_ASSIGNED_GPU_UUIDS": "GPU-b", "CUDA_VISIBLE_DEVICES": "0"})
    Traceback (most recent call last):
    ...
    praxist_zmq.binding.BindingConflict: CUDA_VISIBLE_DEVICES is '0', but the assignment is \
'GPU-b': numbers are local to a process; use cuda:N inside the mask and leave the variable alone

    >>> alone = {"CUDA_VISIBLE_DEVICES": "0"}
    >>> bind(alone).standalone, alone
    (True, {'CUDA_VISIBLE_DEVICES': '0'})
    """
    environ = os.environ if environ is None else environ
    given = assignment(environ)
    if given.standalone:
        return given
    missing = [mask for mask in MASKS if not _is_bound(mask, environ, given)]
    for mask in missing:
        environ[mask] = given.value
    return given


def child_environment(
    uuids: Sequence[str] | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment for a child that this process starts, as a copy of `environ`.

    Without `uuids` the child gets what this process has, missing masks restored. With `uuids`, a
    part of this process's devices in their order, the child is one worker of a multi-device job:
    its masks show those only, `PRAXIST_ASSIGNED_GPU_UUIDS` stays the whole assignment, and
    `PRAXIST_NARROWED_GPU_UUIDS` says which part the masks are. A child can be narrowed further,
    never widened. Raises as `bind` does, and BindingInvalid for `uuids` that are empty, out of
    order, or not this process's.

    >>> job = {"PRAXIST_ASSIGNED_GPU_UUIDS": "GPU-b,GPU-a"}
    >>> worker = child_environment(["GPU-a"], job)
    >>> worker["CUDA_VISIBLE_DEVICES"], worker["PRAXIST_ASSIGNED_GPU_UUIDS"]
    ('GPU-a', 'GPU-b,GPU-a')
    >>> bind(worker).uuids
    ('GPU-a',)
    >>> child_environment(["GPU-c"], job)
    Traceback (most recent call last):
    ...
    praxist_zmq.binding.BindingInvalid: uuids is 'GPU-c', but the assignment is 'GPU-b,GPU-a': \
name a part of the assigned devices, in their order
    """
    child = dict(os.environ if environ is None else environ)
    given = bind(child)
    if uuids is None:
        return child
    if isinstance(uuids, str):
        raise BindingInvalid("uuids", uuids, None, "give a list of UUIDs, not one text")
    value = ",".join(uuids)
    if given.standalone:
        mend = f"there is no assignment to take a part of; {ASSIGNED} is absent"
        raise BindingInvalid("uuids", value, None, mend)
    chosen = _entries("uuids", value)
    if not chosen:
        mend = "use cpu_environment() for a child without devices"
        raise BindingInvalid("uuids", value, None, mend)
    _must_be_part("uuids", value, chosen, given.uuids)
    return child if chosen == given.uuids else _narrowed(child, value)


def cpu_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a child that is to see no device on purpose, as a copy of `environ`.

    Both masks are empty; the assignment stays as it is. Raises as `bind` does.

    >>> child = cpu_environment({"PRAXIST_ASSIGNED_GPU_UUIDS": "GPU-a"})
    >>> child["CUDA_VISIBLE_DEVICES"], child["PRAXIST_ASSIGNED_GPU_UUIDS"]
    ('', 'GPU-a')
    >>> bind(child).forced_cpu
    True
    """
    child = dict(os.environ if environ is None else environ)
    given = bind(child)
    if given.forced_cpu:
        return child
    if given.standalone:
        child.update(dict.fromkeys(MASKS, ""))
        return child
    return _narrowed(child, "")


def local_index(uuid: str, environ: Mapping[str, str] | None = None) -> int:
    """The N of `cuda:N` for a device in this process: its place in the mask.

    For a framework's own calls only. It holds in this process and in children with the same mask;
    never write it into an environment or a command line of another one. Raises BindingInvalid when
    the device is not this process's, and as `bind` does when a mask differs or is missing.

    >>> mask = "GPU-b,GPU-a"
    >>> environ = {"PRAXIST_ASSIGNED_GPU_UUIDS": mask, "CUDA_VISIBLE_DEVICES": mask}
    >>> local_index("GPU-a", environ)
    1
    """
    environ = os.environ if environ is None else environ
    given = assignment(environ)
    if uuid not in given.uuids:
        mend = f"it is not a device of this process; see assignment().uuids ({ASSIGNED})"
        raise BindingInvalid("uuid", uuid, given.value or None, mend)
    if not _is_bound(CUDA_MASK, environ, given):
        mend = "call bind() first, before the first use of CUDA"
        raise BindingConflict(CUDA_MASK, None, given.value, mend)
    return given.uuids.index(uuid)


def _narrowed(child: dict[str, str], value: str) -> dict[str, str]:
    child.update(dict.fromkeys((NARROWED, *MASKS), value))
    return child


def _is_bound(mask: str, environ: Mapping[str, str], given: Assignment) -> bool:
    """Whether a mask says what the assignment says; False: it is absent. Raises on a conflict."""
    found = environ.get(mask)
    if found is None:
        return False
    if found == given.value or (given.forced_cpu and found in _HIDES_ALL[mask]):
        return True
    raise BindingConflict(mask, found, given.value, _mend(mask, found, given))


def _mend(mask: str, found: str, given: Assignment) -> str:
    """The advice for a mask that differs."""
    entries = [entry.strip() for entry in found.split(",")]
    if found in _HIDES_ALL[mask]:
        return "it hides the assigned devices; start a CPU child with cpu_environment()"
    if all(entry.isdecimal() for entry in entries):
        return _LOCAL_NUMBERS
    if given.forced_cpu:
        return "this process was given no device; leave the variable alone"
    if found == "all":
        return "a container image sets it; pass the variable on, as `docker run -e NAME` does"
    if sorted(entries) == sorted(given.uuids):
        return "the order and the spelling count; pass the variable on as it is"
    if set(entries) < set(given.uuids):
        return "start a worker on a part of the devices with child_environment(uuids=[...])"
    return (
        "find what sets it between the scheduler and this process, and pass the value on as it is"
    )


def _entries(name: str, value: str) -> tuple[str, ...]:
    """The devices of a comma-separated value; none for an empty one."""
    if not value:
        return ()
    entries = tuple(value.split(","))
    passed_on = "name devices as the assignment does"
    if name in (ASSIGNED, NARROWED):
        passed_on = "pass the variable on as the scheduler set it"
    problem = None
    for entry in entries:
        if not entry or entry.split() != [entry] or not entry.isprintable():
            problem = f"the entry {_shown(entry)} is empty or holds white space"
        elif entry.lstrip("-").isdecimal():
            problem = f"{_shown(entry)} is a local number, not a device's UUID"
    if len(set(entries)) < len(entries):
        problem = "a device occurs twice"
    if problem is not None:
        raise BindingInvalid(name, value, None, f"{problem}; {passed_on}")
    return entries


def _must_be_part(name: str, value: str, chosen: tuple[str, ...], whole: tuple[str, ...]) -> None:
    """Raise BindingInvalid unless `chosen` are some of `whole`, in the same order."""
    if chosen != tuple(uuid for uuid in whole if uuid in chosen):
        mend = "name a part of the assigned devices, in their order"
        raise BindingInvalid(name, value, ",".join(whole), mend)


def _shown(value: str) -> str:
    """A value for a message: quoted, escaped and bounded."""
    if len(value) > _SHOWN_CHARACTERS_MAX:
        value = value[:_SHOWN_CHARACTERS_MAX] + "..."
    return ascii(value)
