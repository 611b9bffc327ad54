"""What is asked of a host before the old engine goes, and what it finds of a compose project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.launch.needs import request
from stacks.definition import load
from stacks.render import FabricFacts, RankSpec, rank_spec
from stacks.schema import Stack
from tests.plan.made_pair import cluster
from tests.unit.adopt.daemon import Daemon, serving
from tests.unit.on_host import module

needs, containers = module("launch.needs"), module("engines.containers")
HOME = "/home/milo/ds4-f-mia-anemll-0731-mia-aug26"
DIGEST = "sha256:" + "a" * 64


def spec(stack: Stack) -> RankSpec:
    return rank_spec(stack, cluster(), 0, FabricFacts("bond0", "10.0.0.1", "10.0.0.0/24", (), {}))


def test_a_compose_stack_asks_for_its_files_and_its_digest() -> None:
    stack = load("dsf-0731")
    asked = request(stack, spec(stack))
    assert asked["compose"]["files"] == (f"{HOME}/docker-compose.dspark.yml", f"{HOME}/.env.dspark")
    words = " ".join(asked["compose"]["words"])
    assert f"--env-file {HOME}/.env.dspark --file {HOME}/docker-compose.dspark.yml" in words
    assert asked["compose"]["digest"] == stack.image_reference.partition("@")[2]
    assert (asked["kept"], asked["gpus"]) == (None, False)


def test_a_stack_that_is_run_asks_for_its_devices_and_the_gpu() -> None:
    stack = load("glm53-sglang-nvfp4")
    asked = request(stack, spec(stack))
    assert (asked["compose"], asked["devices"], asked["gpus"]) == (None, ["/dev/infiniband"], True)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A host whose `docker compose config` says what is in the file `said`."""
    (tmp_path / "docker").write_text(f'#!/bin/sh\n[ "$2" = version ] || cat {tmp_path}/said\n')
    (tmp_path / "docker").chmod(0o755)
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with serving(tmp_path) as (made, path):
        monkeypatch.setattr(containers, "SOCKET", path)
        made.images["engine:0731"] = {"Id": "sha256:1", "RepoDigests": [f"x/engine@{DIGEST}"]}
        yield made


def found(tmp_path: Path, *files: str, **service: Any) -> list[str]:
    said = {"services": {"vllm": {"image": "engine:0731", **service}}}
    (tmp_path / "said").write_text(json.dumps(said))
    wanted = {"words": [], "files": [f"{tmp_path}/{name}" for name in files], "digest": DIGEST}
    return list(needs.compose_faults(wanted))


@pytest.mark.usefixtures("daemon")
def test_a_project_that_has_everything_lacks_nothing(tmp_path: Path) -> None:
    mount = {"type": "bind", "source": str(tmp_path)}
    device = {"source": "/dev/null"}
    assert found(tmp_path, "compose.yaml", volumes=[mount], devices=[device]) == []


@pytest.mark.usefixtures("daemon")
def test_each_thing_that_a_project_lacks_is_named(tmp_path: Path) -> None:
    gone = found(tmp_path, "compose.yaml", ".env.dspark")
    assert gone == [f"no file {tmp_path}/.env.dspark"]
    mount = {"type": "bind", "source": f"{tmp_path}/hot-fixes"}
    lacking = found(
        tmp_path, "compose.yaml", volumes=[mount], devices=["/dev/none:/dev/none"], image="other:1"
    )
    assert lacking == [
        "service vllm: its image other:1 is not on this host",
        f"service vllm: {tmp_path}/hot-fixes, which it mounts, is gone",
        "service vllm: no device /dev/none",
    ]


def test_a_tag_that_leads_to_another_image_is_named_before_the_teardown(
    daemon: Daemon, tmp_path: Path
) -> None:
    other = "sha256:" + "b" * 64
    daemon.images["engine:0731"] = {"Id": other, "RepoDigests": [f"x/engine@{other}"]}
    assert found(tmp_path, "compose.yaml") == [
        f"its compose file names engine:0731 ({other}); the stack's lock names {DIGEST}"
    ]


def test_a_host_without_the_plugin_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert found(tmp_path, "compose.yaml") == [
        "docker has no compose plugin; install docker-compose-plugin"
    ]
