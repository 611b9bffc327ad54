"""The files that a container was started from: of compose, environments, scripts beside them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from typing import Any

from run.command import read, run

COMPOSE = "com.docker.compose."
LIMIT_BYTES = 1 << 20  # larger than that nobody writes one by hand
MOST = 100  # files of one folder
ENDS = (".sh", ".yaml", ".yml", ".env", ".conf", ".json", ".py")


def labels(one: dict[str, Any]) -> dict[str, str]:
    return one["Config"].get("Labels") or {}


def folder(one: dict[str, Any]) -> str | None:
    """The folder of a compose project, null for what compose did not start."""
    return labels(one).get(COMPOSE + "project.working_dir")


def of(one: dict[str, Any]) -> list[str]:
    """Paths, there or not: what compose says that it read, its .env, single files that are mounted,
    and what lies beside the compose file and is written by hand."""
    said = labels(one)
    found = listed(said.get(COMPOSE + "project.config_files"))
    found += listed(said.get(COMPOSE + "project.environment_file"))
    home = folder(one)
    if home:
        found += by_hand(home)
    mounts = (str(mount.get("Source")) for mount in one.get("Mounts") or () if mount.get("Source"))
    found += [source for source in mounts if kept(source)]
    return list(dict.fromkeys(found))


def listed(text: str | None) -> list[str]:
    return [path for path in (text or "").split(",") if path.startswith("/")]


def by_hand(home: str) -> list[str]:
    """Environment files, scripts and settings right in a folder."""
    try:
        names = sorted(os.listdir(home))
    except OSError:
        return []
    mine = [name for name in names if name.startswith(".env") or name.endswith(ENDS)]
    return [f"{home}/{name}" for name in mine if kept(f"{home}/{name}")][:MOST]


def kept(path: str) -> bool:
    """Is it a file of a size that is worth a copy?"""
    try:
        return os.path.isfile(path) and os.path.getsize(path) <= LIMIT_BYTES
    except OSError:
        return False


def checkout(one: dict[str, Any]) -> dict[str, Any] | None:
    """{"folder", "commit", "dirty"} of the git checkout that a project's folder lies in; dirty null
    where git cannot say; null without one."""
    home = folder(one)
    for top in above(home) if home else ():
        if os.path.isdir(f"{top}/.git"):
            return {"folder": top, "commit": commit(f"{top}/.git"), "dirty": dirty(top)}
    return None


def above(home: str) -> Iterator[str]:
    while home not in ("", "/"):
        yield home
        home = os.path.dirname(home)


def commit(git: str) -> str | None:
    """Of HEAD, by the files themselves: git as root runs what a checkout's settings name."""
    head = read(f"{git}/HEAD") or ""
    name = head.removeprefix("ref: ") if head.startswith("ref: ") else ""
    if not name:
        return head or None
    loose = read(f"{git}/{name}")
    packed = (line.split() for line in (read(f"{git}/packed-refs") or "").splitlines())
    return loose or next((words[0] for words in packed if words[1:] == [name]), None)


def dirty(top: str) -> bool | None:
    """Does a checkout differ from its commit? Asked as its owner, never as root."""
    try:
        owner = pwd.getpwuid(os.stat(top).st_uid).pw_name
    except (OSError, KeyError):
        return None
    words = ["env", "-i", "PATH=/usr/bin:/bin", "git", "-C", top, "status", "--porcelain"]
    as_owner = ["runuser", "-u", owner, "--"] if owner != "root" else []
    code, out, _err = run([*as_owner, *words], 30)
    return bool(out.strip()) if code == 0 else None
