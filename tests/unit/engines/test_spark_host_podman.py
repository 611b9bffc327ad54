"""spark-host podman: containers of all users, by their monitors."""

from __future__ import annotations

import getpass
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from facts.state import state_of
from operations.engines.recognise import by_podman, podman_engines
from stacks.definition import load
from tests.unit.on_host import module

podman, engines, ranks = module("engines.podman"), module("engines.engines"), module("launch.ranks")
containers, run = module("engines.containers"), module("run.command")
ID = "read line"  # what the shell that stands for a monitor does
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Podman's folder of containers; podman itself is on the path."""
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    folder = tmp_path / "overlay-containers"
    folder.mkdir()
    return folder


@pytest.fixture
def start(store: Path) -> Iterator[Start]:
    made: list[subprocess.Popen[bytes]] = []

    def monitor(name: str, exit_command: str = "/usr/bin/podman") -> subprocess.Popen[bytes]:
        words = ["-c", ID, "-u", ID, "-r", "/usr/bin/crun", "-b", f"{store}/{ID}/userdata"]
        words += ["-n", name, "--exit-command", exit_command]
        made.append(
            subprocess.Popen(
                ["/usr/bin/conmon", *words], executable="/bin/sh", stdin=subprocess.PIPE
            )
        )
        return made[-1]

    yield monitor
    for one in made:
        one.communicate()


def image(store: Path, name: str) -> None:
    metadata = json.dumps({"image-name": name, "image-id": "1"})
    (store / "containers.json").write_text(json.dumps([{"id": ID, "metadata": metadata}]))


def found() -> list[dict[str, Any]]:
    """Once the monitors have their command lines."""
    until = time.monotonic() + 10
    while not (seen := list(podman.running())) and time.monotonic() < until:
        time.sleep(0.05)
    return seen


def test_a_running_container_is_named_with_its_image_and_its_user(
    store: Path, start: Start
) -> None:
    image(store, "docker.io/vllm/vllm-openai:v0.21")
    start("glm-head")
    start("k8s_pause", "/usr/bin/crio")
    me = getpass.getuser()
    image_name = "vllm/vllm-openai:v0.21"
    assert found() == [{"name": "glm-head", "image": image_name, "user": me, "signs": []}]
    signs = {"image_repositories": ["vllm/vllm-openai"]}
    assert engines.named("glm-head", found()[0]["image"], signs)
    assert not engines.named("glm-head", found()[0]["image"], {"name_patterns": ["dsf-*"]})


def test_a_store_that_says_nothing_of_an_image_leaves_the_name(store: Path, start: Start) -> None:
    start("glm-head")
    assert [one["image"] for one in found()] == [""]
    (store / "containers.json").write_text("[{}")
    assert [one["image"] for one in found()] == [""]


def test_a_host_without_podman_has_none(
    store: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("glm-head")
    assert found()
    monkeypatch.setenv("PATH", "/nowhere")
    assert list(podman.running()) == []


def test_what_podman_starts_during_the_watch_came_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone again at the watch's end."""

    def events(*_: Any, **__: Any) -> tuple[int, str, str]:
        one = start("glm-head")
        found()
        time.sleep(0.2)
        one.communicate()
        return 0, "", ""

    monkeypatch.setattr(ranks, "PODMAN_POLL_S", 0.05)
    monkeypatch.setattr(ranks, "run", events)
    monkeypatch.setattr(containers, "inspect_all", list)
    assert ranks.quiet(1, []) == {"back": [f"glm-head (podman of {getpass.getuser()})"]}
    title = f"glm-head (podman of {getpass.getuser()})"
    assert ranks.quiet(1, [title]) == {"back": []}


def test_an_engine_is_told_from_another_container() -> None:
    known = (load("dsf-lab"),)
    image_name = known[0].recognise.image_repositories[0] + ":x"
    state = state_of(
        {
            "containers": {
                "installed": True,
                "containers": [],
                "podman": [
                    {"name": "a", "image": image_name, "user": "milo", "signs": []},
                    {"name": "prometheus", "image": "", "user": "root", "signs": []},
                    {"name": "lane", "image": "", "user": "kim", "signs": ["has the GPU open"]},
                ],
            }
        }
    )
    assert [stack for _, stack in by_podman(state, known)] == ["dsf-lab", None, None]
    assert podman_engines(state, known) == [
        "a (podman of milo) is an engine (of stack dsf-lab), and only docker's are taken down from "
        "here; stop it: podman stop a as milo",
        "lane (podman of kim) is an engine (has the GPU open), and only docker's are taken down "
        "from here; stop it: podman stop lane as kim",
    ]
