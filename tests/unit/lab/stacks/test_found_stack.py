"""The stack that no file of this project knows: its program, and that nothing recognises it."""

from __future__ import annotations

import fnmatch
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import yaml

from lab.common.paths import LAB, REPOSITORY
from lab.stacks import found, model

DEADLINE_S = 20.0
PROGRAM = LAB / "stacks" / "found" / "vllm"


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(rank: int, *words: str) -> subprocess.Popen[bytes]:
    environment = {"PYTHONPATH": str(LAB), "VLLM_HOST_IP": f"127.0.0.{rank + 1}"}
    line = [sys.executable, "-SB", str(PROGRAM), "serve", *words, f"--node-rank={rank}"]
    return subprocess.Popen(line, env=os.environ | environment)


def answer(url: str) -> str:
    question = {"model": found.MODEL, "messages": [{"role": "user", "content": "17*23"}]}
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            reply = httpx.post(url, json=question, timeout=DEADLINE_S, trust_env=False)
            return str(reply.raise_for_status().json()["choices"][0]["message"]["content"])
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_two_ranks_answer_under_the_command_line_of_the_field(tmp_path: Path) -> None:
    model.write(tmp_path / "model", "dsf-lab")
    api, master = port(), port()
    words = [
        *(str(tmp_path / "model"), f"--served-model-name={found.MODEL}", "--nnodes=2"),
        *("--tensor-parallel-size=2", "--distributed-executor-backend=mp"),
        *("--master-addr=127.0.0.1", f"--master-port={master}", f"--port={api}"),
    ]
    ranks = [started(1, *words, "--headless"), started(0, *words)]
    try:
        assert answer(f"http://127.0.0.1:{api}/v1/chat/completions") == "391"
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_a_worker_that_would_serve_the_api_is_refused(tmp_path: Path) -> None:
    words = ("--served-model-name=x", "--nnodes=2", "--master-addr=127.0.0.1", "--master-port=1")
    assert started(1, str(tmp_path), *words).wait(DEADLINE_S) == 2


def test_no_stack_file_recognises_it() -> None:
    (compose,) = [f.text for f in found.head_files() if f.path.endswith(".yml")]
    assert "image: vllm-node:${TAG" in compose
    for path in sorted((REPOSITORY / "files" / "stacks").glob("*.yaml")):
        stack = yaml.safe_load(path.read_text())
        signs = stack.get("recognise") or {}
        assert found.IMAGE.rpartition(":")[0] not in signs.get("image_repositories", [])
        assert "night-lane" not in signs.get("compose_projects", [])
        for pattern in signs.get("name_patterns", []):
            for name in found.CONTAINERS:
                assert not fnmatch.fnmatchcase(name, pattern), f"{path.name}: {pattern}"


def test_each_file_of_the_head_names_what_the_next_one_needs() -> None:
    texts = {Path(file.path).name: file.text for file in [*found.head_files(), found.crontab()]}
    assert found.WATCHDOG in texts["root"]
    assert found.SCRIPT in texts["lane-guard.sh"]
    assert "docker-compose.lane.yml" in texts["start-lane.sh"]
    assert "--env-file .env.lane" in texts["start-lane.sh"]
    assert "lane-worker" in texts["start-lane.sh"]
    assert found.IMAGE == "vllm-node:0731"
    assert "TAG=0731\n" in texts[".env.lane"]
