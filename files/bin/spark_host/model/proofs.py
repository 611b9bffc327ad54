"""What full reads have shown: the SHA-256 of files as they were, kept as each one is finished.

/var/lib/spark-converge/shards/<key>.proofs   one JSON line a file of a directory: name, identity,
                                              sha256; whatever the hash, so that an interrupted read
                                              goes on where it stopped
/var/lib/spark-converge/shards/<key>.json     a directory that was found to be what a lock names
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from typing import Any

RECORDS = "/var/lib/spark-converge/shards"


def identity(path: str) -> list[Any]:
    """Size, mtime_ns, ctime_ns and inode of what a path leads to, and the text of a link itself."""
    found = numbers(os.stat(path))
    return [*found, os.readlink(path)] if os.path.islink(path) else found


def numbers(info: os.stat_result) -> list[Any]:
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino]


def key(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]


def record_path(directory: str, lock: str) -> str:
    return f"{RECORDS}/{key(directory, lock)}.json"


def proofs_path(directory: str) -> str:
    return f"{RECORDS}/{key(directory)}.proofs"


def recorded(directory: str, lock: str) -> dict[str, list[Any]]:
    """{name: identity} of a directory that was found right; empty when it never was."""
    try:
        with open(record_path(directory, lock)) as file:
            return dict(json.load(file)["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def keep(directory: str, lock: str, files: dict[str, list[Any]]) -> None:
    """files: name -> identity as it was when it was read, not as it may be by now."""
    os.makedirs(RECORDS, mode=0o755, exist_ok=True)
    path = record_path(directory, lock)
    with open(path + ".new", "w") as file:
        json.dump({"directory": directory, "lock": lock, "files": files}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def load(directory: str) -> dict[str, dict[str, Any]]:
    """{name: {"identity", "sha256"}}; the line of a read that was cut off proves nothing."""
    found = {}
    try:
        with open(proofs_path(directory), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            one = json.loads(line)
            found[one["name"]] = {"identity": list(one["identity"]), "sha256": one["sha256"]}
    return found


class Book:
    """The proofs of one directory while some are added; `known` is what it begins with."""

    def __init__(self, directory: str, known: dict[str, dict[str, Any]]) -> None:
        os.makedirs(RECORDS, mode=0o755, exist_ok=True)
        path = proofs_path(directory)
        self._lock = threading.Lock()
        self._file = open(path + ".new", "w")  # noqa: SIM115 - closed by close()
        for name, proof in known.items():
            self._write(name, proof["identity"], proof["sha256"])
        os.fsync(self._file.fileno())
        os.replace(path + ".new", path)

    def add(self, name: str, found: list[Any], sha256: str) -> None:
        with self._lock:
            self._write(name, found, sha256)

    def _write(self, name: str, found: list[Any], sha256: str) -> None:
        self._file.write(json.dumps({"name": name, "identity": found, "sha256": sha256}) + "\n")
        self._file.flush()  # to the kernel: whoever kills this process loses nothing

    def close(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
