"""Which command lines are an engine's server: one list, for processes, containers and scripts."""

from __future__ import annotations

import shlex
import time

import pytest

from tests.unit.on_host import module

servers = module("run.servers")

STARTED = [
    ("vllm serve org/name --port 8000", "vLLM"),
    ("/usr/bin/python3 /usr/local/bin/vllm serve org/name", "vLLM"),
    ("python3 -m vllm.entrypoints.openai.api_server --model x", "vLLM"),
    ("python3 -u -X dev -m vllm.entrypoints.cli.main serve x", "vLLM"),
    ("VLLM::EngineCore", "vLLM"),
    ("/opt/nvidia/nvidia_entrypoint.sh vllm serve x", "vLLM"),
    ("bash -lc 'source /opt/v/bin/activate; exec vllm serve x'", "vLLM"),
    ("env -u A B=1 /opt/v/bin/vllm serve x", "vLLM"),
    ("sudo -u alice nice -n 5 /opt/v/bin/vllm serve x", "vLLM"),
    ("uv run --with x vllm serve x", None),  # which words are the option's is uv's to know
    ("uv run vllm serve x", "vLLM"),
    ("python -m sglang.launch_server --model-path x --tp 2", "SGLang"),
    ("sglang serve --model-path x", "SGLang"),
    ("sglang::scheduler_TP0", "SGLang"),
    ("/usr/local/bin/trtllm-serve /srv/models/x", "TensorRT-LLM"),
    ("mpirun -n 2 trtllm-llmapi-launch trtllm-serve x", "TensorRT-LLM"),
    ("/opt/llama.cpp/build/bin/llama-server -m x.gguf", "llama.cpp"),
    ("/opt/llama.cpp/build/bin/rpc-server -p 50052", "llama.cpp"),
    ("python3 -m llama_cpp.server --model x.gguf", "llama.cpp"),
    ("/usr/local/bin/ollama serve", "Ollama"),
    ("./ds4-server -m x.gguf --ctx 65536", "ds4"),
    ("ray start --head --port 6379", "Ray"),
    ("ray --logging-level debug start --head", "Ray"),
    ("/opt/v/ray/core/src/ray/raylet/raylet --x", "Ray"),
    ("python3 /home/alice/tabbyAPI/main.py --config x.yml", "TabbyAPI"),
    ("bash /home/alice/tabbyAPI-main/start.sh", "TabbyAPI"),
    ("lmdeploy serve api_server x", "LMDeploy"),
    ("mlc_llm serve HF://x", "MLC LLM"),
    ("python -m mlc_llm serve HF://x", "MLC LLM"),
    ("text-generation-launcher --model-id x", "Text Generation Inference"),
    ("tritonserver --model-repository=/x", "Triton"),
    ("python3 -m dynamo.vllm --model x", "Dynamo"),
    ("lms server start", "LM Studio"),
    ("sparkrun run @official/x --cluster pair --tp 2", "sparkrun"),
    ("sparkrun --config /etc/s.yaml run x", "sparkrun"),
    ("timeout -k 5 60 sparkrun run x", "sparkrun"),
    ("./launch-cluster.sh -t vllm-node exec x", "spark-vllm-docker"),
]
OTHERS = [
    "vllm bench serve --model x",
    "vllm --version",
    "ray status",
    "ray stop",
    "ollama list",
    "sparkrun stop x",
    "sparkrun status",
    "vim /etc/systemd/system/llama-server.service",
    "tail -f /var/log/llama-server.log",
    "grep -r llama-server /etc",
    "python3 -m pip install vllm",
    "python3 main.py",
    "python3 -m http.server",
    "serve-static --max serve",
    "bash",
    "bash -c",
    "",
]


@pytest.mark.parametrize(("line", "name"), STARTED)
def test_a_command_line_is_known_by_the_server_that_it_starts(line: str, name: str | None) -> None:
    assert servers.server_of(shlex.split(line)) == name


@pytest.mark.parametrize("line", OTHERS)
def test_a_command_line_of_something_else_is_no_servers(line: str) -> None:
    assert servers.server_of(shlex.split(line)) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [(line, name) for line, name in STARTED if name and "::" not in line]
    + [
        ("@reboot sleep 60 && $HOME/.local/bin/sparkrun run @official/x --tp 2", "sparkrun"),
        ('ExecStart="/usr/bin/ollama" "serve"', "Ollama"),
        ("cd /opt && (exec './ds4-server' -m x)", "ds4"),
        ("docker exec -d box ray start --address=192.0.2.1:6379", "Ray"),
    ],
)
def test_a_text_is_known_by_the_server_that_it_starts(text: str, name: str) -> None:
    assert servers.started_in(text.encode()) is not None
    assert servers.named_in(text.encode()) is not None
    assert name in {w.name for w in servers.WAYS if w.starts.search(text.encode())}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ollama list", "Ollama"),
        ("sparkrun stop x", "sparkrun"),
        ("systemctl restart ollama", "Ollama"),
        ("tar czf /backup/x.tgz /etc/llama-server.d", None),
        ("cat /var/log/llama-server.log", None),
        ("xray start; arrays start", None),
        ("the ray of light; serve it max", None),
        ("apt-get install -y maximum-serve", None),
    ],
)
def test_a_text_that_starts_no_server_may_name_one(text: str, named: str | None) -> None:
    assert servers.started_in(text.encode()) is None
    assert servers.named_in(text.encode()) == named


def test_every_way_has_a_name_and_a_public_source() -> None:
    for name, said, source in servers.SERVERS:
        assert name
        assert said
        assert source.startswith("https://")
    assert all(way.hint for way in servers.WAYS)


@pytest.mark.parametrize(
    "text", [b"ollama -" * 30000, b"ollama " + b"-a a " * 40000, b"ray --x y" * 20000]
)
def test_a_text_made_to_be_slow_is_read_within_a_second(text: bytes) -> None:
    began = time.monotonic()
    servers.started_in(text)
    servers.named_in(text)
    assert time.monotonic() - began < 1
