"""Names of model files, checked on the host too: a manifest may come from anywhere."""

from __future__ import annotations

import os
import re
from typing import Any

from run.command import Failed

from model import place

SHA256 = re.compile(r"[0-9a-f]{64}")
OURS = ".spark-converge"
MOST_BYTES = 255 - len(place.PART)  # NAME_MAX of Linux


def fault(name: Any) -> str | None:
    """Why a name is none below a model's folder."""
    if not isinstance(name, str) or not name or not name.isprintable():
        return "a name that can be printed expected"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "a path below the folder, without empty, . and .. parts, expected"
    if any(len(os.fsencode(part)) > MOST_BYTES for part in parts):
        return f"at most {MOST_BYTES} bytes in each part expected"
    if parts[0].startswith(OURS) or name.endswith(place.PART):
        return "a name that is not this program's own expected"
    return None


def checked(entries: list[dict[str, Any]], extra: list[str]) -> None:
    """Raises Failed with the first name, size or hash that cannot be one."""
    names = set()
    for name in [*(entry.get("name") for entry in entries), *extra]:
        why = fault(name)
        if why:
            raise Failed(f"{place.shown(str(name))[:80]!r} found as the name of a file; {why}")
        names.add(name)
    for name in sorted(names):
        above = os.path.dirname(name)
        while above:
            if above in names:
                raise Failed(f"{above} and {name} found; one of them a file, not both, expected")
            above = os.path.dirname(above)
    for entry in entries:
        size, sha256 = entry.get("size"), entry.get("sha256")
        if not (size is None or (type(size) is int and size >= 0)):
            raise Failed(f"{entry['name']}: {str(size)[:40]!r} found; a size in bytes expected")
        if not (sha256 is None or (isinstance(sha256, str) and SHA256.fullmatch(sha256))):
            raise Failed(f"{entry['name']}: {str(sha256)[:80]!r} found; a SHA-256 expected")


def folder(path: Any) -> str:
    """The folder of a model as it was asked for; raises Failed."""
    good = isinstance(path, str) and path.startswith("/") and path.isprintable()
    if not good or {"..", "."} & set(path.split("/")):
        raise Failed(f"{str(path)[:80]!r} found as a model's folder; an absolute path expected")
    return str(path)
