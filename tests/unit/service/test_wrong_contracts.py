"""Wrong contracts: what is said of each, with its code and its place. Text, code, place, words."""

from __future__ import annotations

import pytest

from praxist_zmq.service.policy_document import source_lines
from praxist_zmq.service.policy_file import PolicyCheck, check_policy
from praxist_zmq.service.policy_findings import CODES, Finding

M = "mode: central\n"
P = M + "profiles:\n"

ERRORS: list[tuple[str, str, int, int, str]] = [
    # -- keys
    (M + "suply_lease_seconds: 600", "PZ101", 2, 1, "did you mean `supply_lease_seconds`?"),
    (M + "max_concurent_experiments: 8", "PZ101", 2, 1, "did you mean `max_concurrent_exp"),
    (M + "zz: 1", "PZ101", 2, 1, "`praxist-zmq config explain` lists"),
    (M + "max_parallel_runs_per_peer: 2", "PZ101", 2, 1, "unknown key"),
    (M + "Cpu_low_pct: 5", "PZ101", 2, 1, "did you mean `cpu_low_pct`?"),
    (M + "'': 1", "PZ101", 2, 1, "unknown key"),
    (P + "  a: {gpu_cuont: 2}", "PZ101", 3, 7, "did you mean `gpu_count`?"),
    (P + "  a: {vram: 2}", "PZ101", 3, 7, "valid: accelerator, gpu_count"),
    ("compute_budget: {resource_schedular: {}}", "PZ101", 1, 18, "`resource_scheduler`?"),
    ("compute_bugdet: {resource_scheduler: {}}", "PZ101", 1, 1, "`compute_budget`?"),
    (M + "cpu_low_pct: 5\ncpu_low_pct: 6", "PZ103", 3, 1, "the first is on line 2"),
    (P + "  a: {}\n  b: {}\n  a: {}", "PZ103", 5, 3, "the first is on line 3"),
    (P + "  a: {gpu_count: 1, gpu_count: 2}", "PZ103", 3, 21, "keep one of the two"),
    (M + "mode: central", "PZ103", 2, 1, "the first is on line 1"),
    ("compute_budget: {}\ncompute_budget: {}", "PZ103", 2, 1, "the first is on line 1"),
    (M + "? [a]\n: 1", "PZ104", 2, 3, "a key must be plain text"),
    (M + "1: 2", "PZ101", 2, 1, "unknown key"),
    # -- integers
    (M + "max_concurrent_experiments: 2.5", "PZ102", 2, 29, "must be an integer, got 2.5"),
    (M + "max_concurrent_experiments: true", "PZ102", 2, 29, "got true"),
    (M + "max_concurrent_experiments: eight", "PZ102", 2, 29, 'got "eight"'),
    (M + "max_concurrent_experiments:", "PZ102", 2, 28, "got nothing"),
    (M + "max_concurrent_experiments: null", "PZ102", 2, 29, "got nothing"),
    (M + "max_concurrent_experiments: [8]", "PZ102", 2, 29, "got a list"),
    (M + "max_concurrent_experiments: 0x10", "PZ102", 2, 29, "plain decimal digits"),
    (M + "max_concurrent_experiments: 1_000", "PZ102", 2, 29, "plain decimal digits"),
    (M + "max_concurrent_experiments: 1:30", "PZ102", 2, 29, "must be an integer"),
    (M + f"max_concurrent_experiments: {10**15}", "PZ102", 2, 29, "at most 15 digits"),
    (M + "supply_idle_samples: '3.0'", "PZ102", 2, 22, 'got "3.0"'),
    (M + "infrastructure_retries: 1e0", "PZ102", 2, 25, "must be an integer"),
    # -- numbers
    (M + "cpu_low_pct: .nan", "PZ102", 2, 14, "must be a finite number, got .nan"),
    (M + "cpu_low_pct: .inf", "PZ102", 2, 14, "must be a finite number"),
    (M + "cpu_low_pct: -.INF", "PZ102", 2, 14, "must be a finite number"),
    (M + "cpu_low_pct: 1e400", "PZ102", 2, 14, "must be a finite number"),
    (M + "cpu_low_pct: no", "PZ102", 2, 14, "must be a finite number, got no"),
    (M + "cpu_low_pct: 60%", "PZ102", 2, 14, 'got "60%"'),
    (M + "cpu_low_pct: {a: 1}", "PZ102", 2, 14, "got a mapping"),
    (M + "adjustment_interval_seconds: 20s", "PZ102", 2, 30, 'got "20s"'),
    # -- booleans
    (M + "deadline_admission: yess", "PZ102", 2, 21, "did you mean `yes`?"),
    (M + "deadline_admission: 1", "PZ102", 2, 21, "must be a boolean"),
    (M + "deadline_admission: 0", "PZ102", 2, 21, "write true or false"),
    (M + "deadline_admission: 'tru'", "PZ102", 2, 21, "did you mean `true`?"),
    (M + "supply_signal_enabled: ~", "PZ102", 2, 24, "got nothing"),
    (M + "supply_signal_enabled: y", "PZ102", 2, 24, "must be a boolean"),
    # -- modes and profiles
    ("mode: centrall", "PZ102", 1, 7, "did you mean `central`?"),
    ("mode: true", "PZ102", 1, 7, "got true or false"),
    ("mode: ''", "PZ102", 1, 7, "must be"),
    (M + "default_profile: gpu", "PZ105", 2, 18, "declared: default"),
    (M + "default_profile: '  '", "PZ105", 2, 18, "is blank"),
    (M + "default_profile:", "PZ105", 2, 17, "is blank"),
    (M + "default_profile: 1\nprofiles: {'1': {}}", "PZ105", 2, 18, "quote it"),
    (M + "default_profile: gpu_wrk\nprofiles: {gpu_work: {}}", "PZ105", 2, 18, "`gpu_work`?"),
    (P + "  on: {}", "PZ106", 3, 3, 'quote it: "on"'),
    (P + "  1: {}", "PZ106", 3, 3, "YAML reads `1` as a number"),
    (P + "  ~: {}", "PZ106", 3, 3, "as nothing"),
    (P + '  "": {}', "PZ106", 3, 3, "1 to 128 printable"),
    (P + '  " a": {}', "PZ106", 3, 3, "no leading space"),
    (P + '  "a\\tb": {}', "PZ106", 3, 3, "printable"),
    (P + f"  {'n' * 129}: {{}}", "PZ106", 3, 3, "1 to 128"),
    (M + "profiles: [a]", "PZ104", 2, 11, "must be a mapping of profiles, not a list"),
    (M + "profiles:", "PZ104", 2, 10, "not nothing"),
    (P + "  a: gpu", "PZ104", 3, 6, "must be a mapping, not text"),
    (P + "  a:", "PZ104", 3, 5, "not nothing"),
    (P + "  a: {accelerator: tpu}", "PZ102", 3, 20, 'must be "cpu" or "gpu", got "tpu"'),
    (P + "  a: {accelerator: gpuu}", "PZ102", 3, 20, "did you mean `gpu`?"),
    (P + "  a: {accelerator: 1}", "PZ102", 3, 20, "got a number"),
    (P + "  a: {gpu_count: 2000, accelerator: gpu}", "PZ102", 3, 18, "at most 1024, got 2000"),
    (P + "  a: {accelerator: gpu, gpu_memory_gb: 0}", "PZ102", 3, 40, "must be positive, got 0"),
    (P + "  a: {accelerator: gpu, gpu_memory_gb: -2}", "PZ102", 3, 40, "must be positive"),
    (P + "  a: {accelerator: gpu, gpu_memory_gb: ~}", "PZ102", 3, 40, "leave it out when"),
    (P + "  a: {accelerator: gpu, gpu_memory_gb: false}", "PZ102", 3, 40, "finite number"),
    (P + "  a: {accelerator: gpu, gpu_memory_gb: 20GB}", "PZ102", 3, 40, 'got "20GB"'),
    (P + "  a: {accelerator: gpu, gpu_utilization_pct: on}", "PZ102", 3, 46, "finite number"),
    (P + "  a: {pressure_domains: cpu}", "PZ104", 3, 25, "write [cpu]"),
    (P + "  a: {pressure_domains: ~}", "PZ104", 3, 25, "not nothing"),
    (P + "  a: {pressure_domains: [cpu, i0]}", "PZ102", 3, 31, "did you mean `io`?"),
    (P + "  a: {pressure_domains: [on]}", "PZ102", 3, 26, "domain true or false"),
    (P + "  a: {pressure_domains: [[cpu]]}", "PZ102", 3, 26, "domain a list"),
    # -- the section, and what is no YAML
    ("compute_budget: {resource_scheduler: []}", "PZ104", 1, 38, "must be a mapping, not a list"),
    ("compute_budget: {resource_scheduler: }", "PZ104", 1, 38, "not nothing"),
    ("compute_budget: 4", "PZ104", 1, 17, "must be a mapping, not a number"),
    ("- mode: central", "PZ104", 1, 1, "the file must hold a mapping"),
    ("", "PZ100", 0, 0, "the file holds nothing"),
    (M + "profiles: [\n\n", "PZ100", 2, 12, "not valid YAML"),
    (M + "profiles:\n\ta: {}", "PZ100", 3, 1, "indent with spaces"),
    (M + "---\n" + M, "PZ100", 2, 1, "holds one document"),
    (M + "x: *nowhere", "PZ100", 2, 4, "undefined alias"),
    (M + "x: a\x07b", "PZ100", 2, 5, "U+0007"),
    (M + "profiles: &p\n  <<: *p", "PZ109", 3, 3, "must name a mapping"),
    ("x: &x {resource_scheduler: {}}\ncompute_budget: {<<: *x}", "PZ109", 2, 18, "write the key"),
    (M + "profiles: {<<: 3}", "PZ109", 2, 12, "must name a mapping"),
    (P + "  a: {accelerator: gpu, gpu_utilization_pct: 0.45}", "PZ127", 3, 46, "write 45 for"),
    (P + "  a: {accelerator: gpu, gpu_memory_gb: 20480}", "PZ128", 3, 40, "20"),
]  # fmt: skip

