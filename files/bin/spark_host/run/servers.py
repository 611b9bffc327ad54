"""Programs that serve models, and launchers that bring one up: one list, for whoever asks whether
a command line, a script or a process is an engine's.

Containers and what runs them are no part of it: those are asked for by docker.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from run.processes import INTERPRETER

# Name, how it is started, and the source of that. A way is a program, with the first word behind
# it where only some of them start anything; `-m` a module of Python; with a slash the end of a
# path, for what is run out of its checkout. A * stands for any rest of a name. Processes that give
# themselves a title are there by it.
SERVERS: tuple[tuple[str, str, str], ...] = (
    (
        "vLLM",
        "vllm serve, vllm run-batch, VLLM::*, -m vllm.entrypoints.*",
        "https://docs.vllm.ai/en/latest/cli/",
    ),
    (
        "SGLang",
        "sglang serve, sglang::*, -m sglang.launch_server, -m sglang_router.*",
        "https://docs.sglang.ai/basic_usage/send_request.html",
    ),
    (
        "TensorRT-LLM",
        "trtllm-serve, trtllm-llmapi-launch, -m tensorrt_llm.commands.serve",
        "https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html",
    ),
    (
        "llama.cpp",
        "llama-server, llama-rpc-server, ggml-rpc-server, -m llama_cpp.server,"
        " llama.cpp/build/bin/rpc-server, llama.cpp/server",
        "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    ),
    ("llamafile", "llamafile, *.llamafile", "https://github.com/Mozilla-Ocho/llamafile"),
    (
        "Ollama",
        "ollama serve, ollama start, ollama run, ollama runner",
        "https://docs.ollama.com/linux",
    ),
    ("ds4", "ds4-server", "https://github.com/antirez/ds4"),
    (
        "Ray",
        "ray start, ray up, raylet, ray::*",
        "https://docs.ray.io/en/latest/cluster/cli.html",
    ),
    (
        "Ray Serve",
        "serve run, serve deploy, serve start",
        "https://docs.ray.io/en/latest/serve/api/index.html",
    ),
    (
        "TabbyAPI",
        "tabbyapi, tabbyAPI, -m tabbyapi, -m tabbyAPI, tabbyAPI*/main.py, tabbyAPI*/start.*,"
        " tabbyapi*/main.py, tabbyapi*/start.*",
        "https://github.com/theroyallab/tabbyAPI/wiki/01.-Getting-Started",
    ),
    (
        "LMDeploy",
        "lmdeploy serve, -m lmdeploy.serve.*",
        "https://lmdeploy.readthedocs.io/en/latest/llm/api_server.html",
    ),
    (
        "MLC LLM",
        "mlc_llm serve, mlc-llm serve, -m mlc_llm, -m mlc_llm.serve.*",
        "https://llm.mlc.ai/docs/deploy/rest.html",
    ),
    (
        "Text Generation Inference",
        "text-generation-launcher, text-generation-server serve",
        "https://huggingface.co/docs/text-generation-inference/reference/launcher",
    ),
    (
        "Text Embeddings Inference",
        "text-embeddings-router",
        "https://huggingface.co/docs/text-embeddings-inference/cli_arguments",
    ),
    (
        "Triton",
        "tritonserver",
        "https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/",
    ),
    (
        "Dynamo",
        "dynamo-run, dynamo run, dynamo serve, -m dynamo.*",
        "https://github.com/ai-dynamo/dynamo/blob/main/README.md",
    ),
    (
        "LM Studio",
        "lms server, lms daemon, lms load, llmster",
        "https://lmstudio.ai/docs/developer/core/headless_llmster",
    ),
    ("llama-swap", "llama-swap", "https://github.com/mostlygeek/llama-swap"),
    (
        "Aphrodite",
        "aphrodite run, aphrodite serve, -m aphrodite.endpoints.*",
        "https://github.com/aphrodite-engine/aphrodite-engine",
    ),
    (
        "mistral.rs",
        "mistralrs-server, mistralrs serve, mistralrs run",
        "https://github.com/EricLBuehler/mistral.rs",
    ),
    (
        "KoboldCpp",
        "koboldcpp, koboldcpp-linux*, koboldcpp.py",
        "https://github.com/LostRuins/koboldcpp",
    ),
    ("LocalAI", "local-ai", "https://localai.io/basics/getting_started/"),
    (
        "KTransformers",
        "ktransformers, -m ktransformers.*",
        "https://github.com/kvcache-ai/ktransformers",
    ),
    (
        "Xinference",
        "xinference-local, xinference-supervisor, xinference-worker, xinference launch",
        "https://inference.readthedocs.io/en/latest/getting_started/using_xinference.html",
    ),
    ("FastChat", "-m fastchat.serve.*", "https://github.com/lm-sys/FastChat"),
    ("LightLLM", "-m lightllm.server.*", "https://github.com/ModelTC/lightllm"),
    (
        "text-generation-webui",
        "text-generation-webui*/server.py, text-generation-webui*/start_linux.sh,"
        " text-generation-webui*/one_click.py",
        "https://github.com/oobabooga/text-generation-webui",
    ),
    (
        "Transformers",
        "transformers serve, transformers-cli serve",
        "https://huggingface.co/docs/transformers/main/en/serving",
    ),
    ("OpenLLM", "openllm serve, openllm run", "https://github.com/bentoml/OpenLLM"),
    ("GPUStack", "gpustack start", "https://docs.gpustack.ai/latest/cli-reference/start/"),
    (
        "RamaLama",
        "ramalama serve, ramalama run",
        "https://github.com/containers/ramalama",
    ),
    ("MAX", "max serve", "https://docs.modular.com/max/cli/serve"),
    ("exo", "exo", "https://github.com/exo-explore/exo"),
    (
        "sparkrun",
        "sparkrun run, sparkrun benchmark, sparkrun tune, -m sparkrun",
        "https://pypi.org/project/sparkrun/",
    ),
    (
        "spark-vllm-docker",
        "launch-cluster.sh, run-recipe.sh, run-recipe.py, run-cluster-node.sh",
        "https://github.com/eugr/spark-vllm-docker",
    ),
)
# Words of every day: they mean a program only with the word behind them that starts something.
PLAIN = ("ray", "serve", "lms", "max", "dynamo", "transformers", "exo", "raylet")
# What stands before a command and becomes it, or waits for it: {program: (its short options that
# take a value, words of its own before the command)}.
BEFORE: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("exec", "nohup", "setsid", "time", "command", "tini", "dumb-init"), ("", 0)),
    **dict.fromkeys(("uvx", "systemd-cat", "systemd-inhibit"), ("", 0)),
    **{"env": ("uCS", 0), "sudo": ("ugChpRTDr", 0), "doas": ("uC", 0), "runuser": ("ugG", 0)},
    **{"nice": ("n", 0), "ionice": ("cn", 0), "stdbuf": ("ioe", 0), "systemd-run": ("pEu", 0)},
    **{"numactl": ("mNCip", 0), "mpirun": ("nHx", 0), "mpiexec": ("nHx", 0), "srun": ("nNpJ", 0)},
    **{"timeout": ("ks", 1), "taskset": ("", 1), "chrt": ("TPD", 1), "flock": ("wE", 1)},
    **{"gosu": ("", 1), "su-exec": ("", 1), "chpst": ("u", 0), "xargs": ("InPLd", 0)},
}
RUNNERS = ("uv", "poetry", "pipx", "pixi")  # with the word run
ASSIGNED = re.compile(r"\w+=")
# Between a program and its verb in a text: options, perhaps with values, and quotes.
GAP = rb"[\"']?(?:[ \t]+-[^\s;|&]+(?:[ \t]+[^\s;|&-][^\s;|&]*)?)*?[ \t]+[\"']?"
BEFORE_WORD, BEHIND_WORD = rb"(?<![\w.-])", rb"(?![\w-]|[./]\w)"


class Way(NamedTuple):
    """How a server is started. program: a pattern, or -m; word: its verb, the module, or nothing.

    hint: bytes of every text that has it, which are found sooner than a pattern is.
    """

    name: str
    program: str
    word: str
    hint: bytes
    starts: re.Pattern[bytes]
    mentions: re.Pattern[bytes]


def way(name: str, said: str) -> Way:
    program, _, word = said.partition(" ")
    first, second = (BEFORE_WORD + shaped(program) + BEHIND_WORD, shaped(word) + BEHIND_WORD)
    module = program == "-m"
    starts = (rb"(?<!\S)-m[ \t]*" if module else first + (GAP if word else b"")) + second
    hint = max((word if module else program).split("*"), key=len)
    known = starts if module or program in PLAIN else first
    return Way(name, program, word, hint.encode(), re.compile(starts), re.compile(known))


def shaped(pattern: str) -> bytes:
    """A part of a way as a part of a pattern over texts."""
    return re.escape(pattern).replace(r"\*", r"[^\s/;|&<>\"'`]*").encode()


WAYS = [way(name, said.strip()) for name, ways, _ in SERVERS for said in ways.split(",")]


def started_in(text: bytes) -> str | None:
    """The server that a shell command or a script starts, by its own words."""
    return next((w.name for w in WAYS if w.hint in text and w.starts.search(text)), None)


def named_in(text: bytes) -> str | None:
    """The server that a text has a program of, whatever it does with it."""
    return next((w.name for w in WAYS if w.hint in text and w.mentions.search(text)), None)


def server_of(argv: Sequence[str]) -> str | None:
    """The server that a command line is, None for any other program.

    argv: of a process, of a container (entrypoint and command) or of a unit; what runs something
    else in its turn (env, sudo, an interpreter, a shell with -c, an entrypoint script) is followed.
    """
    words = [word for word in argv if word]
    while words:
        program = os.path.basename(words[0])
        if ASSIGNED.match(words[0]):
            words = words[1:]
        elif INTERPRETER.fullmatch(program):
            return by_interpreter(words)
        elif program in BEFORE or re.search("entry_?point", program):
            words = behind(words[1:], *BEFORE.get(program, ("", 0)))
        elif program in RUNNERS and words[1:2] == ["run"]:
            words = behind(words[2:], "", 0)
        else:
            return next((w.name for w in WAYS if w.program != "-m" and fits(w, words)), None)
    return None


def behind(words: list[str], valued: str, own: int) -> list[str]:
    """The command behind the options (valued: short ones with a value) and words of another."""
    while words and (words[0].startswith("-") or ASSIGNED.match(words[0])):
        takes = len(words[0]) == 2 and words[0][1] in valued
        words = words[2 if takes else 1 :]
    return words[own:]


def by_interpreter(words: list[str]) -> str | None:
    rest = words[1:]
    shell = re.search(r"sh$|^busybox$", os.path.basename(words[0]))
    while rest and rest[0].startswith("-"):
        if shell and re.fullmatch("-[a-z]*c", rest[0]):
            return started_in(rest[1].encode("utf-8", "surrogateescape")) if rest[1:] else None
        if rest[0] == "-m":
            modules = (w for w in WAYS if w.program == "-m")
            named = rest[1] if rest[1:] else ""
            found = (w.name for w in modules if fnmatch.fnmatchcase(named, w.word))
            return next(found, None) or server_of(rest[1:])  # python3 -m vllm serve
        rest = rest[2 if rest[0] in ("-X", "-W", "-O") else 1 :]
    return server_of(rest)


def fits(known: Way, words: list[str]) -> bool:
    parts = words[0].split("/")[-1 - known.program.count("/") :]
    if not fnmatch.fnmatchcase("/".join(parts), known.program):
        return False
    return not known.word or known.word in verbs(words[1:])


def verbs(words: list[str]) -> list[str]:
    """The first word behind the options, these with a value each and without."""
    at = next((n for n, word in enumerate(words) if not word.startswith("-")), len(words))
    return words[at : at + (2 if at else 1)]
