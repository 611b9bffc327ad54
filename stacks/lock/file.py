"""The lock file: which one it is, its text, and writing it whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from inventory.stack_files import LOCK_SUFFIX
from stacks import definition
from stacks.schema import Lock

SOURCES = {
    "hub": "model files as the Hub has that revision",
    "hosts": "model files as a full read on all hosts of one cluster found them, all alike",
    None: "nobody has said where the hashes of the model files come from",
}


def path_of(stack: str, lock_dir: Path | None) -> Path:
    """Where the lock of `stack` lies, or would be written."""
    return (lock_dir or definition.FOLDER) / f"{stack}{LOCK_SUFFIX}"


def text(lock: Lock) -> str:
    """The whole file: one line a model file, so that a diff of two locks can be read."""
    head: dict[str, Any] = {
        "stack": lock.stack,
        "image": lock.image.model_dump(exclude_defaults=True) | {"index": lock.image.index},
        "model": {
            "repository": lock.model.repository,
            "revision": lock.model.revision,
            "source": lock.model.source,
        },
    }
    lines = [
        f"# What {lock.stack} runs, by digest; written by `make lock STACK={lock.stack}`.",
        f"# Source: image as its registry has it, {SOURCES[lock.model.source]}.",
        yaml.safe_dump(head, sort_keys=False, width=200).rstrip("\n"),
        "  files:",
    ]
    for one in lock.model.files:
        entry = yaml.safe_dump(
            one.model_dump(), sort_keys=False, default_flow_style=True, width=1000
        )
        lines.append(f"    - {entry.rstrip()}")
    return "\n".join(lines) + "\n"


def write(path: Path, lock: Lock) -> None:
    """Put the file in place at once: whoever reads it meanwhile has the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.write_text(text(lock), encoding="utf-8")
    draft.replace(path)