WARNINGS: list[tuple[str, str, int, int, str]] = [
    (M + "supply_lease_seconds: 60", "PZ120", 2, 23, "60 is below 180; 180 will be used"),
    (M + "supply_idle_samples: 99", "PZ120", 2, 22, "99 is above 12; 12 will be used"),
    (M + "mature_supply_fraction: 1.5", "PZ120", 2, 25, "1 will be used"),
    (M + "mature_assessment_min_completion_probability: 7", "PZ120", 2, 47, "1 will be used"),
    (M + "initial_concurrent_experiments: 7", "PZ120", 2, 33, "7 is above 1"),
    (M + "min_concurrent_experiments: 4", "PZ125", 2, 29, "4 is over the maximum, 1; 1 will"),
    (M + "max_concurrent_experiments: 2\nmin_concurrent_experiments: 4", "PZ125", 3, 29, "(line"),
    (M + "cpu_low_pct: 95", "PZ122", 2, 14, "95 is not below cpu_high_pct 92"),
    (M + "cpu_high_pct: 65", "PZ122", 2, 15, "65 is not above cpu_low_pct 65"),
    (P + "  a: {accelerator: gpu, gpu_count: 0}", "PZ120", 3, 36, "0 is below 1; 1 will be used"),
    (P + "  a: {gpu_count: 2}", "PZ121", 3, 18, "2 in a CPU profile; 0 will be used"),
    (P + "  a: {gpu_memory_gb: 2}", "PZ121", 3, 22, "no effect in a CPU profile"),
    (M + "memory_high_pct: 0", "PZ126", 2, 18, "nothing that declares memory would ever start"),
    (M + "io_pressure_high_pct: 0", "PZ126", 2, 23, "nothing that declares io would"),
    (M + "cpu_high_pct: 0", "PZ126", 2, 15, "nothing that declares cpu would ever start"),
    (P + "  a: {pressure_domains: [gpu]}", "PZ121", 3, 26, "`gpu` is accepted"),
    (P + "  a: {accelerator: gpu, gpu_utilization_pct: 120}", "PZ120", 3, 46, "100 will be used"),
    (M + "profiles: {}", "PZ123", 2, 11, "one CPU profile `default`"),
    ("max_concurrent_experiments: 2", "PZ123", 1, 1, "`central` will be used"),
    ("task: x", "PZ123", 1, 1, "documented defaults"),
    ("mode: legacy\ncpu_low_pct: .nan", "PZ124", 2, 14, "the default will be used"),
    ("mode: legacy\nprofiles: {a: 3, b: {}}", "PZ124", 2, 15, "the profile is left out"),
    ("mode: legacy\nzz: 1", "PZ124", 2, 1, "it is left out"),
]  # fmt: skip


