"""Model files against their manifest: names, sizes, SHA-256; without filling the page cache.

What a full read has proven is kept in /var/lib/spark-converge/shards with size, mtime_ns, ctime_ns
and inode of every file, so that an unchanged directory is confirmed without reading it again.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Container
from typing import Any

RECORDS = "/var/lib/spark-converge/shards"
CHUNK_BYTES = 1 << 22


def record_path(directory: str, lock: str) -> str:
    key = hashlib.sha256(f"{directory}\0{lock}".encode()).hexdigest()[:24]
    return f"{RECORDS}/{key}.json"


def identity(path: str) -> list[int]:
    info = os.stat(path)
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino]


def section(ask: dict[str, Any]) -> dict[str, str]:
    """{directory: "verified" | "changed" | "unverified" | "absent"} for each asked pair."""
    answer = {}
    for directory, lock in ask["shards"]:
        answer[directory] = state(directory, lock)
    return answer


def state(directory: str, lock: str) -> str:
    if not os.path.isdir(directory):
        return "absent"
    try:
        with open(record_path(directory, lock)) as file:
            files = dict(json.load(file)["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unverified"
    try:
        same = all(identity(f"{directory}/{name}") == was for name, was in files.items())
    except OSError:
        return "changed"
    return "verified" if same and extra(directory, files) == [] else "changed"


def extra(directory: str, wanted: Container[str]) -> list[str]:
    """Weight files beside the manifest's: an engine that globs *.safetensors would load them."""
    return sorted(
        n for n in os.listdir(directory) if n.endswith(".safetensors") and n not in wanted
    )


def sha256(path: str) -> str:
    """Digest of one file; its pages leave the cache behind the reader."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        fd = file.fileno()
        done = 0
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            os.posix_fadvise(fd, done, len(chunk), os.POSIX_FADV_DONTNEED)
            done += len(chunk)
    return digest.hexdigest()


class Fault(Exception):
    """A sentence that names a file and says what is wrong with it."""


def prove(directory: str, entry: dict[str, Any]) -> list[int]:
    """The identity that the file had while it was read and found right; raises Fault.

    A size of null in the manifest is one that no source gives; the hash decides.
    """
    name, path = entry["name"], f"{directory}/{entry['name']}"
    try:
        info = os.stat(path)
    except FileNotFoundError:
        what = "a dangling link" if os.path.islink(path) else "missing"
        raise Fault(f"{name}: {what}") from None
    except OSError as error:
        raise Fault(f"{name}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(info.st_mode):
        raise Fault(f"{name}: not a regular file")
    if entry["size"] not in (None, info.st_size):
        raise Fault(f"{name}: {info.st_size} bytes found, {entry['size']} expected")
    try:
        before = identity(path)
        found = sha256(path)
        after = identity(path)
    except OSError as error:
        raise Fault(f"{name}: cannot be read ({error.strerror})") from None
    if after != before:
        raise Fault(f"{name}: changed while it was read")
    if found != entry["sha256"]:
        raise Fault(f"{name}: SHA-256 {found} found, {entry['sha256']} expected")
    return before


def verify(
    directory: str,
    lock: str,
    entries: list[dict[str, Any]],
    tell: Callable[[int, int, float], None],
) -> dict[str, Any]:
    """Check every entry; the record is written only when all are right."""
    total = sum(e["size"] or 0 for e in entries)
    if not os.path.isdir(directory):
        return {"ok": False, "faults": [f"{directory}: no such directory"], "bytes": 0, "files": 0}
    began, done_bytes, faults, proven, told = time.monotonic(), 0, [], {}, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = {pool.submit(prove, directory, entry): entry for entry in entries}
        for job in concurrent.futures.as_completed(jobs):
            try:
                proven[jobs[job]["name"]] = job.result()
            except Fault as fault:
                faults.append(str(fault))
            done_bytes += jobs[job]["size"] or 0
            if time.monotonic() - told > 2:
                told = time.monotonic()
                tell(done_bytes, total, told - began)
    faults += [
        f"{name}: not in the manifest" for name in extra(directory, {e["name"] for e in entries})
    ]
    if not faults:
        keep(directory, lock, proven)
    return {
        "ok": not faults,
        "faults": sorted(faults),
        "bytes": done_bytes,
        "files": len(entries),
        "seconds": round(time.monotonic() - began, 2),
    }


def keep(directory: str, lock: str, files: dict[str, list[int]]) -> None:
    """files: name -> identity as it was when it was read, not as it may be by now."""
    os.makedirs(RECORDS, mode=0o755, exist_ok=True)
    path = record_path(directory, lock)
    with open(path + ".new", "w") as file:
        json.dump({"directory": directory, "lock": lock, "files": files}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def main(argv: list[str]) -> dict[str, Any]:
    """verify DIRECTORY LOCK < entries.json: progress lines go to standard error."""
    directory, lock = argv[1], argv[2]
    entries = json.load(sys.stdin)

    def tell(done: int, total: int, seconds: float) -> None:
        left_s = seconds * (total - done) / done if done else 0
        sys.stderr.write(f"{done}/{total} bytes, about {left_s:.0f} s left\n")
        sys.stderr.flush()

    return verify(directory, lock, entries, tell)
