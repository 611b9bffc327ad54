"""spark-host containers: which of them behave like engines, read where they run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.on_host import module

signs, outside = module("engines.signs"), module("engines.outside")
GIVEN = "VLLM_API_KEY=s3cret"


def made(env: tuple[str, ...] = (), command: tuple[str, ...] = ("sleep",), **host: Any) -> Any:
    config = {"Env": [GIVEN, *env], "Entrypoint": None, "Cmd": list(command)}
    usual = {"IpcMode": "private", "ShmSize": 64 << 20, "NetworkMode": "bridge", "Runtime": "runc"}
    return {"Config": config, "HostConfig": {**usual, **host}}


ALL = "NVIDIA_VISIBLE_DEVICES=all"


@pytest.mark.parametrize(
    ("container", "said"),
    [
        (
            made(DeviceRequests=[{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]),
            ["GPU requested"],
        ),
        (
            made(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]),
            ["CDI device nvidia.com/gpu=all"],
        ),
        (made(Devices=[{"PathOnHost": "/dev/nvidia0"}]), ["device /dev/nvidia0"]),
        (made((ALL,), Runtime="nvidia"), ["runtime nvidia with NVIDIA_VISIBLE_DEVICES"]),
        (
            made(("CUDA_VERSION=13.0",), Runtime="nvidia"),
            ["runtime nvidia with NVIDIA_VISIBLE_DEVICES"],
        ),
        (made(IpcMode="host", NetworkMode="host"), ["host IPC", "host network"]),
        (made((), ("vllm", "serve", "/m"), IpcMode="host"), ["vLLM", "host IPC"]),
        (
            made((), ("bash", "-lc", "exec llama-server -m x"), ShmSize=32 << 30),
            ["llama.cpp", "32 GiB of shared memory"],
        ),
        (made((), ("vllm", "serve", "/m")), []),
        # Neither does a thing.
        (made(), []),
        (made((ALL,)), []),
        (made(Runtime="nvidia"), []),
        (made(("NVIDIA_VISIBLE_DEVICES=void",), Runtime="nvidia"), []),
        (made(IpcMode="host"), []),
        (made(NetworkMode="host"), []),
        (made(Devices=[{"PathOnHost": "/dev/dri"}]), []),
        (made(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["vendor.com/net=0"]}]), []),
    ],
)
def test_each_way_to_a_gpu_or_to_the_other_ranks_is_a_sign(container: Any, said: list[str]) -> None:
    assert signs.of_container(container, []) == said


def test_what_runs_in_a_container_counts_as_much_as_what_it_was_started_with() -> None:
    inside = [signs.Process(2**22 + 1, 1, 0, ["python3", "-m", "sglang.launch_server"])]
    one = made((), ("bash", "/start.sh"), IpcMode="host")
    assert signs.of_container(one, inside) == ["SGLang", "host IPC"]
    assert signs.of_processes(inside) == ["SGLang"]
    assert signs.of_processes([]) == []


def test_a_server_that_has_loaded_a_model_is_one_without_a_gpu_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argv = ["/opt/llama.cpp/build/bin/llama-server", "-m", "/srv/x.gguf", "--api-key", "k3y"]
    made = [outside.Process(pid, 1, 0, argv) for pid in (901, 902)]
    made.append(outside.Process(903, 1, 0, ["/usr/bin/gnome-remote-desktop"]))
    places = {901: "0::/system.slice/lane.service", 902: "0::/", 903: "0::/"}
    monkeypatch.setattr(outside.processes, "processes", lambda: iter(made))
    monkeypatch.setattr(outside.places, "cgroups", places.get)
    monkeypatch.setattr(outside, "has_cuda", lambda pid: pid == 903)
    monkeypatch.setattr(outside, "owner", lambda _: "milo")
    monkeypatch.setattr(outside, "private_mib", {901: 90000.0, 902: 90.0}.get)
    lane, remote = outside.section({})["programs"]
    assert lane == {
        "name": "llama-server",
        "pid": 901,
        "user": "milo",
        "unit": "lane.service",
        "user_unit": "",
        "signs": ["llama.cpp", "holds 90000 MiB"],
    }
    assert (remote["pid"], remote["signs"]) == (903, ["has the GPU open"])


def test_the_desktops_own_programs_are_no_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        outside.Process(901, 1, 0, ["/usr/bin/gnome-shell"]),
        outside.Process(902, 1, 0, ["vllm", "serve", "/m"]),
    ]
    group = "0::/user.slice/user-1000.slice/session-2.scope"
    monkeypatch.setattr(outside.processes, "processes", lambda: iter(made))
    monkeypatch.setattr(outside.places, "cgroups", lambda _: group)
    monkeypatch.setattr(outside.places, "with_screen", lambda: ({"2"}, {"1000"}))
    monkeypatch.setattr(outside, "has_cuda", lambda _: True)
    monkeypatch.setattr(outside, "owner", lambda _: "milo")
    (found,) = outside.section({})["programs"]
    assert (found["pid"], found["signs"]) == (902, ["vLLM", "has the GPU open"])


def test_a_device_is_named_in_letters_that_a_sentence_can_have() -> None:
    odd = made(Devices=[{"PathOnHost": "/dev/nvidia0\n\x1b[31m; rm -rf /"}])
    assert signs.of_container(odd, []) == ["device /dev/nvidia0???31m??rm?-rf?/"]


def test_neither_environment_nor_arguments_leave_the_host() -> None:
    one = made(
        ("TOKEN=abc",),
        ("vllm", "serve", "--api-key", "k3y"),
        IpcMode="host",
        Binds=["/home/x/s3cret:/k:ro"],
    )
    said = str(signs.of_container(one, []))
    assert not any(word in said for word in ("s3cret", "abc", "k3y", "TOKEN"))
