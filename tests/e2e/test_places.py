"""Where a run may live, and where it refuses to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun


def _works(run: Run) -> None:
    run.up()
    assert run.launch("t", "exit:3").status == 3
    run.down()
    oracle.check_ended(run)


def test_a_deep_directory(make_run: MakeRun) -> None:
    run = make_run("/".join(["d" * 30] * 9))
    assert len(str(run.dir)) > 250
    _works(run)


def test_a_relative_directory_behind_a_link(make_run: MakeRun) -> None:
    run = make_run()
    (run.dir.parent / "link").symlink_to(run.dir)
    words = ["--run-dir", "link/../link/.", "up", "--detach", "--config", str(run.contract)]
    first = run.start(*words)
    assert first.wait(timeout=30) == 0
    assert run.launch("t", "exit:3").status == 3
    assert run.paths.endpoint.is_file()
    run.down()
    oracle.check_ended(run)


def test_an_odd_name(make_run: MakeRun) -> None:
    _works(make_run("run with space, \U0001f389 and 'quotes'"))


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A directory that not even root may write into."""
    place = tmp_path / "sealed"
    place.mkdir()
    place.chmod(0o555)
    if os.getuid() == 0:
        place = Path("/proc/sys/kernel")
    return place


def test_a_read_only_directory(make_run: MakeRun, sealed: Path) -> None:
    run = make_run()
    refused = run.cli("--run-dir", str(sealed), "up", "--detach")
    assert refused.status == 73, refused
    assert str(sealed) in refused.err


def test_a_file_in_its_place(make_run: MakeRun) -> None:
    run = make_run()
    plain = run.dir.parent / "plain"
    plain.write_text("kept")
    refused = run.cli("--run-dir", str(plain), "up", "--detach")
    assert refused.status == 73, refused
    assert plain.read_text() == "kept"


@pytest.mark.parametrize("kind", ["link", "open", "foreign", "file"])
def test_an_unsafe_runtime_directory(
    make_run: MakeRun, tmp_path: Path, host_directory: Path, kind: str
) -> None:
    run = make_run()
    root = host_directory / "sockets"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if kind == "link":
        root.symlink_to(elsewhere)
    elif kind == "file":
        root.write_text("kept")
    else:
        root.mkdir(mode=0o700)
        if kind == "open":
            root.chmod(0o777)
        elif os.getuid() == 0:
            os.chown(root, 12345, 12345)
        else:
            pytest.skip("only root can give a directory to another user")
    refused = run.cli(
        "up", "--detach", "--config", str(run.contract), env={"PRAXIST_ZMQ_RUNTIME_DIR": str(root)}
    )
    assert refused.status == 73, refused
    assert str(root) in refused.err
    assert "PRAXIST_ZMQ_RUNTIME_DIR=DIR" in refused.err, "the way out is named"
    assert list(elsewhere.iterdir()) == []
    assert not run.processes()


@pytest.mark.parametrize("name", ["owner.lock", "ledger.lock", "endpoint.json", "status.json"])
def test_a_link_where_our_file_should_be(make_run: MakeRun, name: str) -> None:
    run = make_run()
    _works(run)
    target = run.dir.parent / "target"
    target.write_text("kept")
    place = run.paths.scheduler / name
    place.unlink(missing_ok=True)
    place.symlink_to(target)
    command = run.try_up()
    assert command.status in (0, 73, 74), command
    if command.status == 0:
        run.down()
    assert target.read_text() == "kept"


def test_the_host_scope_is_lost_while_down(make_run: MakeRun) -> None:
    run = make_run(sim="gpus=1,memory=80")
    run.up()
    with run.client() as client:
        held = run.submit(client, "h", f"wait:{run.gate('go')}", profile="gpu").job.job
        queued = run.submit(client, "q", "exit:0", profile="gpu").job.job
        run.until_started(f"{held}.1")
    run.kill_all(registry=True)
    for path in run.host_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    run.up()
    with run.client() as client:
        assert client.show(held).state == "running"
        assert client.show(queued).state == "queued"
        run.open_gate("go")
        assert client.wait(held, 60).state == "completed"
        assert client.wait(queued, 60).state == "completed"
    assert oracle.shared_devices([run]) == []
    run.down()
    oracle.check_ended(run)
