"""`config`: what is printed of findings, what is written, and what the run answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.cli.contract_report import excerpt
from praxist_zmq.cli.settings import Settings
from praxist_zmq.cli.words import cells
from praxist_zmq.protocol.policy import SchedulerPolicy
from praxist_zmq.service.policy_file import check_file, check_policy
from praxist_zmq.service.policy_findings import Finding, Place
from praxist_zmq.service.policy_keys import contract_keys

from .conftest import Outcome
from .fake_scheduler import FakeScheduler

Call = Callable[..., Outcome]
GOOD = """\
compute_budget:
  resource_scheduler:
    mode: central
    max_concurrent_experiments: 8
    supply_lease_seconds: 60
    default_profile: gpu_work
    profiles:
      cpu_work: {}
      gpu_work: {accelerator: gpu, gpu_count: 2, gpu_memory_gb: 40}
"""
BAD = """\
compute_budget:
  resource_scheduler:
    mode: central
    suply_lease_seconds: 600
    cpu_low_pct: 95
    profiles:
      "日本😀":\t{accelerator: gpu, gpu_cuont: 2}
      b: {pressure_domains: [cpu, memory, i0]}
"""
BAD_SHOWN = """\
error[PZ101]: suply_lease_seconds: unknown key
 --> bad.yaml:4:5
  |
4 |     suply_lease_seconds: 600
  |     ^^^^^^^^^^^^^^^^^^^
  = help: did you mean `supply_lease_seconds`?

warning[PZ122]: cpu_low_pct: 95 is not below cpu_high_pct 92
 --> bad.yaml:5:18
  |
5 |     cpu_low_pct: 95
  |                  ^^
  = help: leave a band between them, or the limit will swing

error[PZ101]: profiles.日本😀.gpu_cuont: unknown profile key
 --> bad.yaml:7:33
  |
7 |       "日本😀":    {accelerator: gpu, gpu_cuont: 2}
  |                                       ^^^^^^^^^
  = help: did you mean `gpu_count`?

error[PZ102]: profiles.b.pressure_domains: unknown pressure domain "i0"
 --> bad.yaml:8:43
  |
8 |       b: {pressure_domains: [cpu, memory, i0]}
  |                                           ^^
  = help: did you mean `io`?

3 errors, 1 warning in bad.yaml
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good and a bad contract, the current one."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "good.yaml").write_text(GOOD)
    (folder / "bad.yaml").write_text(BAD)
    monkeypatch.chdir(folder)
    return folder


def test_every_finding_is_shown_in_its_line(call: Call, files: Path) -> None:
    outcome = call("config", "check", "bad.yaml")
    assert (outcome.exit_code, outcome.err) == (78, "")
    assert outcome.out == BAD_SHOWN


def test_colour_changes_no_character(call: Call, files: Path) -> None:
    outcome = call("--color", "always", "config", "check", "bad.yaml")
    assert "\x1b[1;31merror[PZ101]\x1b[0m" in outcome.out
    assert re.sub(r"\x1b\[[0-9;]*m", "", outcome.out) == BAD_SHOWN


def test_warnings_end_with_1_only_under_strict(call: Call, files: Path) -> None:
    assert call("config", "check", "good.yaml").exit_code == 0
    outcome = call("config", "check", "good.yaml", "--strict", "-o", "concise")
    assert outcome.exit_code == 1
    assert outcome.out == (
        "good.yaml:5:27: PZ120 warning: supply_lease_seconds: 60 is below 180; 180 will be used\n"
    )
    assert call("config", "check", "bad.yaml", "--strict").exit_code == 78


def test_a_clean_contract_is_told_in_one_line(call: Call, files: Path) -> None:
    (files / "clean.yaml").write_text("mode: central\n")
    outcome = call("config", "check", "clean.yaml")
    assert outcome.out == ("clean.yaml is valid: 1 profile, default default, at most 1 at once\n")
    assert call("-q", "config", "check", "clean.yaml").out == ""


def test_a_legacy_contract_is_checked_with_the_word_that_up_refuses_it(
    call: Call, files: Path
) -> None:
    (files / "old.yaml").write_text("mode: legacy\n")
    outcome = call("config", "check", "old.yaml")
    assert outcome.exit_code == 0
    assert "warning[PZ108]" in outcome.out


def test_annotations_for_a_code_host(call: Call, files: Path) -> None:
    (files / "a,b%.yaml").write_text("mode: central\nzz%: 1\n")
    outcome = call("config", "check", "a,b%.yaml", "-o", "github")
    assert outcome.out.startswith(
        "::error file=a%2Cb%25.yaml,line=2,col=1,endColumn=4,title=PZ101::zz%25: unknown key; "
    )


