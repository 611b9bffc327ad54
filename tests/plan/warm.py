"""pyinfra and this project loaded once; every line on standard input is one run of it.

Loading is more than half of what a plan over @fake hosts costs. Each run is a fork of this
process, so that it begins with nothing but loaded modules, as `python -m pyinfra` does.
A line: {"arguments": [...], "env": {...}, "out": path, "err": path}; answer: its exit status.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyinfra_cli  # noqa: F401 - first of all: it patches the standard library for gevent
from gevent import monkey
from pyinfra_cli.main import main

ROOT = Path(__file__).parents[2]


def run(request: dict[str, Any]) -> None:
    """In the child: become one run; ends the process."""
    os.environ.update(request["env"])
    for number, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.argv = ["pyinfra", *request["arguments"]]
    main()


def serve() -> None:
    fork, waitpid = monkey.get_original("os", ["fork", "waitpid"])
    sys.path.insert(0, str(ROOT))
    for module in ("facts", "operations", "stacks", "inventory", "gates", "deploys/steps"):
        for path in sorted((ROOT / module).glob("[a-z]*.py")):
            if path.stem not in ("lab", "sparks"):  # inventories run when they are loaded
                importlib.import_module(".".join([*module.split("/"), path.stem]))
    while line := sys.stdin.readline():
        child = fork()
        if child == 0:
            run(json.loads(line))
            return
        print(os.waitstatus_to_exitcode(waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
