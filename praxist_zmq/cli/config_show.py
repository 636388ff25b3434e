"""`config show` and `config explain`: the values in force, where they come from, what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..protocol.policy import SchedulerPolicy
from ..service.policy_effective import EffectiveValue, effective_values
from ..service.policy_file import PolicyCheck, check_file, invalid
from ..service.policy_keys import (
    ANY_PROFILE,
    ContractKey,
    contract_keys,
    find_key,
    nearest_key,
    shown,
)
from . import output
from .connect import ask, connect
from .documents import head
from .settings import Settings, global_options, settings_of
from .table import Column, print_table
from .words import PROGRAM, cut, fitted, safe

DOCS_PAGE = "docs/policy.md"
_VALUES = (
    Column("KEY", least=30, middle=True),
    Column("VALUE", least=16),
    Column("FROM", least=10),
)
_KEYS = (
    Column("KEY", least=20, middle=True),
    Column("TYPE"),
    Column("DEFAULT"),
    Column("RANGE", drop=0),
)


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path), metavar="[FILE]", required=False)
@click.option("--defaults", is_flag=True, help="The documented defaults, whatever is in force.")
@global_options()
@click.pass_context
def show_command(ctx: click.Context, file: Path | None, defaults: bool) -> int:
    """Show every value of a contract and where it comes from.

    Without FILE: of the contract in force in the run.

    \b
    praxist-zmq config show task.yaml
    praxist-zmq --run-dir runs/a config show
    praxist-zmq config show --defaults
    """
    settings = settings_of(ctx)
    if defaults and file is not None:
        raise click.UsageError("--defaults shows no FILE; leave one of the two out", ctx)
    check, name = None, None
    if file is not None:
        check, name = _checked(file), str(file)
        assert check.policy is not None
        policy = check.policy
    elif defaults:
        policy = SchedulerPolicy()
    else:
        policy = _in_force(settings)
    values = effective_values(policy, check, of_run=file is None and not defaults)
    if settings.is_json:
        output.document(_document(settings, name, policy, values))
    elif settings.format == "name":
        output.answer(*(safe(value.key) for value in values))
    else:
        print_table(settings, _VALUES, [[v.key, shown(v.value), _from(v)] for v in values])
    return 0


def _checked(file: Path) -> PolicyCheck:
    check = check_file(file)
    if check.policy is None:
        raise invalid(file, check.errors)
    return check


def _in_force(settings: Settings) -> SchedulerPolicy:
    """The contract of the run meant. Raises what `connect` raises."""
    with connect(settings) as client:
        reply = ask(client, {"kind": "get_policy"}, settings.timeout_s)
    return SchedulerPolicy.model_validate(reply["policy"], strict=False)


def _from(value: EffectiveValue) -> str:
    if value.source == "file":
        written = f", written {value.written}" if value.written is not None else ""
        return f"line {value.line}{written}"
    told = ", " if value.source == "contract" else ": "
    return f"{value.source}{told}{value.note}" if value.note else value.source


def _document(
    settings: Settings, name: str | None, policy: SchedulerPolicy, values: list[EffectiveValue]
) -> dict[str, Any]:
    return {
        **head("config"),
        "file": name,
        "run_dir": settings.run,
        "policy": policy.model_dump(mode="json"),
        "values": [
            {
                "key": value.key,
                "value": value.value,
                "source": value.source,
                "line": value.line,
                "written": value.written,
            }
            for value in values
        ],
    }


@click.command("explain")
@click.argument("key", required=False, metavar="[KEY]")
@click.option("--recursive", is_flag=True, help="Also what is below the key, each in full.")
@click.option(
    "--file", type=click.Path(path_type=Path), metavar="FILE", help="Also say its value there."
)
@global_options()
@click.pass_context
def explain_command(ctx: click.Context, key: str | None, recursive: bool, file: Path | None) -> int:
    """Explain a key of the contract, or list all of them.

    \b
    praxist-zmq config explain
    praxist-zmq config explain supply_lease_seconds
    praxist-zmq config explain profiles --recursive
    """
    settings = settings_of(ctx)
    keys = _named(ctx, key, recursive=recursive)
    values: dict[str, list[EffectiveValue]] = {}
    if file is not None:
        check = _checked(file)
        assert check.policy is not None
        for value in effective_values(check.policy, check):
            values.setdefault(_pattern(value.key), []).append(value)
    if settings.is_json:
        bodies = [_body(each, values.get(each.path, [])) for each in keys]
        output.document({**head("config_keys"), "keys": bodies})
    elif settings.format == "name":
        output.answer(*(each.path for each in keys))
    elif key is None and not recursive:
        rows = [_row(each, short=settings.format == "table") for each in keys]
        print_table(settings, _KEYS, rows)
        if settings.format == "table":
            output.answer("", f"`{PROGRAM} config explain KEY` says what one means")
    else:
        name = None if file is None else str(file)
        pages = [_page(each, settings, name, values.get(each.path, [])) for each in keys]
        output.answer(*"\n\n".join("\n".join(page) for page in pages).split("\n"))
    return 0


def _row(key: ContractKey, *, short: bool) -> list[str]:
    """The cells of one key; `short` leaves out what a page of its own says."""
    path, kind = key.path, key.type
    if short:
        path = path.replace(f"{ANY_PROFILE}.", "  NAME.")
        kind = "list" if kind.startswith("list") else "choice" if key.choices else kind
    return [path, kind, key.default_words, key.range_words]


def _pattern(path: str) -> str:
    """The key behind the path of a profile's value."""
    if not path.startswith("profiles."):
        return path
    return f"{ANY_PROFILE}.{path.rsplit('.', 1)[-1]}"


