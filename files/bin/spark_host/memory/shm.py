"""Segments in /dev/shm: which are left over by a dead engine, and removing those.

An engine leaves segments behind when it dies (seed 002, step 2); on unified memory they count
against the next bind. A segment that any process maps or holds open is live and stays, whatever its
name; so does everything that is not a regular file. What nobody holds and no pattern knows is said
to be dead, and stays: it may be somebody's who only comes back to it later.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from typing import Any

from run import processes

FOLDER = "/dev/shm"
# Name of a segment -> who makes it, and where that was seen.
PATTERNS = {
    "psm_*": "Python's multiprocessing.shared_memory (Lib/multiprocessing/shared_memory.py)",
    "sem.*": "POSIX semaphores (sem_overview(7)); Python's are sem.mp-*",
    "mp-*": "Python's multiprocessing (Lib/multiprocessing/synchronize.py)",
    "torch_*": "PyTorch's shared tensors (torch/lib/libshm)",
    "nccl-*": "NCCL's transport between processes (src/misc/shmutils.cc)",
    "cuda.shm.*": "the CUDA driver's own channel between processes",
    "sgl_shm_*": "SGLang's shared tensors between its processes",
    "vllm*": "vLLM",
    "lmcache_*": "LMCache's pool in host memory",
    "ucx_shm_posix_*": "UCX's shared memory (src/uct/sm/mm/posix)",
}


def held_open() -> set[str]:
    """Paths under /dev/shm that some process maps or has open."""
    found = set()
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/maps", errors="replace") as file:
                for line in file:
                    at = line.find(FOLDER + "/")
                    if at >= 0:
                        found.add(line[at:].rstrip("\n"))
        except OSError:
            pass
        # A busy process closes some while they are read: the others count all the same.
        for target in processes.links(f"/proc/{pid}/fd"):
            if target.startswith(FOLDER + "/"):
                found.add(target)
    return found


def segments() -> list[dict[str, Any]]:
    """[{name, bytes, verdict, dead}]: verdict is leftover, live, foreign or special; dead: nobody
    holds it."""
    # Names first: a segment that is made while the processes are looked at is not judged at all.
    names = sorted(os.listdir(FOLDER))
    live = held_open()
    found = []
    for name in names:
        path = f"{FOLDER}/{name}"
        try:
            info = os.lstat(path)
        except FileNotFoundError:
            continue
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in PATTERNS):
            verdict = "foreign"
        elif not stat.S_ISREG(info.st_mode):
            verdict = "special"
        else:
            verdict = "live" if path in live else "leftover"
        dead = stat.S_ISREG(info.st_mode) and path not in live
        found.append({"name": name, "bytes": info.st_size, "verdict": verdict, "dead": dead})
    return found


def clean() -> dict[str, list[dict[str, Any]]]:
    """Remove the leftovers; what was removed is in the answer, what stayed as well."""
    removed = []
    for segment in segments():
        if segment["verdict"] == "leftover":
            try:
                os.unlink(f"{FOLDER}/{segment['name']}")
            except FileNotFoundError:
                continue  # somebody else was faster
            removed.append(segment)
    return {"removed": removed, "left": segments()}


def main(argv: list[str]) -> dict[str, list[dict[str, Any]]]:
    return clean() if argv and argv[0] == "clean" else {"segments": segments()}
