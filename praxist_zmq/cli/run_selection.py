"""Which run a call is about.

`--run-dir`, else the run that the environment names (PRAXIST_RUN_DIR or AUTO_RESEARCH_RUN_DIR,
which must agree, else the parent of PROTECTED_PIDS_DIR), else the enclosing folder that holds
`resource_scheduler/endpoint.json`, else the user's only live run. Two candidates are never
guessed between, and one that nobody named is believed only where no stranger could have put it:
what is sent there holds the caller's environment. Reads files, changes nothing. Standard library
only.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..errors import PraxistError
from ..host.liveness import NamedProcess, liveness
from ..host.paths import RunPaths, canonical, runtime_roots
from ..host.runtime_dir import why_not_ours
from .small_file import read_small

RUN_FILE_BYTES_MAX = 65_536
LISTED_MAX = 20
RUN_VARIABLES = ("PRAXIST_RUN_DIR", "AUTO_RESEARCH_RUN_DIR")
PROTECTED_VARIABLE = "PROTECTED_PIDS_DIR"


def find_run(named: str | None) -> Path:
    """The canonical directory of the run meant. Raises no_run, ambiguous_run, path_unusable."""
    if named is not None:
        return _checked("--run-dir", named)
    inherited = _inherited()
    if inherited is not None:
        return _checked(*inherited)
    enclosing = _enclosing()
    if enclosing is not None:
        return _believed(enclosing, "the run around this folder")
    live = live_runs()
    if len(live) > 1:
        raise PraxistError(
            "ambiguous_run",
            f"{len(live)} runs are live: " + ", ".join(str(run) for run in live[:LISTED_MAX]),
            [f"name one: --run-dir {run}" for run in live[:LISTED_MAX]],
        )
    if not live:
        raise PraxistError(
            "no_run",
            "no --run-dir, no PRAXIST_RUN_DIR, no run around this folder, and none is live",
        )
    return _believed(live[0], "the only live run")


def _believed(directory: Path, what: str) -> Path:
    """`directory`, if what lies there can be nobody's but ours or root's. Raises `unsafe_path`."""
    why = why_not_ours(RunPaths(directory))
    if why is None:
        return directory
    others = [run for run in live_runs() if run != directory][:LISTED_MAX]
    raise PraxistError(
        "unsafe_path",
        f"{what} is {directory}, which nobody named, and {why}",
        [
            f"if it is the run that is meant, name it: --run-dir {directory}",
            *(f"your own live run: --run-dir {run}" for run in others),
        ],
    )


def check_boundary(named: str | None) -> None:
    """A peer submits to the run it was started in: another one named is a mistake.

    Raises `ambiguous_run`, `path_unusable`.
    """
    inherited = _inherited()
    if named is None or inherited is None:
        return
    variable, value = inherited
    if _canonical("--run-dir", named) != _canonical(variable, value):
        raise PraxistError(
            "ambiguous_run",
            f"--run-dir {named} is not the run this peer belongs to, {variable} {value}",
            ["leave out --run-dir", f"to use the other run: unset {variable}"],
        )


def _inherited() -> tuple[str, str] | None:
    """The variable that names a run, and its value; blank ones name none. Raises ambiguous_run."""
    found = [(name, os.environ.get(name, "")) for name in RUN_VARIABLES]
    folder = canonical(os.environ.get(PROTECTED_VARIABLE) or "/")
    if folder.name == RunPaths(folder.parent).protected_pids.name:
        found.append((PROTECTED_VARIABLE, str(folder.parent)))
    given = [(name, value) for name, value in found if value.strip()]
    if len({_canonical(name, value) for name, value in given}) > 1:
        told = " and ".join(f"{name} {value}" for name, value in given)
        raise PraxistError("ambiguous_run", f"the environment names several runs: {told}")
    return given[0] if given else None


def _canonical(source: str, value: str) -> Path:
    if not value or "\x00" in value:
        raise PraxistError("path_unusable", f"{source} is empty or holds a NUL byte")
    return canonical(value)


def _checked(source: str, value: str) -> Path:
    directory = _canonical(source, value)
    if not directory.is_dir():
        raise PraxistError("no_run", f"{source} {value} is not a directory")
    return directory


def _enclosing() -> Path | None:
    try:
        here = canonical(os.getcwd())
    except FileNotFoundError:
        return None
    for folder in (here, *here.parents):
        if (folder / "resource_scheduler" / "endpoint.json").is_file():
            return folder
    return None


def live_runs(scope: Path | None = None) -> list[Path]:
    """The user's runs whose supervisor lives, by directory; with `scope` only that host scope's."""
    found: set[Path] = set()
    for root in runtime_roots():
        runs = root / "runs"
        try:
            if runs.lstat().st_uid != os.geteuid():
                continue
            entries = list(runs.iterdir())
        except OSError:
            continue
        found.update(run for e in entries if (run := _live_run(e / "run.json", scope)) is not None)
    return sorted(found)


def _live_run(file: Path, scope: Path | None) -> Path | None:
    """The run that a `run.json` names, when its supervisor is proved alive."""
    try:
        content = json.loads(read_small(file, RUN_FILE_BYTES_MAX))
        run_dir, supervisor = content["run_dir"], NamedProcess.of(content["supervisor"])
        if scope is not None and content["host_dir"] != str(scope):
            return None
    except (OSError, PraxistError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(run_dir, str) or liveness(supervisor) != "alive":
        return None
    return Path(run_dir)
