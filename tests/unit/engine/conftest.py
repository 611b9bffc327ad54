"""Two ranks as two processes on the loopback, for the tests of this folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.stacks import model

ROOT = Path(__file__).parents[3]
ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
DEADLINE_S = 20.0  # a start takes about 0.5 s here; the rest is for a busy machine
SILENCE_S = 1.5  # how long a hang is watched


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESSES[0], 0))
        return int(probe.getsockname()[1])


class Ranks:
    """The processes of one test; every start gets a log and a faults file of its own rank."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.model = directory / "model"
        self.shm = directory / "shm"
        self.shm.mkdir()
        self.api_port, self.master_port = free_port(), free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}
        model.write(self.model, "dsf-lab")

    def start(self, rank: int, **changes: object) -> subprocess.Popen[bytes]:
        settings = {
            "rank": rank,
            "nnodes": 2,
            "master_addr": ADDRESSES[0],
            "master_port": self.master_port,
            "host": ADDRESSES[0],
            "port": self.api_port,
            "model_path": self.model,
            "served_model_name": "tiny",
            "bind_ip": ADDRESSES[rank],
            "load_seconds": 0.2,
            "faults_file": self.directory / f"faults{rank}",
        }
        arguments = [
            f"--{name.replace('_', '-')}={value}" for name, value in {**settings, **changes}.items()
        ]
        log = self.directory / f"rank{rank}-{len(self.processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "lab.engine", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "LAB_ENGINE_SHM_DIR": str(self.shm)},
            )
        self.processes.append(process)
        self._logs[process.pid] = log
        return process

    def start_pair(self) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
        """Worker and head, ready to answer."""
        head, worker = self.start(0), self.start(1)
        self.wait_ready(head)
        return worker, head

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def fault(self, rank: int, text: str) -> None:
        (self.directory / f"faults{rank}").write_text(text)

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return self._logs[process.pid].read_text()

    def lines(self, process: subprocess.Popen[bytes]) -> list[str]:
        """The rank's own lines, without the access lines."""
        return [line for line in self.log(process).splitlines() if "[rank" in line]

    def wait_for_line(self, process: subprocess.Popen[bytes], text: str, times: int = 1) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.log(process).count(text) < times:
            assert time.monotonic() < deadline, f"no {text!r} in\n{self.log(process)}"
            time.sleep(0.02)

    def wait_ready(self, head: subprocess.Popen[bytes]) -> None:
        self.wait_for_line(head, "fired up and ready to roll!")

    def wait_in_silence(self) -> None:
        """Long enough for a rank to say or do what it must not."""
        time.sleep(SILENCE_S)

    def status(self, process: subprocess.Popen[bytes]) -> int:
        """Exit status of a process that is about to end."""
        return process.wait(DEADLINE_S)

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.shm.iterdir())

    def metric(self, name: str) -> float:
        """A sample of the head's metrics."""
        rows = [line for line in self.get("/metrics").text.splitlines() if line[0] != "#"]
        return float(dict(row.split(" ") for row in rows)[f'{name}{{model_name="tiny"}}'])

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://{ADDRESSES[0]}:{self.api_port}{path}", trust_env=False)

    def post(self, body: dict[str, Any], timeout_s: float = DEADLINE_S) -> httpx.Response:
        url = f"http://{ADDRESSES[0]}:{self.api_port}/v1/chat/completions"
        return httpx.post(url, json=body, timeout=timeout_s, trust_env=False)

    def ask(self, question: str, timeout_s: float = DEADLINE_S, **options: Any) -> httpx.Response:
        messages = [{"role": "user", "content": question}]
        return self.post({"model": "tiny", "messages": messages, **options}, timeout_s)

    def content(self, question: str) -> str:
        return str(self.ask(question).json()["choices"][0]["message"]["content"])

    def assert_hangs(self) -> None:
        """Completions do not come back, yet the head says that all is well."""
        with pytest.raises(httpx.ReadTimeout):
            self.ask("anybody there?", timeout_s=SILENCE_S)
        assert self.get("/health").status_code == 200
        assert self.get("/v1/models").json()["data"][0]["id"] == "tiny"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    started = Ranks(tmp_path)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """A pair that answers, shared by the tests that leave it as it is."""
    started = Ranks(tmp_path_factory.mktemp("pair"))
    started.start_pair()
    yield started
    started.stop()
