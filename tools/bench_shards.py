"""How fast model files are verified, against what this machine can do and against other tools.

    python tools/bench_shards.py [--folder FOLDER] [--gib N]

Makes a model of 120 files larger than a quarter of memory below FOLDER (the user's cache folder),
reads it with each tool after its pages were dropped, and removes it. The limit is the smaller of
the disk's read rate (the better of two measurements around ours: dd with O_DIRECT, several at a
time) and what `openssl speed sha256` reaches on all cores. Exit status 1 when ours is below 0.9 of
the limit, or when the page cache grew by 1 % of the bytes or more. The figures go to
reports/bench_shards.json too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from facts.run.program import PROGRAM
from lab.services.hub import Hub

REPORT = Path(__file__).parents[1] / "reports" / "bench_shards.json"
FILES = 120
BLOCK_BYTES = 4 << 20
SMALLEST_RATE = 0.9
LARGEST_GROWTH = 0.01
SPEED_S = 3
REPOSITORY = "bench/model"
# The on-host program's own verification, with its records in the folder instead of /var/lib.
OURS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from model import proofs, shards
from run import detached
proofs.RECORDS = sys.argv[2]
request = json.load(sys.stdin)
print(json.dumps(shards.verify(request, detached.Count("read"))))
"""
UNCHANGED = """
import sys
sys.path.insert(0, sys.argv[1])
from model import proofs, shards
proofs.RECORDS = sys.argv[2]
print(shards.state(sys.argv[3], sys.argv[4]))
"""


@dataclass(frozen=True)
class Took:
    """One reading of the whole model."""

    name: str
    seconds: float
    cached_bytes: int

    def rate(self, size: int) -> float:
        return size / self.seconds


def cached_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Cached:")) * 1024


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def make(folder: Path, size: int) -> list[dict[str, Any]]:
    """120 files of random bytes, on the disk; their manifest."""
    folder.mkdir()
    entries = []
    for number in range(FILES):
        path, digest = (
            folder / f"model-{number + 1:05d}-of-{FILES:05d}.safetensors",
            hashlib.sha256(),
        )
        with path.open("wb") as file:
            left = size // FILES
            while left:
                block = os.urandom(min(BLOCK_BYTES, left))
                digest.update(block)
                file.write(block)
                left -= len(block)
            file.flush()
            os.fsync(file.fileno())
        entry = {"name": path.name, "size": path.stat().st_size, "sha256": digest.hexdigest()}
        entries.append(entry)
    return entries


def forget(folder: Path) -> None:
    """Drop the model's pages, so that the next one reads the disk."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(name: str, folder: Path, act: Callable[[], object]) -> Took:
    click.echo(name, err=True)
    forget(folder)
    before, began = cached_bytes(), time.monotonic()
    act()
    return Took(name, time.monotonic() - began, cached_bytes() - before)


def run(*line: str, text: str = "", **environment: str) -> str:
    """What a tool prints; RuntimeError when it fails."""
    done = subprocess.run(
        line,
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(line[:3])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def disk_rate(folder: Path, size: int, cores: int) -> float:
    """Bytes a second of dd with O_DIRECT, one, or two for each core, at a time: the better."""
    names = "\n".join(map(str, sorted(folder.iterdir())))
    copy = "dd if={} of=/dev/null bs=4M iflag=direct status=none"
    rates = []
    for streams in (1, 2 * cores):
        line = ("xargs", "-P", str(streams), "-I", "{}", *copy.split())
        rates.append(timed("dd", folder, partial(run, *line, text=names)).rate(size))
    return max(rates)


def hash_rate(cores: int) -> float:
    """Bytes a second of OpenSSL's SHA-256 on all cores, as `openssl speed` tells it."""
    words = ["-multi", str(cores), "-bytes", str(BLOCK_BYTES), "-seconds", str(SPEED_S), "sha256"]
    last = run("openssl", "speed", *words).strip().splitlines()[-1].split()
    return float(last[-1].removesuffix("k")) * 1000


