"""What the words of an engine's command say about its rank and where the ranks meet."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.on_host import module

command = module("adopt.command")
VLLM = (
    "exec vllm serve /cache/m --served-model-name deepseek-v4-flash-0731 --port 8888 --nnodes 2 "
    "--node-rank ${NODE_RANK} --headless --master-addr $MASTER_ADDR --master-port 25000"
)


def test_vllm_in_a_line_of_shell_with_the_containers_own_variables() -> None:
    environment = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1"}
    assert command.told([["bash", "-lc", VLLM]], environment) == {
        "rank": 1,
        "world": 2,
        "address": "10.0.0.1",
        "rendezvous": 25000,
        "port": 8888,
        "model_name": "deepseek-v4-flash-0731",
        "model": None,
    }


def test_sglang_by_one_address_and_port() -> None:
    argv = [
        "python3",
        "-m",
        "sglang.launch_server",
        "--dist-init-addr",
        "10.0.0.1:25000",
        "--nnodes=2",
    ]
    found = command.told([[*argv, "--node-rank", "0", "--port", "30000"]], {})
    assert (found["rank"], found["world"], found["port"]) == (0, 2, 30000)
    assert (found["address"], found["rendezvous"]) == ("10.0.0.1", 25000)


def test_a_running_process_outranks_the_script_that_started_it() -> None:
    process, script = ["vllm", "serve", "--node-rank", "1"], ["start.sh", "--node-rank", "0"]
    assert command.told([process, script], {"NODE_RANK": "3"})["rank"] == 1


def test_what_only_the_environment_says_counts_too() -> None:
    environment = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "25000"}
    found = command.told([["/opt/start.sh"]], environment)
    assert (found["rank"], found["address"], found["rendezvous"]) == (1, "10.0.0.1", 25000)


@pytest.mark.parametrize(
    "argv", [["nginx"], [], ["--nnodes"], ["--nnodes", "--port"], ["--nnodes", "two"]]
)
def test_what_is_not_said_is_null(argv: list[str]) -> None:
    assert command.told([argv], {})["world"] is None


@given(st.lists(st.text(max_size=12), max_size=6))
def test_no_command_line_is_too_odd(argv: list[str]) -> None:
    assert set(command.told([argv], {})) >= {"rank", "world", "rendezvous"}


@given(st.integers(0, 7), st.integers(1, 65535), st.sampled_from(["{} {}", "{}={}"]))
def test_a_quoted_line_of_shell_says_what_its_words_say(rank: int, port: int, way: str) -> None:
    words = ["serve", *way.format("--node-rank", rank).split(), *way.format("--port", port).split()]
    plain = command.told([words], {})
    assert plain == command.told([["sh", "-c", f"exec {shlex.join(words)}"]], {})
    assert (plain["rank"], plain["port"]) == (rank, port)
