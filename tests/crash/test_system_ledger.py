"""A ledger that was cut, zeroed, replaced or written by a newer version, under the real `up`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from praxist_zmq.ledger import frame
from praxist_zmq.protocol.envelope import LEDGER_VERSION
from tests.support import oracle
from tests.support.run import Run
from tests.support.run_fixtures import MakeRun


def _down_with_jobs(run: Run, count: int = 3) -> list[str]:
    run.up()
    with run.client() as client:
        jobs = [run.submit(client, f"t{n}", f"exit:{n}").job.job for n in range(count)]
        assert [client.wait(job, 60).exit_code for job in jobs] == list(range(count))
    run.down()
    return jobs


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.segment"))


def _content(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()}


def test_cut_within_its_last_record(make_run: MakeRun) -> None:
    """Every byte is tried on the files alone (`test_ledger_crash`); here the whole system is."""
    run = make_run()
    jobs = _down_with_jobs(run)
    last = _segments(run.paths.ledger)[-1]
    for cut in (1, 7, 60):
        os.truncate(last, last.stat().st_size - cut)
        run.up()
        with run.client() as client:
            assert [client.wait(job, 60).exit_code for job in jobs] == [0, 1, 2]
        run.down()
        last = _segments(run.paths.ledger)[-1]
    oracle.check_ended(run)


def test_zeros_in_the_middle_refuse(make_run: MakeRun) -> None:
    run = make_run()
    _down_with_jobs(run, 12)
    last = _segments(run.paths.ledger)[-1]
    size = last.stat().st_size
    assert size > 3 * 4096
    with last.open("r+b") as stream:
        stream.seek(size // 2 - 2048)
        stream.write(bytes(4096))
    before = _content(run.paths.ledger)
    refused = run.try_up()
    assert refused.status == 74, refused
    assert str(last) in refused.err or last.name in refused.err
    assert _content(run.paths.ledger) == before
    assert not [n for n in run.processes() if n != "registry"]
    assert run.cli("ledger", "verify").status == 74
    copy = run.dir.parent / "copy"
    run.cli("ledger", "repair", "--copy", str(copy))
    assert copy.is_dir()
    assert _content(run.paths.ledger) == before
    shutil.rmtree(run.paths.ledger)
    copy.rename(run.paths.ledger)
    run.up()
    with run.client() as client:
        # Where the jobs overlapped, its end is in what was lost: then its shim's record tells it.
        assert client.wait("j-1", 60).state == "completed"
    run.down()


def test_newer_version_refuses(make_run: MakeRun) -> None:
    run = make_run()
    _down_with_jobs(run)
    first = _segments(run.paths.ledger)[0]
    line, _, rest = first.read_bytes().partition(b"\n")
    known = b'"format_version":%d' % LEDGER_VERSION
    payload = line.split(b" ", 3)[3].replace(known, b'"format_version":999')
    first.write_bytes(frame.encode(0, payload, 0)[0] + rest)
    before = _content(run.paths.ledger)
    refused = run.try_up()
    assert refused.status == 74, refused
    assert "newer" in refused.err
    assert _content(run.paths.ledger) == before


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "empty", "other"])
def test_something_else_in_its_place_refuses(make_run: MakeRun, kind: str) -> None:
    run = make_run()
    _down_with_jobs(run, 1)
    last = _segments(run.paths.ledger)[-1]
    kept = run.dir.parent / "kept"
    last.rename(kept)
    if kind == "fifo":
        os.mkfifo(last)
    elif kind == "directory":
        last.mkdir()
    elif kind == "link":
        last.symlink_to(kept)
    elif kind == "other":
        last.write_bytes(b"#!/bin/sh\necho not a ledger\n" * 50)
    else:
        last.touch()
    content = kept.read_bytes()
    refused = run.try_up()
    assert refused.status in (73, 74), refused
    assert kept.read_bytes() == content
    assert not [n for n in run.processes() if n != "registry"]


@pytest.mark.parametrize("repaired", [False, True])
def test_a_damaged_ledger_of_the_registry_is_moved_aside(make_run: MakeRun, repaired: bool) -> None:
    """The steps of docs/operations.md."""
    run = make_run(sim="gpus=1,memory=16")
    run.up()
    ledger = run.host_dir / "ledger"
    with run.client() as client:
        gate = run.evaluator(f"wait:{run.gate('go')}", "exit:3")
        job = client.submit(
            tag="holds", peer="p", command=gate, cwd="/", environment={}, profile="gpu"
        ).job.job
        run.until_started(f"{job}.1")
    run.kill_all(registry=True)
    last = _segments(ledger)[-1]
    lines = last.read_bytes().rstrip(b"\0").splitlines(keepends=True)
    lines[-2] = b"!" * (len(lines[-2]) - 1) + b"\n"
    last.write_bytes(b"".join(lines))
    refused = run.try_up()
    assert refused.status == 74, refused
    assert run.cli("ledger", "verify", str(ledger)).status == 74
    copy = run.host_dir.parent / "registry-copy"
    if repaired:
        run.cli("ledger", "repair", "--copy", str(copy), str(ledger))
    ledger.rename(run.host_dir / "ledger.damaged")
    if repaired:
        copy.rename(ledger)
    run.up()
    with run.client() as client:
        waits = client.submit(
            tag="waits", peer="p", command=["true"], cwd="/", environment={}, profile="gpu"
        ).job.job
        devices = client.devices()
        assert client.show(waits).state == "queued", devices
        run.open_gate("go")
        assert client.wait(job, 60).exit_code == 3
        assert client.wait(waits, 60).exit_code == 0
    run.down()