def measure(top: Path, size: int) -> dict[str, Any]:
    cores, folder = len(os.sched_getaffinity(0)), top / "model"
    click.echo(f"making {size / 2**30:.2f} GiB in {FILES} files", err=True)
    entries = make(folder, size)
    total = sum(e["size"] for e in entries)
    request = {"directory": str(folder), "lock": "bench", "entries": entries, "full": True}
    asked = json.dumps(request | {"links": "follow", "mount": None})
    sums = "".join(f"{e['sha256']}  {folder / e['name']}\n" for e in entries)
    names = "\n".join(str(folder / e["name"]) for e in entries)
    ours = (sys.executable, "-I", "-c", OURS, str(PROGRAM), str(top / "records"))

    def verify() -> None:
        answer = json.loads(run(*ours, text=asked))
        if answer["faults"] or answer["bytes"] != total:
            raise RuntimeError(f"ours: {answer['faults'][:3]}, {answer['bytes']} bytes read")

    hashing = hash_rate(cores)
    before = disk_rate(folder, total, cores)
    took = [timed("ours", folder, verify)]
    disk = max(before, disk_rate(folder, total, cores))
    unchanged = time.monotonic()
    again = (sys.executable, "-I", "-c", UNCHANGED, str(PROGRAM), str(top / "records"))
    state = run(*again, str(folder), "bench").strip()
    unchanged = time.monotonic() - unchanged
    if state != "verified":
        raise RuntimeError(f"the unchanged model is {state}")
    each = ("xargs", "-P", str(cores), "-n", "1", "openssl", "dgst", "-sha256")
    took.append(timed("xargs -P openssl", folder, lambda: run(*each, text=names)))
    took.append(timed("sha256sum", folder, lambda: run("sha256sum", "--quiet", "-c", text=sums)))
    with Hub() as hub:
        files = {entry["name"]: folder / entry["name"] for entry in entries}
        revision = hub.publish(REPOSITORY, files)
        published = hub.repositories[REPOSITORY].revisions[revision]
        for entry in entries:  # the server would hash them when it is asked, on the same disk
            published[entry["name"]].__dict__["sha256"] = entry["sha256"]
        line = ("hf", "cache", "verify", REPOSITORY, "--local-dir", str(folder))
        place = str(Path(sys.executable).parent / line[0])
        took.append(
            timed(
                "hf cache verify",
                folder,
                lambda: run(place, *line[1:], "--revision", revision, HF_ENDPOINT=hub.url),
            )
        )
    limit = min(disk, hashing)
    return {
        "bytes": total,
        "memory_bytes": memory_bytes(),
        "disk_bytes_s": round(disk),
        "openssl_bytes_s": round(hashing),
        "of_limit": round(took[0].rate(total) / limit, 3),
        "cached_growth": round(took[0].cached_bytes / total, 5),
        "unchanged_s": round(unchanged, 3),
        "tools": {
            one.name: {
                "seconds": round(one.seconds, 1),
                "bytes_s": round(one.rate(total)),
                "cached_bytes": one.cached_bytes,
            }
            for one in took
        },
    }


@click.command(help=__doc__.splitlines()[0])
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=None)
@click.option("--gib", type=float, default=None, help="Size of the model (memory/4 and a tenth).")
def main(folder: Path | None, gib: float | None) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    size = int(gib * 2**30) if gib else int(memory_bytes() * 0.275)
    base = folder or cache
    base.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(base).free < 2 * size:
        raise click.ClickException(f"{base}: {2 * size / 2**30:.1f} GiB free needed")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the files go too
    with tempfile.TemporaryDirectory(prefix="spark-bench-", dir=base) as top:
        found = measure(Path(top), size)
    for name, one in found["tools"].items():
        click.echo(
            f"{name:<18} {one['seconds']:7.1f} s  {one['bytes_s'] / 1e6:7.0f} MB/s  "
            f"page cache {one['cached_bytes'] / 2**20:+8.1f} MiB"
        )
    click.echo(
        f"limit: disk {found['disk_bytes_s'] / 1e6:.0f} MB/s, openssl on all cores "
        f"{found['openssl_bytes_s'] / 1e6:.0f} MB/s; ours is {found['of_limit']:.2f} of it\n"
        f"unchanged, {FILES} files: {found['unchanged_s']:.2f} s"
    )
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(found, indent=2) + "\n")
    good = found["of_limit"] >= SMALLEST_RATE and found["cached_growth"] < LARGEST_GROWTH
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