def _one(findings: list[Finding], check: PolicyCheck) -> Finding:
    assert len(findings) == 1, [each.text() for each in [*check.errors, *check.warnings]]
    return findings[0]


def _fits(found: Finding, text: str, code: str, line: int, column: int, words: str) -> None:
    assert (found.code, found.line, found.column) == (code, line, column), found.text()
    assert words in found.text()
    assert code in CODES
    lines = source_lines(text)
    if line:
        assert column <= len(lines[line - 1]) + 1
        assert found.place.end_column <= len(lines[line - 1]) + 2


@pytest.mark.parametrize(("text", "code", "line", "column", "words"), ERRORS)
def test_a_wrong_contract_is_refused_at_its_place(
    text: str, code: str, line: int, column: int, words: str
) -> None:
    check = check_policy(text)
    assert check.policy is None
    _fits(_one(check.errors, check), text, code, line, column, words)


@pytest.mark.parametrize(("text", "code", "line", "column", "words"), WARNINGS)
def test_what_is_put_right_is_told_at_its_place(
    text: str, code: str, line: int, column: int, words: str
) -> None:
    check = check_policy(text)
    assert check.errors == []
    assert check.policy is not None
    _fits(_one(check.warnings, check), text, code, line, column, words)


def test_a_wrong_value_brings_no_second_finding() -> None:
    check = check_policy(
        M + "max_concurrent_experiments: x\nmin_concurrent_experiments: 5\n"
        "cpu_high_pct: x\ncpu_low_pct: 99\ndefault_profile: a\nprofiles: {a: 3}\n"
    )
    assert [each.code for each in check.errors] == ["PZ102", "PZ102", "PZ104"]
    assert check.warnings == []


