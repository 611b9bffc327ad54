"""Containers that run here, kept so that they can be made again, and made again.

/var/lib/spark-converge/adopted/<sum>/       readable by root only; <sum>: recipe.total of a rank
    kept.json     {"recipes": [...], "files": [{"path", "sha256"}], "checkout", "kept_at"}
    files/...     copies, each under the path that it had
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from typing import Any

from engines import containers, recipe
from engines.images import quoted
from run import journal
from run.command import Failed, run

from adopt import files

KEPT = "/var/lib/spark-converge/adopted"
TAGS = "spark-converge/kept"
NEEDED_BYTES = 64 << 20  # for copies of files of which each is a MiB at most
SUM = re.compile(r"[0-9a-f]{64}")


def folder(total: str) -> str:
    """Where a rank is kept; raises Failed for what is no digest."""
    if not SUM.fullmatch(total):
        raise Failed(f"{total!r} is no SHA-256")
    return f"{KEPT}/{total}"


def load(total: str) -> dict[str, Any]:
    """What is kept under a digest; raises Failed when it is gone or not what the digest says."""
    where = folder(total)
    try:
        with open(f"{where}/kept.json") as file:
            found: dict[str, Any] = json.load(file)
        same = recipe.total(found["recipes"]) == total
    except FileNotFoundError:
        raise Failed(f"{where}/kept.json is gone: the engine that ran before is not kept") from None
    except (ValueError, LookupError, TypeError):
        same = False
    if not same:
        raise Failed(f"{where}/kept.json is damaged: the engine that ran before is not kept")
    return found


def inspected(name: str) -> dict[str, Any]:
    status, one = containers.ask(f"/containers/{quoted(name)}/json")
    if status != 200:
        raise Failed(f"the docker daemon says {status} of the container {name}")
    return dict(one)


def room(path: str) -> int:
    """Bytes that are free where a path lies, or will lie."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    free = os.statvfs(path)
    return free.f_bavail * free.f_frsize


def keep(total: str, names: list[str]) -> dict[str, Any]:
    """{"folder", "files": number of copies, "unread": [path: why], "tags": [those that were put]}.

    total: what a look at the same containers said; raises Failed when they are others by now.
    """
    where = folder(total)
    if room(KEPT) < NEEDED_BYTES:
        raise Failed(f"less than {NEEDED_BYTES >> 20} MiB are free in {KEPT}: make room there")
    found = [inspected(name) for name in names]
    recipes = [recipe.recipe(one) for one in found]
    if recipe.total(recipes) != total:
        raise Failed(f"{', '.join(names)} changed since it was looked at; run this again")
    old = earlier(total)
    copied: dict[str, str] = {}
    unread = []
    for path in dict.fromkeys([*(path for one in found for path in files.of(one)), *old]):
        try:
            copied[path] = copy(path, f"{where}/files{path}")
        except FileNotFoundError:  # the copy of an earlier time, if there is one, is the only one
            if path in old:
                copied[path] = old[path]
        except (OSError, Failed) as error:
            unread.append(f"{path}: {getattr(error, 'strerror', None) or error}")
    document = {
        "recipes": recipes,
        "files": [{"path": path, "sha256": digest} for path, digest in copied.items()],
        "checkout": next((checkout for one in found if (checkout := files.checkout(one))), None),
        "kept_at": journal.utc(),
    }
    journal.make_folder(where, 0o700)
    journal.write(f"{where}/kept.json", json.dumps(document).encode(), 0o600)
    tags = [tag for one in found if (tag := tagged(one["Image"]))]
    return {"folder": where, "files": len(copied), "unread": unread, "tags": tags}


def earlier(total: str) -> dict[str, str]:
    """{path: SHA-256} of the copies that are there already."""
    try:
        return {one["path"]: one["sha256"] for one in load(total)["files"]}
    except Failed:
        return {}


def copy(path: str, target: str) -> str:
    """Copy a file, 0600; its SHA-256."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Failed("is no file")
        data = file.read(files.LIMIT_BYTES + 1)
    if len(data) > files.LIMIT_BYTES:
        raise Failed(f"is larger than {files.LIMIT_BYTES >> 20} MiB")
    journal.make_folder(os.path.dirname(target), 0o700)
    journal.write(target, data, 0o600)
    return hashlib.sha256(data).hexdigest()


def tagged(image: str) -> str | None:
    """Give an image that no registry has a name of ours, so that its next build or a prune of what
    has no name does not take it; None where it needs none, or has it already."""
    status, found = containers.ask(f"/images/{image}/json")
    if status != 200 or found.get("RepoDigests"):
        return None
    tag = f"{TAGS}:{image.rpartition(':')[2][:12]}"
    if tag in (found.get("RepoTags") or ()):
        return None
    journal.setting(f"imagetag.{tag}", "absent", image)
    code, _out, err = run(["docker", "tag", image, tag])
    if code:
        raise Failed(err.strip() or f"docker tag: exit status {code}")
    return tag


def reference(made: dict[str, Any]) -> str | None:
    """A name under which this host has the image of a recipe: as it was spelled where that still
    leads there, else its id; None when the image is gone."""
    for name in (made["config"].get("Image") or made["image"], made["image"]):
        status, found = containers.ask(f"/images/{quoted(name)}/json")
        if status == 200 and found["Id"] == made["image"]:
            return str(name)
    return None


def start(total: str) -> dict[str, Any]:
    """Make the containers of a rank and start them, in the order in which they once started."""
    for made in load(total)["recipes"]:
        name, image = made["name"], reference(made)
        if image is None:
            raise Failed(f"the image of {name} ({made['image']}) is gone")
        body = recipe.body(made, image)
        status, said = containers.tell(f"/containers/create?name={quoted(name)}", body)
        if status != 201:
            raise Failed(f"{name} could not be made: {(said or {}).get('message', status)}")
        status, found = containers.tell(f"/containers/{said['Id']}/start")
        if status not in (204, 304):
            raise Failed(f"{name} could not be started: {(found or {}).get('message', status)}")
    return {}


def main(argv: list[str]) -> dict[str, Any]:
    """keep SUM NAME...; start SUM"""
    action, total, *names = argv
    if action == "keep":
        with journal.alone():
            return keep(total, names)
    if action == "start":
        return start(total)
    raise ValueError(f"unknown action {action}")