def _named(ctx: click.Context, key: str | None, *, recursive: bool) -> list[ContractKey]:
    """The keys meant. A usage error that names the nearest for none."""
    if key is None:
        return list(contract_keys().values())
    found = find_key(key)
    if found is None:
        near = nearest_key(key)
        hint = f"; did you mean `{near}`?" if near else f"; see `{PROGRAM} config explain`"
        raise click.UsageError(f"no such key `{cut(safe(key), 60)}`{hint}", ctx)
    below = [k for k in contract_keys().values() if k.path.startswith(f"{found.path}.")]
    return [found, *below] if recursive else [found]


def _page(
    key: ContractKey, settings: Settings, name: str | None, values: list[EffectiveValue]
) -> list[str]:
    facts = [key.type, f"default {key.default_words}"]
    facts += [f"range {key.range_words}"] if key.range_words else []
    columns = output.terminal_columns() if settings.format == "table" else 100
    lines = [output.bold(key.full_path, settings), *fitted("  " + ", ".join(facts), columns)]
    lines += fitted(f"  {key.meaning}.", columns)
    if key.path == "profiles":
        below = [k.name for k in contract_keys().values() if k.path.startswith(f"{ANY_PROFILE}.")]
        lines += fitted(f"  Keys of a profile: {', '.join(below)}", columns)
    for value in values:
        where = f"{safe(value.key)} = " if value.key != key.path else ""
        lines += fitted(f"  {safe(name)}: {where}{shown(value.value)} ({_from(value)})", columns)
    return [*lines, f"  see: {DOCS_PAGE}#{anchor_of(key)}"]


def anchor_of(key: ContractKey) -> str:
    """The anchor of a key in the reference page."""
    return key.path.replace(f"{ANY_PROFILE}.", "profile-")


def _body(key: ContractKey, values: list[EffectiveValue]) -> dict[str, Any]:
    return {
        "key": key.path,
        "path": key.full_path,
        "type": key.type,
        "choices": list(key.choices),
        "default": None if key.path == "profiles" else key.default,
        "default_words": key.default_words,
        "range": key.range_words or None,
        "meaning": key.meaning,
        "values": [{"key": v.key, "value": v.value, "source": v.source} for v in values],
    }
