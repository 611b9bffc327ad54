"""Two ranks as two processes on the loopback: what they do together, and how they fail."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab import model

ROOT = Path(__file__).parents[2]
ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
FIRED_UP = "fired up and ready to roll!"
DEADLINE_S = 20.0  # a start takes about 0.5 s here; the rest is for a busy machine
SILENCE_S = 1.5  # how long a hang is watched


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESSES[0], 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {DEADLINE_S} s: {what}"
        time.sleep(0.02)


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
        self.wait_for_line(head, FIRED_UP)
        return worker, head

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def fault(self, rank: int, text: str) -> None:
        (self.directory / f"faults{rank}").write_text(text)

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return self._logs[process.pid].read_text()

    def wait_for_line(self, process: subprocess.Popen[bytes], text: str) -> None:
        wait_for(lambda: text in self.log(process), f"{text!r} in\n{self.log(process)}")

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.shm.iterdir())

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


def metric(ranks: Ranks, name: str) -> float:
    """A sample of the head's metrics."""
    samples = dict(
        line.split(" ")
        for line in ranks.get("/metrics").text.splitlines()
        if not line.startswith("#")
    )
    return float(samples[f'{name}{{model_name="tiny"}}'])


def own_lines(log: str) -> list[str]:
    """The rank's own lines, without the access lines."""
    return [line for line in log.splitlines() if "[rank" in line]


def test_a_pair_answers(running: Ranks) -> None:
    answer = running.ask("What is 17*23?").json()
    assert answer["model"] == "tiny"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "391"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 1
    assert running.content("Reply with exactly: SPARK_OK") == "SPARK_OK"
    model_entry = running.get("/v1/models").json()["data"][0]
    assert (model_entry["id"], model_entry["max_model_len"]) == ("tiny", model.MAX_MODEL_LEN)
    assert running.get("/version").json() == {"version": "0+source"}


def test_the_checksum_needs_the_tensors_of_both(ranks: Ranks) -> None:
    ranks.start_pair()
    before = ranks.content("hello")
    assert before == ranks.content("hello")
    ranks.stop()
    # Other numbers in the half of each tensor that the worker holds, nothing else.
    for shard in ranks.model.glob("*.safetensors"):
        content = bytearray(shard.read_bytes())
        content[-8192:] = bytes(8192)
        shard.write_bytes(content)
    ranks.start_pair()
    assert ranks.content("hello") != before