@pytest.mark.parametrize("arguments", [("--json",), ("-o", "json")])
def test_the_document(call: Call, files: Path, arguments: tuple[str, ...]) -> None:
    outcome = call("config", "check", "bad.yaml", *arguments)
    assert outcome.exit_code == 78
    document = outcome.document
    assert (document["kind"], document["valid"]) == ("config_check", False)
    assert (document["errors"], document["warnings"], document["host"]) == (3, 1, None)
    assert document["findings"][0] == {
        "code": "PZ101",
        "severity": "error",
        "line": 4,
        "column": 5,
        "end_column": 24,
        "key": "compute_budget.resource_scheduler.suply_lease_seconds",
        "message": "unknown key",
        "help": "did you mean `supply_lease_seconds`?",
    }


# -- carets


@pytest.mark.parametrize(
    ("before", "meant"),
    [
        ("", "key"),
        ("\t", "key"),
        ("日本 ", "ключ"),
        ("😀😀", "é́x"),
        ("e\u0301 ", "日"),
        ("\x1b", "a"),
    ],
)
def test_carets_stand_under_what_is_meant(before: str, meant: str) -> None:
    line = f"{before}{meant}: 1"
    column = len(before) + 1
    place = Place(1, column, column + len(meant))
    source, carets = excerpt(line, Finding("PZ101", place, "", ""), 60)
    start = len(carets) - len(carets.lstrip())
    assert carets.strip() == "^" * cells(meant)
    assert cells(source[: source.index(meant)]) == start


@pytest.mark.parametrize("room", [20, 40, 80])
@pytest.mark.parametrize("column", [1, 30, 500, 1000])
def test_a_long_line_is_cut_around_the_carets(room: int, column: int) -> None:
    line = "x" * 499 + "日" * 501
    finding = Finding("PZ101", Place(1, column, column + 300), "", "")
    source, carets = excerpt(line, finding, room)
    assert cells(source) <= room
    assert len(carets) <= room
    assert carets.strip(" ^") == ""
    assert "^" in carets


# -- the host


def test_the_profiles_against_simulated_devices(call: Call, files: Path) -> None:
    outcome = call("config", "check", "good.yaml", "--host", "--sim", "gpus=2,memory=80")
    assert outcome.exit_code == 0
    assert "host  2 SIMULATED GPUs\n  cpu_work  can run\n  gpu_work  can run\n" in outcome.out
    outcome = call("config", "check", "good.yaml", "--host", "--sim", "gpus=1", "--json")
    assert outcome.exit_code == 78
    (error,) = [f for f in outcome.document["findings"] if f["severity"] == "error"]
    assert (error["code"], error["line"]) == ("PZ130", 9)
    assert "never run on this simulated host: needs 2 GPUs" in error["message"]
    assert [p["can_run"] for p in outcome.document["host"]["profiles"]] == [True, False]
    (files / "other.yaml").write_text(GOOD.replace("default_profile: gpu", "default_profile: cpu"))
    outcome = call("config", "check", "other.yaml", "--host", "--sim", "gpus=2,memory=24")
    assert outcome.exit_code == 0
    assert "warning[PZ131]: profiles.gpu_work: can never run" in outcome.out


def test_devices_are_chosen_for_a_host_only(call: Call, files: Path) -> None:
    outcome = call("config", "check", "good.yaml", "--sim", "gpus=2")
    assert outcome.exit_code == 2
    assert "add --host" in outcome.err


# -- init and schema


@pytest.mark.parametrize("size", [(), ("--minimal",), ("--full",)])
def test_what_init_writes_has_no_finding(call: Call, files: Path, size: tuple[str, ...]) -> None:
    outcome = call("config", "init", *size, "-o", "new.yaml")
    assert (outcome.exit_code, outcome.out) == (0, "")
    assert "written  new.yaml" in outcome.err
    text = (files / "new.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=./praxist-task.schema.json\n")
    assert max(map(len, text.splitlines())) <= 100
    check = check_file(files / "new.yaml")
    assert (check.errors, check.warnings) == ([], [])
    assert call("config", "init", *size).out == text


def test_the_full_contract_has_every_key(call: Call) -> None:
    check = check_policy(call("config", "init", "--full").out)
    written = {re.sub(r"^profiles\.\w+\.", "profiles.NAME.", path) for path in check.places}
    assert set(contract_keys()) <= written


