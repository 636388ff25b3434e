"""`praxist-zmq binding check` with real children, on fake driver libraries that the test compiles.

The fakes stand in for NVIDIA's two libraries, which this machine lacks; everything between them,
the Python binding of NVML too, is the real thing. `test_device.py` is for a host with devices.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from praxist_zmq.binding import ASSIGNED, MASKS, NARROWED
from tests.support.run import ROOT, Command
from tests.support.wait import wait_until

SOURCES = Path(__file__).parent / "driver"
ONE = "GPU-11111111-1111-4111-8111-111111111111"
TWO = "GPU-22222222-2222-4222-8222-222222222222"
KEYS = {"format_version", "kind", "verdict", "exit_code", "source", "devices", "notes"}
DEVICE_KEYS = {"uuid", "verdict", "detail", "index", "pid", "cuda_uuid", "seen_on"}
LIBRARIES = {"fake_cuda.c": "libcuda.so.1", "fake_nvml.c": "libnvidia-ml.so.1"}


class FakeDriver:
    """The fake libraries, and the command under them."""

    def __init__(self, libraries: Path, file: Path) -> None:
        self.libraries = libraries
        self.file = file
        self.file.touch()

    def environment(self, **variables: str) -> dict[str, str]:
        """The command's environment."""
        kept = {name: os.environ[name] for name in ("PATH", "PRAXIST_ZMQ_RUNTIME_DIR")}
        paths = {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(self.libraries)}
        return {**kept, **paths, "FAKE_DRIVER": str(self.file), **variables}

    def start(self, *options: str, **variables: str) -> subprocess.Popen[str]:
        """Start the check."""
        return subprocess.Popen(
            [sys.executable, "-m", "praxist_zmq", "binding", "check", *options],
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def check(self, *options: str, **variables: str) -> Command:
        """The check, to its end, which leaves no child."""
        process = self.start(*options, **variables)
        out, err = process.communicate(timeout=60)
        assert self.children() == []
        return Command(process.returncode, out, err)

    def document(self, *options: str, **variables: str) -> dict[str, Any]:
        """The check's document, which agrees with the exit status."""
        done = self.check("--json", *options, **variables)
        assert done.document["exit_code"] == done.status, done
        assert set(done.document) == KEYS
        assert done.document["kind"] == "binding_check"
        assert all(set(device) == DEVICE_KEYS for device in done.document["devices"])
        return done.document

    def children(self) -> list[int]:
        """Live children of checks under this fake."""
        mark = f"FAKE_DRIVER={self.file}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if mark in (entry / "environ").read_bytes().split(b"\0") and any(
                    word.endswith(b"cuda_child.py") for word in words
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled fakes."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the fake driver libraries with")
    folder = tmp_path_factory.mktemp("driver")
    for source, library in LIBRARIES.items():
        words = [
            compiler,
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            folder / library,
        ]
        subprocess.run([*words, SOURCES / source], check=True, timeout=60)
    return folder


@pytest.fixture
def driver(libraries: Path, tmp_path: Path) -> Iterator[FakeDriver]:
    """A fake driver without contexts; ends what a failed test left."""
    fake = FakeDriver(libraries, tmp_path / "contexts")
    yield fake
    for pid in fake.children():
        os.kill(pid, signal.SIGKILL)


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """Verdict by device."""
    return {device["uuid"]: device["verdict"] for device in document["devices"]}


def assigned(value: str) -> dict[str, str]:
    """The variables of an attempt."""
    return dict.fromkeys((ASSIGNED, *MASKS), value)


# -- verified -----------------------------------------------------------------------------------


def test_each_assigned_device_is_verified_in_order(driver: FakeDriver) -> None:
    document = driver.document(**assigned(f"{TWO},{ONE}"))
    assert [(d["uuid"], d["verdict"], d["index"]) for d in document["devices"]] == [
        (TWO, "verified", 1),
        (ONE, "verified", 0),
    ]
    assert (document["verdict"], document["exit_code"]) == ("verified", 0)
    assert (document["source"], document["notes"]) == (ASSIGNED, [])
    for device in document["devices"]:
        assert (device["cuda_uuid"], device["seen_on"]) == (device["uuid"], [device["uuid"]])
    contexts = [line.split() for line in driver.file.read_text().splitlines()]
    assert sorted(contexts) == sorted([d["uuid"], str(d["pid"])] for d in document["devices"])


