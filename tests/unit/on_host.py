"""The on-host program's modules, loaded here, and a folder that stands for a host's disk."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from facts.run.program import PROGRAM


def module(name: str) -> Any:
    """One module of files/bin/spark_host, as the host itself imports it."""
    if str(PROGRAM) not in sys.path:
        sys.path.append(str(PROGRAM))
    return importlib.import_module(name)


def tree(top: Path) -> dict[str, tuple[int, int, int, bytes | str]]:
    """{path: (mode, uid, gid, bytes or link target)} of every file and link below a folder."""
    found: dict[str, tuple[int, int, int, bytes | str]] = {}
    for path in sorted(top.rglob("*")):
        info = path.lstat()
        if path.is_symlink():
            content: bytes | str = os.readlink(path)  # noqa: PTH115 - the text itself
        elif path.is_file():
            content = path.read_bytes()
        else:
            continue
        name = str(path.relative_to(top))
        found[name] = (info.st_mode, info.st_uid, info.st_gid, content)
    return found


# What could follow a link that turned up meanwhile.
FOLLOWING = (
    *("open", "mkdir", "chown", "lchown", "fchown", "fchmod", "symlink", "replace", "unlink"),
    *("rmdir", "link", "rename"),
)


def just_before(monkeypatch: Any, number: int, act: Callable[[], None]) -> None:
    """Let somebody else act just before the program's call `number` (from 0) of FOLLOWING."""
    calls = itertools.count()
    for name in FOLLOWING:

        def call(*words: Any, real: Any, **more: Any) -> Any:
            if next(calls) == number:
                act()
            return real(*words, **more)

        monkeypatch.setattr(os, name, functools.partial(call, real=getattr(os, name)))


class Cut(BaseException):
    """The process ends here, as with SIGKILL: no handler of the program catches it."""


def cut_at(monkeypatch: Any, number: int) -> list[str]:
    """Let the program die at its call `number` (from 0) that reaches the disk; the calls made."""
    made: list[str] = []
    for name in ("fsync", "replace", "unlink", "rename", "symlink", "mkdir"):
        real = getattr(os, name)

        def call(*words: Any, real: Any = real, name: str = name, **more: Any) -> Any:
            made.append(name)
            if len(made) > number:
                raise Cut
            return real(*words, **more)

        monkeypatch.setattr(os, name, call)
    return made
