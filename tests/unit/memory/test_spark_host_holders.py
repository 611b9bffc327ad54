"""spark-host holders: programs outside of docker, and the memory that a launch would miss."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from facts.memory.holders import parse
from tests.unit.on_host import module

holders, places = module("memory.holders"), module("run.places")
HELD_MIB = 96
ID = "a1" * 32


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """One that holds HELD_MIB, with a secret on its command line."""
    text = f"x = b'1' * ({HELD_MIB} << 20); print(1, flush=True); input()"
    argv = [sys.executable, "-c", text, "--token=secret"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        assert made.stdout.readline()
        yield made
        made.communicate("\n")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is searched for programs before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def gpu_says(tools: Path, text: str, status: int = 0) -> None:
    path = tools / "nvidia-smi"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
    path.chmod(0o755)


def seen(pid: int) -> dict[str, Any]:
    return next(one for one in holders.section({})["programs"] if one["pid"] == pid)


def test_a_program_is_named_with_its_own_memory_and_without_its_arguments(
    tools: Path, program: subprocess.Popen[str]
) -> None:
    one = seen(program.pid)
    assert HELD_MIB <= one["mib"] < HELD_MIB + 32
    assert one["gpu_mib"] == 0
    assert one["name"] == Path(sys.executable).name
    assert "secret" not in str(holders.section({}))


def test_what_forks_have_in_common_counts_once() -> None:
    text = f"import os; x = b'1' * ({HELD_MIB} << 20); pid = os.fork()\n"
    text += "if pid: print(pid, flush=True)\nos.read(0, 1)"
    argv = [sys.executable, "-c", text]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        pids = (made.pid, int(made.stdout.readline()))
        held_mib = sum(map(holders.private_mib, pids))
        made.communicate("12")
    assert HELD_MIB <= held_mib < HELD_MIB + 32


def test_what_it_holds_through_the_gpu_counts_as_well(
    tools: Path, program: subprocess.Popen[str]
) -> None:
    gpu_says(tools, f"pid, MiB\n{program.pid}, 61234\n{program.pid}, 66\nno running processes")
    found = parse(holders.section({}))
    assert (found.programs[0].pid, found.programs[0].gpu_mib) == (program.pid, 61300)
    assert found.gpu_unread is None


@pytest.mark.parametrize("word", ["[N/A]", "[Insufficient Permissions]"])
def test_a_program_of_which_the_driver_says_no_figure_is_told_but_for_dockers(
    tools: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    groups = {7: "0::/system.slice/ollama.service", 8: f"0::/system.slice/docker-{ID}.scope"}
    monkeypatch.setattr(holders, "cgroups", groups.get)
    gpu_says(tools, f"7, {word}\n8, {word}\n8, 100")
    assert holders.on_gpu() == ({8: 100}, f"nvidia-smi says {word} for pid 7")


def test_a_driver_that_says_no_is_told_and_hides_no_program(
    tools: Path, program: subprocess.Popen[str]
) -> None:
    gpu_says(tools, "NVIDIA-SMI has failed", status=9)
    assert holders.section({})["gpu_unread"] == "NVIDIA-SMI has failed"
    assert seen(program.pid)["mib"] >= HELD_MIB


def test_only_the_largest_are_named_and_the_rest_is_summed(
    tools: Path, program: subprocess.Popen[str]
) -> None:
    found = holders.section({})
    sizes = [max(one["mib"], one["gpu_mib"]) for one in found["programs"]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(size >= holders.SMALL_MIB for size in sizes)
    assert found["rest_mib"] > 0


def test_small_programs_of_the_desktop_are_no_part_of_the_rest(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"mib": 30.0, "gpu_mib": 0.0}
    made = [{"screen": True, **small}, {"screen": False, **small}]
    monkeypatch.setattr(holders, "programs", lambda _: made)
    assert holders.section({})["rest_mib"] == 30


@pytest.mark.parametrize(
    ("group", "unit", "user_unit", "screen"),
    [
        ("0::/system.slice/ollama.service", "ollama.service", "", False),
        ("0::/system.slice/system-lane.slice/lane@1.service/sub", "lane@1.service", "", False),
        ("0::/user.slice/user-1000.slice/session-5.scope", "", "", False),
        ("0::/user.slice/user-1000.slice/session-2.scope", "", "", True),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/comfy.service",
            *("", "comfy.service", True),
        ),
        (
            "0::/user.slice/user-1001.slice/user@1001.service/app.slice/app-gnome-x.scope",
            *("", "", False),
        ),
        ("0::/init.scope", "", "", False),
        ("", "", "", False),
        (
            "5:memory:/\n1:name=systemd:/system.slice/ollama.service\n0::/",
            *("ollama.service", "", False),
        ),
        (
            "1:name=systemd:/user.slice/user-1000.slice/user@1000.service/init.scope\n"
            "0::/user.slice/user-1000.slice/user@1000.service/init.scope",
            *("", "", True),
        ),
        ("0::/lxc.payload.one/system.slice/ollama.service", "", "", False),
        (f"0::/machine.slice/libpod-{ID}.scope/system.slice/ollama.service", "", "", False),
        ("0::/machine.slice/nspawn@a.service/payload/b.service", "nspawn@a.service", "", False),
    ],
)
def test_where_a_program_belongs(group: str, unit: str, user_unit: str, screen: bool) -> None:
    found = places.whereabouts(group, ({"2"}, {"1000"}))
    assert found == {"unit": unit, "user_unit": user_unit, "screen": screen}


def test_sessions_with_a_screen_end_with_the_desktop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SESSIONS", str(tmp_path))
    (tmp_path / "2").write_text("UID=1000\nTYPE=wayland\nSTATE=active\n")
    (tmp_path / "5").write_text("UID=1001\nTYPE=tty\n")
    (tmp_path / "6").write_text("UID=1002\nTYPE=wayland\nSTATE=closing\n")
    (tmp_path / "c1").write_text("odd\x00")
    assert places.with_screen() == ({"2"}, {"1000"})


def test_the_fifo_that_a_session_holds_open_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As logind makes one beside each session: /run/systemd/sessions/5.ref."""
    monkeypatch.setattr(places, "SESSIONS", str(tmp_path))
    os.mkfifo(tmp_path / "5.ref")
    session = os.open(tmp_path / "5.ref", os.O_RDWR)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(places.with_screen()))
    reader.start()
    reader.join(5)
    os.close(session)
    assert found == [(set(), set())]


