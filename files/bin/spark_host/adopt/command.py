"""What the command line of an engine says: its rank, where the ranks meet, its port and model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

# What vLLM, SGLang and the lab's engine call the same thing, in the order of preference.
OPTIONS = {
    "rank": ("--node-rank", "--rank"),
    "world": ("--nnodes",),
    "meets": ("--dist-init-addr", "--nccl-init-addr"),
    "master": ("--master-addr", "--master-address"),
    "master_port": ("--master-port",),
    "port": ("--port",),
    "model_name": ("--served-model-name",),
    "model": ("--model-path", "--model"),
}
# The same by the environment, for what a script puts together [field: NODE_RANK, MASTER_ADDR].
VARIABLES = {
    "rank": "NODE_RANK",
    "world": "NNODES",
    "master": "MASTER_ADDR",
    "master_port": "MASTER_PORT",
}
VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


def words(argv: Iterable[str]) -> list[str]:
    """The words of a command; one that is a line of shell comes apart into its own."""
    found: list[str] = []
    for word in argv:
        try:
            inner = shlex.split(word.replace("\\\n", " ")) if re.search(r"\s", word) else [word]
        except ValueError:  # a quote that does not end
            inner = word.split()
        found += inner
    return found


def option(given: list[str], names: Iterable[str]) -> str | None:
    """The value of `--name value` or `--name=value`."""
    for name in names:
        for at, word in enumerate(given):
            if word == name and at + 1 < len(given) and not given[at + 1].startswith("--"):
                return given[at + 1]
            if word.startswith(f"{name}="):
                return word[len(name) + 1 :]
    return None


def told(commands: Iterable[list[str]], environment: Mapping[str, str]) -> dict[str, Any]:
    """{"rank", "world", "address", "rendezvous", "port": ..., "model_name", "model"}, null where
    no command says it; commands: the most trustworthy first."""
    found: dict[str, str | None] = dict.fromkeys(OPTIONS)
    for argv in commands:
        given = [filled(word, environment) for word in words(argv)]
        for key, names in OPTIONS.items():
            found[key] = found[key] or option(given, names)
    for key, name in VARIABLES.items():
        found[key] = found[key] or environment.get(name)
    address, _, port = (found["meets"] or "").removeprefix("tcp://").rpartition(":")
    return {
        "rank": number(found["rank"]),
        "world": number(found["world"]),
        "address": address or found["master"],
        "rendezvous": number(port) or number(found["master_port"]),
        "port": number(found["port"]),
        "model_name": found["model_name"],
        "model": found["model"],
    }


def filled(word: str, environment: Mapping[str, str]) -> str:
    """A word with the container's own variables in it; others stay as they are."""
    return VARIABLE.sub(lambda one: environment.get(one[1] or one[2], one[0]), word)


def number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