def test_named_devices_are_checked_without_a_scheduler(driver: FakeDriver) -> None:
    document = driver.document("--uuid", TWO, "--uuid", TWO, CUDA_VISIBLE_DEVICES="0")
    assert verdicts(document) == {TWO: "verified"}
    assert document["source"] == "named"


def test_device_0_alone_proves_least_and_it_says_so(driver: FakeDriver) -> None:
    document = driver.document("--uuid", ONE)
    assert document["verdict"] == "verified"
    assert ["GPU 0" in note for note in document["notes"]] == [True]


def test_a_narrowed_worker_checks_its_part(driver: FakeDriver) -> None:
    variables = {**assigned(TWO), ASSIGNED: f"{ONE},{TWO}", NARROWED: TWO}
    assert verdicts(driver.document(**variables)) == {TWO: "verified"}


def test_missing_masks_are_no_obstacle(driver: FakeDriver) -> None:
    assert verdicts(driver.document(**{ASSIGNED: TWO})) == {TWO: "verified"}


def test_a_cpu_attempt_has_nothing_to_check(driver: FakeDriver) -> None:
    document = driver.document(**assigned(""))
    assert (document["verdict"], document["devices"]) == ("verified", [])
    assert "nothing to check" in document["notes"][0]


# -- not verified -------------------------------------------------------------------------------


def test_a_child_that_nvml_shows_elsewhere_is_a_conflict(driver: FakeDriver) -> None:
    document = driver.document(**assigned(ONE), FAKE_CUDA="other")
    (device,) = document["devices"]
    assert (device["verdict"], document["exit_code"]) == ("conflict", 1)
    assert (device["cuda_uuid"], device["seen_on"]) == (ONE, [TWO])
    assert TWO in device["detail"]


def test_a_child_whose_driver_names_another_device_is_a_conflict(driver: FakeDriver) -> None:
    (device,) = driver.document(**assigned(ONE), FAKE_CUDA="wrong")["devices"]
    assert (device["verdict"], device["cuda_uuid"]) == ("conflict", TWO)


def test_a_mask_that_is_not_honoured_is_a_conflict(driver: FakeDriver) -> None:
    document = driver.document(**assigned(f"{ONE},{TWO}"), FAKE_CUDA="many")
    assert verdicts(document) == {ONE: "conflict", TWO: "conflict"}
    assert "2 devices" in document["devices"][0]["detail"]


def test_a_pid_that_nvml_does_not_show_is_unobserved(driver: FakeDriver) -> None:
    document = driver.document(**assigned(ONE), FAKE_CUDA="hidden")
    assert (verdicts(document), document["exit_code"]) == ({ONE: "unobserved"}, 79)
    assert "pid namespace" in document["devices"][0]["detail"]


def test_processes_that_nvml_does_not_tell_are_unobserved(driver: FakeDriver) -> None:
    document = driver.document(**assigned(ONE), FAKE_NVML="denied")
    assert verdicts(document) == {ONE: "unobserved"}
    assert "processes unknown" in document["devices"][0]["detail"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [("init", "cuInit: error 999, unknown"), ("crash", "SIGSEGV"), ("chatter", "no answer")],
)
def test_a_child_that_gets_no_context_has_failed(driver: FakeDriver, fault: str, told: str) -> None:
    document = driver.document(**assigned(ONE), FAKE_CUDA=fault)
    assert (verdicts(document), document["exit_code"]) == ({ONE: "failed"}, 1)
    assert told in document["devices"][0]["detail"]


def test_a_device_that_is_not_there_has_failed_and_the_others_are_checked(
    driver: FakeDriver,
) -> None:
    gone = TWO.replace("2", "3")
    document = driver.document(**assigned(f"{gone},{TWO}"))
    assert verdicts(document) == {gone: "failed", TWO: "verified"}
    assert document["verdict"] == "failed"


def test_an_opaque_name_is_passed_on_and_not_judged(driver: FakeDriver) -> None:
    document = driver.document("--uuid", "MIG-5c89a1d0-3f1c-5e7b-9a44-2b6d8f0e1c33")
    assert document["verdict"] == "failed", "the fake driver has no such device"
    assert "no CUDA-capable device" in document["devices"][0]["detail"]