@pytest.mark.parametrize(
    ("group", "counts"),
    [
        (f"0::/system.slice/docker-{ID}.scope", False),
        (f"12:memory:/docker/{ID}\n0::/docker/{ID}", False),
        ("0::/system.slice/docker.service", True),
        (f"0::/machine.slice/libpod-{ID}.scope", True),
        (f"0::/kubepods.slice/cri-containerd-{ID}.scope", True),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope", True),
        ("", False),
    ],
)
def test_only_containers_of_the_systems_docker_and_what_is_gone_are_left_out(
    group: str, counts: bool
) -> None:
    assert places.outside(group) is counts


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/usr/bin/python3", "-m", "vllm.serve", "--api-key", "k"], "python3 -m vllm.serve"),
        (["python3.12", "/srv/comfy/main.py", "--listen"], "python3.12 main.py"),
        (["/usr/local/bin/llama-server", "--api-key", "k"], "llama-server"),
        (["VLLM::EngineCore"], "VLLM::EngineCore"),
        (["nginx: worker process --key k"], "nginx:"),
        (["-bash"], "-bash"),
        (["bash", "-c", "secret"], "bash"),
        (["python3", "", ""], "python3"),
        (["\udcff\x1b[2Jx\n"], "??[2Jx?"),
        (["x" * 4096], "x" * 60),
        ([""], "nameless"),
    ],
)
def test_a_title_is_the_program_and_what_an_interpreter_runs(argv: list[str], said: str) -> None:
    assert holders.title(argv) == said


def test_a_service_is_one_program_by_its_largest_process(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = holders.processes
    made = [processes.Process(pid, 1, 0, [f"part{pid}"]) for pid in (901, 902, 903)]
    groups = {901: "0::/system.slice/a.service", 902: "0::/system.slice/a.service", 903: "0::/"}
    monkeypatch.setattr(processes, "processes", lambda: iter(made))
    monkeypatch.setattr(holders, "cgroups", groups.get)
    monkeypatch.setattr(holders, "private_mib", lambda pid: {901: 40.0, 902: 70.0, 903: 5.0}[pid])
    monkeypatch.setattr(holders, "owner", lambda _pid: "milo")
    both, alone = sorted(holders.programs({901: 10.0}), key=lambda one: -one["mib"])
    assert (both["pid"], both["mib"], both["gpu_mib"]) == (902, 110.0, 10.0)
    assert (both["unit"], alone["pid"]) == ("a.service", 903)
