"""A real gateway process, and a fake of the broker behind it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from praxist_zmq.host.liveness import boot_id, own_namespace, start_ticks
from praxist_zmq.host.paths import RunPaths, RunSockets
from praxist_zmq.protocol.envelope import Json
from praxist_zmq.transport.hop import HopServer
from praxist_zmq.transport.poller import Poller

SECRET = "ab" * 32
Answer = Callable[[Json], Json | None]


def own_identity() -> Json:
    return {
        "boot_id": boot_id(),
        "pid_namespace": own_namespace(),
        "pid": os.getpid(),
        "start_ticks": start_ticks(os.getpid()),
    }


def pong_or(answer: Answer, epoch: int = 1) -> Answer:
    """Answers pings, hands the rest to `answer`."""

    def both(request: Json) -> Json | None:
        if request["kind"] == "ping":
            return {"kind": "pong", "run_id": "run", "epoch": epoch}
        return answer(request)

    return both


class FakeBroker:
    """A fake of the broker: a hop server in a thread that answers by a function."""

    def __init__(self, hop: Path, answer: Answer) -> None:
        self.requests: list[Json] = []
        self.users: list[bytes] = []
        self.batches = 0
        self._answer = answer
        self._hop = hop
        self._publish: list[tuple[bytes, bytes]] = []
        self._late: list[tuple[bytes, bytes, bytes]] = []
        self._stop = threading.Event()
        self._ready = threading.Event()
        self.audience = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    def publish(self, topic: bytes, body: bytes) -> None:
        self._publish.append((topic, body))

    def _serve(self) -> None:
        server = HopServer(self._hop, bytes.fromhex(SECRET))
        poller = Poller()
        poller.register(server)
        gateway = b""
        self._ready.set()
        while not self._stop.is_set():
            poller.wait(20)
            for message in server.drain():
                gateway = message.address
                if message.channel == b"audience":
                    self.audience = message.parts[:1] == [b"1"]
                    continue
                self.batches += 1
                server.send(gateway, b"replies", self._answer_all(message.parts))
            while self._publish and gateway:
                server.send(gateway, b"publish", self._publish.pop(0))
        server.close()

    def _answer_all(self, parts: list[bytes]) -> list[bytes]:
        replies: list[bytes] = []
        for routing_id, user, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            envelope = json.loads(body)
            self.users.append(user)
            self.requests.append(envelope)
            reply = self._answer(envelope["request"])
            if reply is not None:
                full = {"request_id": envelope["request_id"], "reply": reply}
                replies += [routing_id, json.dumps(full).encode()]
        return replies

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


class Site:
    """A run directory, its socket directory and a gateway process."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(dir="/tmp", prefix="pz"))
        self.base.chmod(0o755)
        self.run = self.base / "run"
        self.sockets = self.base / RunSockets.of(RunPaths.of(self.run)).directory.name
        self.sockets.mkdir(mode=0o700)
        (self.run / "resource_scheduler" / "log").mkdir(parents=True, mode=0o700)
        self.front, self.events = self.sockets / "front.sock", self.sockets / "events.sock"
        self.core = self.sockets / "core.sock"
        self.hop = self.sockets / "hop.sock"
        self.gateway: subprocess.Popen[bytes] | None = None
        self.brokers: list[FakeBroker] = []

    def broker(self, answer: Answer) -> FakeBroker:
        self.brokers.append(FakeBroker(self.hop, answer))
        return self.brokers[-1]

    def start_gateway(self, descriptors: int | None = None) -> int:
        """Start it, wait until it is ready. Returns its process id."""
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)

        def limit() -> None:
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        self.gateway = subprocess.Popen(
            [sys.executable, "-m", "praxist_zmq.service.gateway"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=(self.sockets / "gateway.err").open("ab"),
            close_fds=False,
            preexec_fn=limit,
        )
        os.close(writing)
        assert self.gateway.stdin is not None
        self.gateway.stdin.write(json.dumps(self._config(writing)).encode() + b"\n")
        self.gateway.stdin.flush()
        with os.fdopen(reading, "rb") as ready:
            line = ready.readline()
        assert b'"ready"' in line, (line, (self.sockets / "gateway.err").read_text())
        return self.gateway.pid

    def _config(self, ready_fd: int) -> Json:
        return {
            "run_dir": str(self.run),
            "run_id": "run",
            "front": str(self.front),
            "events": str(self.events),
            "core": str(self.core),
            "samples": str(self.sockets / "samples.sock"),
            "host_dir": str(self.sockets / "host"),
            "secret": SECRET,
            "ready_fd": ready_fd,
            "supervisor": own_identity(),
        }

    def write_endpoint(self, **changes: object) -> None:
        value = {
            "format_version": "1.0",
            "endpoint": f"ipc://{self.front}",
            "events_endpoint": f"ipc://{self.events}",
            "protocol_version": 1,
            "epoch": 1,
            "run_id": "run",
            "run_dir": str(self.run),
            "server_key": None,
            "supervisor": own_identity(),
            "started_at": "2026-01-01T00:00:00Z",
            **changes,
        }
        (self.run / "resource_scheduler" / "endpoint.json").write_text(json.dumps(value))

    def end_gateway(self) -> int:
        """Close its stdin, as the end of the supervisor does. Returns the exit status."""
        assert self.gateway is not None
        assert self.gateway.stdin is not None
        self.gateway.stdin.close()
        return self.gateway.wait(60)

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()
        if self.gateway is not None:
            self.gateway.kill()
            self.gateway.wait()
        shutil.rmtree(self.base)


@contextmanager
def site() -> Iterator[Site]:
    made = Site()
    try:
        yield made
    finally:
        made.close()