def test_every_code_is_met_by_a_wrong_contract_or_named_elsewhere() -> None:
    met = {row[1] for row in [*ERRORS, *WARNINGS]}
    others = {"PZ107", "PZ108", "PZ130", "PZ131", "PZ132"}
    assert met | others == set(CODES)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x85", "\u2028"])
def test_lines_are_counted_as_yaml_breaks_them(end: str) -> None:
    text = end.join(["mode: central", "", "zz: 1", ""])
    (found,) = check_policy(text).errors
    assert (found.line, found.column) == (3, 1)
    assert source_lines(text)[found.line - 1] == "zz: 1"


def test_a_value_from_an_anchor_is_told_where_it_is_written() -> None:
    text = P + "  a: &a {accelerator: gpu, gpu_memory_gb: x}\n  b: *a\n  c: {<<: *a}\n"
    found = check_policy(text).errors
    assert [(each.line, each.column) for each in found] == [(3, 43)] * 3
    assert [each.key for each in found] == [f"profiles.{n}.gpu_memory_gb" for n in "abc"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (P + "  a: {accelerator: gpuu, gpu_count: 0, gpu_memory_gb: 2}", ["PZ102"]),
        (P + "  a: {acelerator: gpu, gpu_count: 2, gpu_memory_gb: 2}", ["PZ101"]),
        (P + "  a: {gpu_count: 1, gpu_memory_gb: 2, gpu_utilization_pct: 5}", ["PZ121"]),
        (M + "default_profile: a\nprofile:\n  a: {accelerator: cpu}", ["PZ101"]),
        (M + "max_concurrent_experimnts: 8\nmin_concurrent_experiments: 4", ["PZ101"]),
        ("mod: central\nmax_concurrent_experiments: 8", ["PZ101"]),
        (M + "cpu_high_pct: 0\ncpu_low_pct: 50", ["PZ126"]),
    ],
)
def test_one_mistake_is_told_once(text: str, told: list[str]) -> None:
    check = check_policy(text)
    assert [finding.code for finding in (*check.errors, *check.warnings)] == told


def test_keys_beside_an_empty_section_are_seen() -> None:
    text = "compute_budget:\n  resource_scheduler:\n  mode: central\n"
    (error,) = check_policy(text).errors
    assert (error.code, error.help) == ("PZ104", "indent its keys below it")