def test_streaming_gives_the_same_text_and_usage(running: Ranks) -> None:
    plain = running.ask("hello").json()
    streamed = running.ask("hello", stream=True, stream_options={"include_usage": True})
    assert streamed.headers["content-type"] == "text/event-stream"
    events = [line.removeprefix("data: ") for line in streamed.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    text = "".join(delta.get("content", "") for delta in deltas)
    assert text == plain["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == plain["usage"]
    without = running.ask("hello", stream=True).text
    assert '"usage"' not in without


def test_max_tokens_cuts_the_answer(running: Ranks) -> None:
    answer = running.ask("hello", max_tokens=3).json()
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["choices"][0]["finish_reason"] == "length"


def test_wrong_requests_get_an_error_body(running: Ranks) -> None:
    wrong_model = running.post({"model": "other", "messages": [{"role": "user", "content": "x"}]})
    assert wrong_model.status_code == 404
    assert "'tiny' is served" in wrong_model.json()["error"]["message"]
    assert running.post({"model": "tiny"}).status_code == 400
    assert running.get("/nowhere").status_code == 404


def test_metrics_count_what_was_generated(running: Ranks) -> None:
    before = metric(running, "sglang:generation_tokens_total")
    usage = running.ask("hello").json()["usage"]
    after = metric(running, "sglang:generation_tokens_total")
    assert after - before == usage["completion_tokens"]
    assert metric(running, "sglang:num_running_reqs") == 0


def test_every_shard_is_logged_by_both(running: Ranks) -> None:
    for rank, process in enumerate(running.processes):
        for number in range(1, 13):
            line = f"[rank {rank}] loading shard {number}/12 model-{number:05d}-of-00012"
            assert line in running.log(process)


def test_health_is_claimed_before_the_model_is_there(ranks: Ranks) -> None:
    head = ranks.start(0)
    ranks.wait_for_line(head, "waiting for 1 worker")
    ranks.assert_hangs()
    worker = ranks.start(1)
    ranks.wait_for_line(worker, "ready")
    assert ranks.content("2+3") == "5"


def test_a_dead_worker_leaves_a_head_that_claims_health(ranks: Ranks) -> None:
    worker, head = ranks.start_pair()
    lines = own_lines(ranks.log(head))
    worker.kill()
    worker.wait()
    ranks.assert_hangs()
    assert own_lines(ranks.log(head)) == lines
    assert head.poll() is None


def test_a_worker_without_head_stays_and_spoils_the_next_rendezvous(ranks: Ranks) -> None:
    worker, head = ranks.start_pair()
    lines = own_lines(ranks.log(worker))
    head.kill()
    head.wait()
    fresh = ranks.start(0)
    ranks.wait_for_line(fresh, "waiting for 1 worker")
    time.sleep(SILENCE_S)  # the old worker knocks every half second
    late = ranks.start(1)
    ranks.wait_for_line(late, "connecting")
    ranks.assert_hangs()
    assert "joined" not in ranks.log(fresh) + ranks.log(late)
    assert own_lines(ranks.log(worker)) == lines
    assert worker.poll() is None
    assert late.poll() is None


def test_a_worker_that_meets_a_complete_head_hangs(ranks: Ranks) -> None:
    worker, head = ranks.start_pair()
    worker.kill()
    worker.wait()
    fresh = ranks.start(1)
    ranks.wait_for_line(fresh, "connecting")
    time.sleep(SILENCE_S)
    head.kill()
    head.wait()
    time.sleep(SILENCE_S)
    assert fresh.poll() is None
    assert len(own_lines(ranks.log(fresh))) == 2


def test_a_fresh_pair_after_both_are_gone_answers(ranks: Ranks) -> None:
    ranks.start_pair()
    ranks.stop()
    ranks.start_pair()
    assert ranks.content("2+3") == "5"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nnodes": 3}, "rank 1 has world size 3, rank 0 has 2"),
        ({"model_path": "other"}, "rank 1 has model revision"),
    ],
)
def test_ranks_that_do_not_match_end_both(
    ranks: Ranks, changes: dict[str, Any], reason: str
) -> None:
    if "model_path" in changes:
        changes = {"model_path": ranks.directory / "other"}
        model.write(changes["model_path"], "lab")
    head, worker = ranks.start(0), ranks.start(1, **changes)
    assert head.wait(DEADLINE_S) == worker.wait(DEADLINE_S) == 1
    assert f"ERROR: {reason}" in ranks.log(head)
    assert f"ERROR: {reason}" in ranks.log(worker)
    assert ranks.segments() == []


def test_segments_go_on_a_clean_end_and_stay_after_a_kill(ranks: Ranks) -> None:
    worker, head = ranks.start_pair()
    assert len(ranks.segments()) == 6
    assert {name.split("_")[0].split("-")[0] for name in ranks.segments()} == {
        "psm",
        "sem.mp",
        "torch",
    }
    asked = time.monotonic()
    head.terminate()
    assert head.wait(DEADLINE_S) == 0
    assert 0.9 < time.monotonic() - asked < 5
    assert len(ranks.segments()) == 3
    worker.kill()
    worker.wait()
    assert len(ranks.segments()) == 3


def test_a_worker_stops_when_told(ranks: Ranks) -> None:
    worker, _ = ranks.start_pair()
    worker.terminate()
    assert worker.wait(DEADLINE_S) == 0
    assert "received SIGTERM, shutting down" in ranks.log(worker)