# -- bounded ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [{"FAKE_CUDA": "hang"}, {"FAKE_NVML": "hang"}])
def test_a_driver_that_hangs_ends_the_check_in_time(
    driver: FakeDriver, fault: dict[str, str]
) -> None:
    document = driver.document("--timeout", "1s", **assigned(f"{ONE},{TWO}"), **fault)
    assert set(verdicts(document).values()) == {"timeout"}
    assert document["exit_code"] == 124


def test_nvml_that_hangs_later_ends_the_check_in_time(driver: FakeDriver) -> None:
    document = driver.document("--timeout", "2s", **assigned(TWO), FAKE_NVML="late")
    assert (verdicts(document), document["exit_code"]) == ({TWO: "timeout"}, 124)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_check_that_is_ended_leaves_no_child(driver: FakeDriver, number: signal.Signals) -> None:
    process = driver.start(**assigned(f"{ONE},{TWO}"), FAKE_CUDA="hang")
    wait_until(lambda: len(driver.children()) == 2, "both children")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number), (out, err)
    assert "Traceback" not in err
    wait_until(lambda: not driver.children(), "the children to be gone")


# -- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES.values())
def test_a_missing_library_is_no_driver(
    driver: FakeDriver, libraries: Path, tmp_path: Path, library: str
) -> None:
    (other,) = set(LIBRARIES.values()) - {library}
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / other).symlink_to(libraries / other)
    driver.libraries = tmp_path / "part"
    done = driver.check(**assigned(ONE))
    assert done.status == 69
    assert done.err.startswith("unavailable  no NVIDIA driver answers here")
    assert done.out == ""


def test_a_driver_that_reloads_is_no_driver(driver: FakeDriver) -> None:
    done = driver.check("--json", **assigned(ONE), FAKE_NVML="reload")
    assert (done.status, done.document["code"]) == (69, "no_driver")
    assert "mismatch" in done.document["detail"]


def test_a_conflicting_mask_is_told_before_anything_is_started(driver: FakeDriver) -> None:
    done = driver.check(**{**assigned(ONE), "CUDA_VISIBLE_DEVICES": "0"})
    assert done.status == 1
    assert done.err.startswith("conflict  ")
    assert "CUDA_VISIBLE_DEVICES is '0'" in done.err
    assert driver.file.read_text() == ""


@pytest.mark.parametrize("value", [ONE, ""])
def test_another_attempts_device_is_not_touched(driver: FakeDriver, value: str) -> None:
    done = driver.check("--uuid", TWO, **assigned(value))
    assert done.status == 77
    assert driver.file.read_text() == ""


@pytest.mark.parametrize(
    "options", [(), ("--uuid", "0"), ("--uuid", ""), ("--uuid", f"{ONE},{TWO}")]
)
def test_what_names_no_device_is_a_wrong_usage(
    driver: FakeDriver, options: tuple[str, ...]
) -> None:
    assert driver.check(*options).status == 2


def test_simulated_devices_have_no_driver(driver: FakeDriver) -> None:
    done = driver.check(**assigned("GPU-00000000-0000-4000-8000-000000000001"))
    assert done.status == 69
    assert "SIMULATED" in done.err


# -- for people ---------------------------------------------------------------------------------


def test_the_text_fits_80_columns(driver: FakeDriver) -> None:
    done = driver.check("-o", "table", **assigned(f"{ONE},{TWO}"), FAKE_CUDA="other")
    lines = done.out.splitlines()
    assert max(len(line) for line in lines) <= 80, done.out
    assert ONE in done.out
    assert "why" in done.out
    assert done.err == "conflict  0 of 2 devices verified\n"


def test_a_pipe_gets_tabs_and_whole_names(driver: FakeDriver) -> None:
    done = driver.check(**assigned(f"{ONE},{TWO}"))
    head, *rows = [line.split("\t") for line in done.out.splitlines()]
    assert head == ["VERDICT", "GPU", "UUID", "PID", "DETAIL"]
    assert [row[:3] for row in rows] == [["verified", "0", ONE], ["verified", "1", TWO]]
    assert driver.check("-q", **assigned(TWO)).out == f"{TWO}\n"
