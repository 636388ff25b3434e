"""The contract as read: types, normalisation, places, limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from praxist_zmq.errors import PraxistError
from praxist_zmq.protocol.policy import SchedulerPolicy
from praxist_zmq.service.policy_file import check_policy, read_policy

FULL = """\
task: anything
compute_budget:
  hours: 4
  resource_scheduler:
    mode: Central
    initial_concurrent_experiments: 2
    min_concurrent_experiments: 1
    max_concurrent_experiments: "8"
    supply_signal_enabled: "yes"
    supply_idle_samples: 3
    supply_lease_seconds: 600
    mature_supply_fraction: "0.5"
    exploration_reserve: 0
    default_profile: gpu_work
    profiles:
      cpu_ordinary:
        accelerator: CPU
        pressure_domains: [ cpu, Memory, io, cpu ]
      gpu_work:
        accelerator: gpu
        gpu_memory_gb: 20
        gpu_utilization_pct: 45
        pressure_domains: []
other: {on: 1}
"""


def section(*lines: str) -> str:
    return "\n".join(["mode: central", *lines]) + "\n"


def errors_of(text: str) -> list[str]:
    check = check_policy(text)
    assert check.policy is None
    return [finding.text() for finding in check.errors]


def warnings_of(text: str) -> tuple[SchedulerPolicy, list[str]]:
    check = check_policy(text)
    assert check.errors == []
    assert check.policy is not None
    return check.policy, [finding.text() for finding in check.warnings]


def test_a_whole_task_file_is_read_and_other_keys_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(FULL)
    reading = read_policy(path)
    policy = reading.policy
    assert reading.warnings == []
    assert (policy.max_concurrent_experiments, policy.initial_concurrent_experiments) == (8, 2)
    assert policy.supply_signal_enabled is True
    assert policy.mature_supply_fraction == 0.5
    assert policy.profiles["cpu_ordinary"].pressure_domains == ("cpu", "memory", "io")
    gpu = policy.profiles["gpu_work"]
    assert (gpu.gpu_count, gpu.gpu_memory_gb, gpu.pressure_domains) == (1, 20.0, ())


def test_a_profile_says_what_follows_when_its_end_is_lost() -> None:
    policy, _ = warnings_of("mode: central\nprofiles: {a: {on_lost: Requeue}, b: {}}\n")
    assert [policy.profiles[name].on_lost for name in "ab"] == ["requeue", "hold"]


def test_defaults_are_the_documented_ones() -> None:
    policy, warnings = warnings_of("mode: central\n")
    assert policy == SchedulerPolicy()
    assert warnings == []
    assert policy.default_profile == "default"


def test_the_first_declared_profile_is_the_default_one() -> None:
    policy, _ = warnings_of(section("profiles: {b: {accelerator: gpu}, a: {}}"))
    assert policy.default_profile == "b"
    assert policy.profiles["b"].gpu_memory_gb is None


@pytest.mark.parametrize(
    "value",
    ["true", "off", "2.5", '"2.5"', "", "~", "[2]", ".nan", ".inf", "1e400", "010", "0x10", "1:30"],
)
def test_what_is_no_integer_is_refused(value: str) -> None:
    (error,) = errors_of(section(f"initial_concurrent_experiments: {value}"))
    assert error.startswith("2:")
    assert "initial_concurrent_experiments: must be an integer" in error


@pytest.mark.parametrize("value", ["8", '"8"', '" 8 "', "+8"])
def test_integers_may_be_text(value: str) -> None:
    policy, warnings = warnings_of(section(f"max_concurrent_experiments: {value}"))
    assert policy.max_concurrent_experiments == 8
    assert warnings == []


@pytest.mark.parametrize("value", ["true", "no", ".nan", ".inf", "-.inf", "1e400", '"nan"', "x"])
def test_what_is_no_finite_number_is_refused(value: str) -> None:
    (error,) = errors_of(section(f"cpu_low_pct: {value}"))
    assert "cpu_low_pct: must be a finite number" in error


@pytest.mark.parametrize("value", ["60", "60.0", '"60"', "6e1", '" 60 "', "+60"])
def test_numbers_may_be_text(value: str) -> None:
    policy, _ = warnings_of(section(f"cpu_low_pct: {value}"))
    assert policy.cpu_low_pct == 60.0


@pytest.mark.parametrize("value", ["1", "0", "yess", "y", "2.0", "~", "[]"])
def test_what_is_no_boolean_is_refused(value: str) -> None:
    (error,) = errors_of(section(f"deadline_admission: {value}"))
    assert "must be a boolean" in error


@pytest.mark.parametrize(
    ("value", "meant"),
    [("true", True), ("Off", False), ('"1"', True), ("'No'", False), ('" on "', True)],
)
def test_booleans_and_their_words(value: str, meant: bool) -> None:
    policy, _ = warnings_of(section(f"deadline_admission: {value}"))
    assert policy.deadline_admission is meant


@pytest.mark.parametrize(
    ("line", "field", "becomes"),
    [
        ("supply_lease_seconds: 60", "supply_lease_seconds", 180),
        ("supply_lease_seconds: 9999", "supply_lease_seconds", 3600),
        ("supply_idle_samples: 1", "supply_idle_samples", 2),
        ("mature_supply_fraction: -1", "mature_supply_fraction", 0.0),
        ("mature_supply_redundancy: 11", "mature_supply_redundancy", 10.0),
        ("adjustment_interval_seconds: 0.5", "adjustment_interval_seconds", 2.0),
        ("max_concurrent_experiments: -1", "max_concurrent_experiments", 1),
        ("infrastructure_retries: -3", "infrastructure_retries", 0),
        ("io_pressure_high_pct: 250", "io_pressure_high_pct", 100.0),
        ("initial_concurrent_experiments: 7", "initial_concurrent_experiments", 1),
        ("min_concurrent_experiments: 4", "min_concurrent_experiments", 1),
    ],
)
def test_out_of_range_is_normalised_and_told(line: str, field: str, becomes: float) -> None:
    policy, warnings = warnings_of(section(line))
    assert getattr(policy, field) == becomes
    assert len(warnings) == 1
    assert field in warnings[0]
    assert f"{becomes:g} will be used" in warnings[0]


def test_the_initial_limit_defaults_to_the_lower_bound() -> None:
    policy, _ = warnings_of(
        section("min_concurrent_experiments: 3", "max_concurrent_experiments: 9")
    )
    assert policy.initial_concurrent_experiments == 3


def test_every_mistake_is_told_with_its_place_and_the_nearest_key() -> None:
    text = FULL.replace("supply_lease_seconds", "suply_lease_seconds").replace("io, cpu", "i0")
    text = text.replace("default_profile: gpu_work", "default_profile: gpu_wrk")
    text = text.replace("        gpu_utilization_pct: 45", "        gpu_memory_gb: 30")
    found = errors_of(text)
    base = "compute_budget.resource_scheduler"
    assert found[0] == (
        f"11:5: PZ101 {base}.suply_lease_seconds: unknown key; did you mean `supply_lease_seconds`?"
    )
    assert found[1].startswith(
        f'14:22: PZ105 {base}.default_profile: "gpu_wrk" is declared nowhere'
    )
    assert "did you mean `gpu_work`?" in found[1]
    assert found[2].startswith("18:42: ")
    assert 'unknown pressure domain "i0"; did you mean `io`?' in found[2]
    assert "22:9:" in found[3]
    assert "set twice; the first is on line 21" in found[3]
    assert len(found) == 4


@pytest.mark.parametrize("name", ["on", "no", "1", "1.5", "~", "true"])
def test_a_profile_name_that_yaml_reads_as_something_else_is_refused(name: str) -> None:
    found = errors_of(section("profiles:", f"  {name}: {{}}"))
    assert "must be text" in found[0]
    policy, _ = warnings_of(section("profiles:", f'  "{name}": {{}}'))
    assert list(policy.profiles) == [name]


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("{accelerator: tpu}", 'must be "cpu" or "gpu"'),
        ("{accelerator: gpu, gpu_memory_gb: 0}", "must be positive"),
        ("{accelerator: gpu, gpu_memory_gb: ~}", "must be a finite number"),
        ("{accelerator: gpu, gpu_memory_gb: false}", "must be a finite number"),
        ("{accelerator: gpu, gpu_count: 2000}", "must be at most 1024"),
        ("{accelerator: gpu, gpu_cuont: 2}", "did you mean `gpu_count`?"),
        ("{on_lost: requeu}", 'must be "hold" or "requeue", got "requeu"'),
        ("{on_lost: true}", 'must be "hold" or "requeue"'),
        ("{pressure_domains: cpu}", "must be a list"),
        ("{pressure_domains: [on]}", "unknown pressure domain true or false"),
        ("~", "must be a mapping, not nothing"),
        ("[gpu]", "must be a mapping, not a list"),
    ],
)
def test_profile_mistakes(profile: str, message: str) -> None:
    (error,) = errors_of(section(f"profiles: {{p: {profile}}}"))
    assert message in error


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("memory_high_pct", "0.95", "write 95 for the share 0.95"),
        ("cpu_high_pct", "'.92'", "write 92 for the share 0.92"),
        ("cpu_low_pct", "0.65", "write 65 for the share 0.65"),
        ("io_pressure_high_pct", "1", "write 100 for the share 1"),
    ],
)
def test_percent_points_that_are_written_as_a_share_are_refused(
    key: str, value: str, meant: str
) -> None:
    (error,) = errors_of(section(f"{key}: {value}"))
    assert "PZ127" in error
    assert meant in error
    for plain in ("0", "1.5", "100"):
        assert check_policy(section(f"{key}: {plain}")).errors == []


def test_a_demand_that_is_written_as_a_share_is_refused() -> None:
    profile = "{accelerator: gpu, gpu_memory_gb: 10, gpu_utilization_pct: 0.45}"
    (error,) = errors_of(section(f"profiles: {{p: {profile}}}"))
    assert "PZ127" in error
    assert "write 45 for the share 0.45" in error


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "profiles: {p: {accelerator: gpu, gpu_memory_gb: 20480}}",
            "must be at most 1024 GiB, got 20480; write 20 for 20480 MiB",
        ),
        (
            "adjustment_interval_seconds: 20000",
            "must be at most 3600 seconds, got 20000; write 20 for 20000 milliseconds",
        ),
    ],
)
def test_a_size_in_a_smaller_unit_is_refused_with_what_was_meant(line: str, words: str) -> None:
    (error,) = errors_of(section(line))
    assert "PZ128" in error
    assert words in error


def test_profile_normalisation() -> None:
    policy, warnings = warnings_of(
        section(
            "profiles:",
            "  c: {gpu_count: 2, gpu_memory_gb: 5}",
            "  g: {accelerator: gpu, gpu_count: 0, gpu_utilization_pct: 150}",
        )
    )
    assert (policy.profiles["c"].gpu_count, policy.profiles["c"].gpu_memory_gb) == (0, None)
    assert (policy.profiles["g"].gpu_count, policy.profiles["g"].gpu_utilization_pct) == (1, 100.0)
    assert len(warnings) == 3
    assert "gpu_count and gpu_memory_gb have no effect in a CPU profile" in warnings[0]


def test_legacy_mode_can_be_checked_and_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("max_concurrent_experiments: 2\nmode: Legacy\n")
    with pytest.raises(PraxistError) as caught:
        read_policy(path)
    assert f"{path}:2:7: PZ108 mode: `up` does not serve legacy mode" in caught.value.detail
    policy, warnings = warnings_of(path.read_text())
    assert (policy.mode, policy.max_concurrent_experiments, warnings) == ("legacy", 2, [])


def test_legacy_mode_takes_defaults_for_what_is_malformed() -> None:
    policy, warnings = warnings_of(
        "mode: legacy\nmax_concurrent_experiments: 2.5\ncpu_low_pct: .nan\nzz: 1\n"
        "deadline_admission: 0\nprofiles:\n  a: 3\n  1: {}\n"
        "  b: {accelerator: gpu, gpu_memory_gb: ~, pressure_domains: [gpuu]}\n"
    )
    assert policy.max_concurrent_experiments == 1
    assert (policy.cpu_low_pct, policy.deadline_admission) == (65.0, True)
    assert list(policy.profiles) == ["b"]
    assert policy.profiles["b"].gpu_memory_gb is None
    assert policy.profiles["b"].pressure_domains == ()
    assert len(warnings) == 8
    assert all("PZ124" in warning and "in legacy mode" in warning for warning in warnings)
    assert "5:21: PZ124 deadline_admission: must be a boolean (true or false), got 0" in warnings[3]
    assert "7:6: PZ124 profiles.a: must be a mapping, not a number" in warnings[4]
    assert "the profile is left out" in warnings[4]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("default_profile: zz", "is declared nowhere"),
        ("default_profile: ''", "is blank"),
        ("profiles: 3", "must be a mapping of profiles"),
        ("profiles: {default: {accelerator: tpu}}", 'must be "cpu" or "gpu"'),
        ("mode: old", "set twice"),
    ],
)
def test_some_mistakes_are_errors_in_legacy_mode_too(line: str, message: str) -> None:
    assert any(message in error for error in errors_of(f"mode: legacy\n{line}\n"))


def test_no_mode_is_told() -> None:
    _, warnings = warnings_of("max_concurrent_experiments: 2\n")
    assert len(warnings) == 1
    assert "`central` will be used" in warnings[0]
    assert "did you mean `central`" in errors_of("mode: centrall\n")[0]


def test_crossed_marks_are_told() -> None:
    _, warnings = warnings_of(section("cpu_low_pct: 95"))
    assert "is not below cpu_high_pct 92" in warnings[0]


def test_anchors_and_merges() -> None:
    policy, _ = warnings_of(
        section(
            "profiles:",
            "  a: &a {accelerator: gpu, gpu_memory_gb: 10}",
            "  b: {<<: *a, gpu_memory_gb: 20}",
        )
    )
    assert policy.profiles["b"].accelerator == "gpu"
    assert policy.profiles["b"].gpu_memory_gb == 20


def test_the_section_must_be_a_mapping_and_may_be_absent() -> None:
    assert "must be a mapping, not a list" in errors_of("resource_scheduler: []\n")[0]
    assert "must be a mapping" in errors_of("compute_budget: {resource_scheduler: ~}\n")[0]
    assert "the file holds nothing" in errors_of("# empty\n")[0]
    assert "did you mean" in errors_of("compute_budget: {resource_schedular: {}}\n")[0]
    assert "did you mean" in errors_of("compute_bugdet: {resource_scheduler: {}}\n")[0]
    policy, warnings = warnings_of("task: x\n")
    assert policy == SchedulerPolicy()
    assert "documented defaults" in warnings[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: central\nprofiles: [", "not valid YAML"),
        ("mode: central\n---\nmode: central\n", "not valid YAML"),
        ("mode: 'central\n", "not valid YAML"),
        ("mode: *nowhere\n", "not valid YAML"),
        ("mode: central\nx: \x01\n", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
        ("{a: " * 70 + "1" + "}" * 70, "over 64 levels"),
        ("a: &a [1]\nb: [" + "*a," * 300 + "]\n", "over 200 aliases"),
        (
            "mode: !!python/object/apply:os.system [id]\n",
            'must be "central" or "legacy", got a list',
        ),
        ("? [a]\n: 1\nmode: central\n", "a key must be plain text"),
        ("mode: central\nprofiles: &p\n  <<: *p\n", "must name a mapping"),
    ],
)
def test_hostile_text_is_refused_in_words(text: str, message: str) -> None:
    assert any(message in error for error in errors_of(text))


def test_an_alias_bomb_costs_nothing() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}, *a{i - 1}]}}" for i in range(1, 30)]
    check = check_policy("\n".join(["mode: central", *lines, "profiles: *a29"]))
    assert check.policy is None


def test_many_unknown_keys_are_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(section(*[f"zz{i}: 1" for i in range(50)]))
    with pytest.raises(PraxistError) as caught:
        read_policy(path)
    assert caught.value.code == "contract_invalid"
    assert "50 errors" in caught.value.detail
    assert "and 30 more" in caught.value.detail
    assert f"{path}:2:1: PZ101 zz0: unknown key" in caught.value.detail


def test_files_that_are_no_contract(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (1024 * 1024 + 1))
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"mode: central\nx: \xff\n")
    for path, code, message in (
        (fifo, "path_unusable", "not a regular file"),
        (tmp_path, "path_unusable", "not a regular file"),
        (tmp_path / "none.yaml", "path_unusable", "No such file"),
        (big, "contract_invalid", "over 1048576 bytes"),
        (latin, "contract_invalid", "latin.yaml:2:4: PZ100 not UTF-8 text"),
    ):
        with pytest.raises(PraxistError) as caught:
            read_policy(path)
        assert caught.value.code == code
        assert message in caught.value.detail