def test_a_file_is_overwritten_only_by_force(call: Call, files: Path) -> None:
    for verb in ("init", "schema"):
        refused = call("config", verb, "-o", "good.yaml")
        assert refused.exit_code == 2
        assert "good.yaml exists" in refused.err
        assert (files / "good.yaml").read_text() == GOOD
    assert call("config", "schema", "-o", "good.yaml", "--force").exit_code == 0
    assert "$schema" in json.loads((files / "good.yaml").read_text())
    assert call("config", "init", "-o", "none/x.yaml").exit_code == 73
    assert call("config", "init", "--full", "--minimal").exit_code == 2


# -- show and explain


def test_values_and_where_they_come_from(call: Call, files: Path) -> None:
    outcome = call("config", "show", "good.yaml")
    rows = [line.split("\t") for line in outcome.out.splitlines()[1:]]
    values = {key: (value, source) for key, value, source in rows}
    assert values["max_concurrent_experiments"] == ("8", "line 4")
    assert values["supply_lease_seconds"] == ("180", "line 5, written 60")
    assert values["cpu_low_pct"] == ("65", "default")
    assert values["profiles.cpu_work.pressure_domains"] == ("[cpu, memory]", "default")
    assert values["profiles.gpu_work.gpu_utilization_pct"] == ("unknown", "default")
    assert values["profiles.gpu_work.gpu_count"] == ("2", "line 9")
    assert call("config", "show", "bad.yaml").exit_code == 78
    document = call("config", "show", "good.yaml", "--json").document
    assert document["policy"]["supply_lease_seconds"] == 180
    (lease,) = [v for v in document["values"] if v["key"] == "supply_lease_seconds"]
    assert (lease["source"], lease["line"], lease["written"]) == ("file", 5, "60")


def test_the_contract_in_force_is_asked_of_the_run(call: Call, scheduler: FakeScheduler) -> None:
    policy = SchedulerPolicy(max_concurrent_experiments=7).model_dump(mode="json")
    scheduler.answers["get_policy"] = {
        "kind": "policy", "policy": policy, "generation": 0, "is_default": False,
    }  # fmt: skip
    outcome = call("config", "show")
    assert "max_concurrent_experiments\t7\tcontract\n" in outcome.out
    assert "cpu_low_pct\t65\tcontract, as the default\n" in outcome.out


def test_the_defaults_need_no_run(call: Call, files: Path) -> None:
    outcome = call("config", "show", "--defaults")
    assert "supply_lease_seconds\t600\tdefault\n" in outcome.out
    assert call("config", "show", "good.yaml", "--defaults").exit_code == 2
    assert call("config", "show").exit_code == 69


@pytest.mark.parametrize(
    "named",
    [
        "supply_lease_seconds",
        "compute_budget.resource_scheduler.supply_lease_seconds",
        "resource_scheduler.supply_lease_seconds",
    ],
)
def test_a_key_is_explained(call: Call, files: Path, named: str) -> None:
    outcome = call("config", "explain", named, "--file", "good.yaml")
    assert outcome.out == (
        "compute_budget.resource_scheduler.supply_lease_seconds\n"
        "  integer, default 600, range 180 to 3600\n"
        "  How long an idle peer may answer a lease, seconds; it limits no experiment.\n"
        "  good.yaml: 180 (line 5, written 60)\n"
        "  see: docs/policy.md#supply_lease_seconds\n"
    )


def test_a_profiles_key_is_found_in_any_spelling(call: Call) -> None:
    wanted = call("config", "explain", "profiles.NAME.gpu_count").out
    for named in ("gpu_count", "profiles.gpu_work.gpu_count", "profiles.gpu_count"):
        assert call("config", "explain", named).out == wanted
    assert call("config", "explain", "profiles", "--recursive").out.count("\n\n") == 6


def test_an_unknown_key_names_the_nearest(call: Call) -> None:
    outcome = call("config", "explain", "suply_lease")
    assert outcome.exit_code == 2
    assert "did you mean `supply_lease_seconds`?" in outcome.err


def test_every_key_is_listed_and_has_words(call: Call) -> None:
    document = call("config", "explain", "--json").document
    keys: list[dict[str, Any]] = document["keys"]
    assert [key["key"] for key in keys] == list(contract_keys())
    assert all(key["meaning"] and key["type"] for key in keys)
    assert call("config", "explain", "-q").out.splitlines() == list(contract_keys())


def test_tables_fit_80_columns(call: Call, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert Settings(output="table").format == "table"
    for arguments in (("explain",), ("show", "good.yaml"), ("explain", "gpu_count")):
        outcome = call("config", *arguments, "-o", "table")
        assert outcome.exit_code == 0
        assert max(map(cells, outcome.out.splitlines())) <= 80