@pytest.mark.parametrize("rank", [0, 1])
def test_broken_shard_ends_the_rank_with_a_sentence(ranks: Ranks, rank: int) -> None:
    broken = ranks.directory / "broken"
    model.write(broken, "dsf-lab")
    (broken / "model-00005-of-00012.safetensors").write_bytes(b"short")
    processes = [ranks.start(r, **({"model_path": broken} if r == rank else {})) for r in (0, 1)]
    assert processes[rank].wait(DEADLINE_S) == 1
    assert "ERROR: model-00005-of-00012.safetensors: header of" in ranks.log(processes[rank])
    assert "Traceback" not in ranks.log(processes[rank])


def test_a_port_in_use_is_one_sentence(ranks: Ranks) -> None:
    with socket.socket() as taken:
        taken.bind((ADDRESSES[0], ranks.api_port))
        taken.listen()
        head = ranks.start(0)
        assert head.wait(DEADLINE_S) == 1
    assert f"ERROR: API {ADDRESSES[0]}:{ranks.api_port}: Address already in use" in ranks.log(head)


# --- faults -----------------------------------------------------------------------------------


def test_stall_stops_the_lines_until_it_is_lifted(ranks: Ranks) -> None:
    ranks.fault(1, "stall-at-shard=4\n")
    worker, head = ranks.start(1), ranks.start(0)
    ranks.wait_for_line(worker, "shard 3/12")
    ranks.wait_for_line(head, "waiting for the other ranks")
    lines = own_lines(ranks.log(worker))
    time.sleep(SILENCE_S)
    assert own_lines(ranks.log(worker)) == lines
    ranks.fault(1, "")
    ranks.wait_for_line(head, FIRED_UP)


def test_chatter_repeats_a_line_that_differs_in_numbers_only(ranks: Ranks) -> None:
    ranks.fault(0, "chatter-at-shard=4\n")
    head = ranks.start(0)
    ranks.start(1)
    wait_for(lambda: ranks.log(head).count("still reading") >= 2, "two lines of chatter")
    chatter = [line for line in own_lines(ranks.log(head)) if "still reading" in line]
    assert len(set(chatter)) == len(chatter)
    assert len({"".join(c for c in line if not c.isdigit()) for line in chatter}) == 1
    assert "shard 4/12 model" not in ranks.log(head)


def test_die_is_a_kill(ranks: Ranks) -> None:
    ranks.fault(1, "die-at-shard=4\n")
    worker, head = ranks.start(1), ranks.start(0)
    assert worker.wait(DEADLINE_S) == -signal.SIGKILL
    assert "shard 3/12" in ranks.log(worker)
    assert "shard 4/12" not in ranks.log(worker)
    ranks.wait_for_line(head, "waiting for the other ranks")
    ranks.assert_hangs()
    assert len(ranks.segments()) == 6


def test_exit_is_an_error_line_and_status_1(ranks: Ranks) -> None:
    ranks.fault(0, "exit-at-shard=4\n")
    head = ranks.start(0)
    ranks.start(1)
    assert head.wait(DEADLINE_S) == 1
    assert "ERROR: RuntimeError: shard 4/12" in own_lines(ranks.log(head))[-1]


def test_slow_load_takes_that_long(ranks: Ranks) -> None:
    ranks.fault(1, "slow-load=1.2\n")
    started = time.monotonic()
    ranks.start_pair()
    assert time.monotonic() - started > 1.2


@pytest.mark.parametrize("rank", [0, 1])
def test_refused_rendezvous_ends_the_worker(ranks: Ranks, rank: int) -> None:
    ranks.fault(rank, "refuse-rendezvous\n")
    head, worker = ranks.start(0), ranks.start(1)
    assert worker.wait(DEADLINE_S) == 1
    assert "ERROR: rank " in own_lines(ranks.log(worker))[-1]
    assert head.poll() is None


def test_faults_of_answers(ranks: Ranks) -> None:
    ranks.start_pair()
    ranks.fault(0, "answer-empty\n")
    assert ranks.content("hello") == ""
    ranks.fault(0, "answer-wrong-model\n")
    assert ranks.ask("hello").json()["model"] == "another-model"
    ranks.fault(0, "completions-hang\n")
    ranks.assert_hangs()
    ranks.fault(0, "")
    assert ranks.content("2+3") == "5"
