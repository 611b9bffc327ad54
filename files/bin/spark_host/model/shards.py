"""Model files against their manifest: names, sizes, SHA-256; without filling the page cache.

run SECONDS < request   start the work in a unit of its own or join it; the answer, or how far it is
poll SECONDS            the same question later
stop                    end it; what was read so far is kept
here                    the work itself, in the unit

request: {"directory", "lock", "entries": [{"name", "size", "sha256"}], "full",
          "links": "follow" | "materialise", "mount": {"outside", "inside"} or null}
    full: read every byte, whatever earlier reads have shown
    links: whether a link counts as the file it leads to
    mount: the folder that the engine's container sees, and under which name

The manifest is the authority; every file that is not what it names is said in one pass.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Container
from typing import Any

from run import detached
from run.detached import Count, Work

from model import names, place, proofs, reading
from model.proofs import identity

# A file written within this time may change once more without a change of its ctime, which moves
# with the kernel's tick (10 ms at the slowest).
TICK_S = 0.02
INDEX = ".safetensors.index.json"
INDEX_BYTES = 64 << 20  # that of a model of 700 GB has 10 MB
POINTER, POINTER_BYTES = b"version https://git-lfs", 1024


def section(ask: dict[str, Any]) -> dict[str, str]:
    """{directory: "verified" | "changed" | "unverified" | "absent"} for each asked pair."""
    return {directory: state(directory, lock) for directory, lock in ask["shards"]}


def state(directory: str, lock: str) -> str:
    if not os.path.isdir(directory):
        return "absent"
    files = proofs.recorded(directory, lock)
    if not files:
        return "unverified"
    try:
        same = all(identity(f"{directory}/{name}") == was for name, was in files.items())
        strays = extra(directory, files) or stray_indexes(directory, files)
        return "verified" if same and not strays else "changed"
    except OSError:
        return "changed"


def extra(directory: str, wanted: Container[str]) -> list[str]:
    """Weight files beside the manifest's: an engine that globs *.safetensors would load them."""
    return sorted(
        n for n in os.listdir(directory) if n.endswith(".safetensors") and n not in wanted
    )


class Fault(Exception):
    """A sentence that says what is wrong with a file."""


def there(path: str, entry: dict[str, Any], request: dict[str, Any]) -> list[Any]:
    """The identity of a regular file of the right size where one is wanted; raises Fault.

    A size of null in the manifest is one that no source gives; the hash decides.
    """
    link = os.path.islink(path)
    try:
        info = os.stat(path)
    except FileNotFoundError:
        raise Fault("a dangling link" if link else "missing") from None
    except OSError as error:
        raise Fault(f"cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(info.st_mode):
        raise Fault("not a regular file")
    if link and request["links"] == "materialise":
        raise Fault("a link; the stack needs a file of its own")
    mount = request["mount"]
    unseen = place.why_unseen(path, mount["outside"], mount["inside"]) if mount else None
    if unseen:
        raise Fault(f"the container does not find it: {unseen}")
    if entry["size"] != info.st_size and is_pointer(path, info.st_size):
        raise Fault(f"a git-lfs pointer of {info.st_size} bytes found, the file itself expected")
    if entry["size"] not in (None, info.st_size):
        raise Fault(f"{info.st_size} bytes found, {entry['size']} expected")
    return identity(path)


def is_pointer(path: str, size: int) -> bool:
    """What a git clone without git-lfs leaves in the place of a large file."""
    if size > POINTER_BYTES:
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False


def read_through(path: str, count: Callable[[int], None]) -> tuple[list[Any], str]:
    """(identity, SHA-256) of a file that stayed the same while it was read; raises Fault."""
    try:
        before = identity(path)
        if time.time() - before[2] / 1e9 < TICK_S:
            time.sleep(TICK_S)
            before = identity(path)
        found = reading.sha256(path, count)
        after = identity(path)
    except OSError as error:
        raise Fault(f"cannot be read ({error.strerror})") from None
    if after != before:
        raise Fault("changed while it was read")
    return before, found


def judge(entry: dict[str, Any], found: str) -> None:
    if found != entry["sha256"]:
        raise Fault(f"SHA-256 {found} found, {entry['sha256']} expected")


def index_faults(directory: str, wanted: Container[str]) -> dict[str, str]:
    """{index file: why}: one that names other weights than the manifest misleads an engine."""
    why = {name: index_fault(f"{directory}/{name}", wanted) for name in indexes(directory)}
    return {name: said for name, said in why.items() if said}


def indexes(directory: str) -> list[str]:
    return sorted(n for n in os.listdir(directory) if n.endswith(INDEX) and n[0] != ".")


def index_fault(path: str, wanted: Container[str]) -> str | None:
    try:
        if not os.path.isfile(path):  # a pipe would never end
            raise ValueError
        with open(path, encoding="utf-8") as file:
            text = file.read(INDEX_BYTES + 1)
        if len(text) > INDEX_BYTES:
            raise ValueError
        named = sorted(set(json.loads(text)["weight_map"].values()))
        if any(not isinstance(name, str) for name in named):
            raise ValueError
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None if os.path.basename(path) in wanted else "not an index of weights"
    strange = [place.shown(n)[:120] for n in named if n not in wanted]
    if not strange:
        return None
    more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
    return f"names what the manifest has not: {', '.join(strange[:3])}{more}"


def stray_indexes(directory: str, files: Container[str]) -> list[str]:
    """Indexes beside the manifest's that mislead; those of the manifest stand in the record."""
    beside = [name for name in indexes(directory) if name not in files]
    return [name for name in beside if index_fault(f"{directory}/{name}", files)]


class Verification:
    """One pass over a directory. faults: name -> sentence; proven: name -> identity."""

    def __init__(self, request: dict[str, Any], count: Count) -> None:
        names.checked(request["entries"], [])
        self.request, self.count = request, count
        self.directory = names.folder(request["directory"])
        self.entries: list[dict[str, Any]] = request["entries"]
        self.faults: dict[str, str] = {}
        self.proven: dict[str, list[Any]] = {}
        self.remembered_bytes = 0

    def path(self, entry: dict[str, Any]) -> str:
        return f"{self.directory}/{entry['name']}"

    def glance(self) -> list[tuple[int, dict[str, Any]]]:
        """What must be read, as (bytes, entry), the largest first: no core waits at the end."""
        known = {} if self.request["full"] else proofs.load(self.directory)
        self.known = {}
        todo = []
        for entry in self.entries:
            name = entry["name"]
            try:
                now = there(self.path(entry), entry, self.request)
                proof = known.get(name)
                if not proof or proof["identity"] != now:
                    todo.append((now[0], entry))
                    continue
                self.known[name] = proof
                self.remembered_bytes += now[0]
                judge(entry, proof["sha256"])
                self.proven[name] = now
            except Fault as fault:
                self.faults[name] = str(fault)
        return sorted(todo, key=lambda one: (-one[0], one[1]["name"]))

    def read(self, entry: dict[str, Any], book: proofs.Book) -> None:
        name = entry["name"]
        try:
            then, found = read_through(self.path(entry), self.count.add)
            book.add(name, then, found)
            judge(entry, found)
            self.proven[name] = then
        except Fault as fault:
            self.faults[name] = str(fault)

    def run(self) -> None:
        import concurrent.futures  # noqa: PLC0415 - not loaded by every read of the host

        todo = self.glance()
        self.count.total = sum(size for size, _ in todo)
        book = proofs.Book(self.directory, self.known)
        try:
            with concurrent.futures.ThreadPoolExecutor(reading.workers()) as pool:
                for job in [pool.submit(self.read, entry, book) for _, entry in todo]:
                    job.result()
        finally:
            book.close()


def verify(request: dict[str, Any], count: Count) -> dict[str, Any]:
    """Check every entry; the record is written only when all are right.

    The answer: ok; faults as sentences; wrong: names of the manifest that are not right; extra:
    names that must not lie there; beside: other files, and left: what downloads and other revisions
    take, both only told; bytes: read now, remembered_bytes: read earlier; files, seconds.
    """
    one = Verification(request, count)
    directory, named = one.directory, {e["name"] for e in request["entries"]}
    if not os.path.isdir(directory):
        nowhere = f"{directory}: no such directory"
        return answer_of(one, {}, [], sorted(named)) | {"ok": False, "faults": [nowhere]}
    one.run()
    wrong = sorted(one.faults)
    strays = dict.fromkeys(extra(directory, named), "not in the manifest")
    for name, why in index_faults(directory, named).items():
        if name not in named:
            strays[name] = f"not in the manifest, and {why}"
        else:
            one.faults.setdefault(name, why)  # the lock's own fault: no other bytes would help
    beside = sorted(
        n
        for n in os.listdir(directory)
        if n not in named and n not in strays and n[0] != "." and not n.endswith(place.PART)
    )
    if not one.faults and not strays:
        proofs.keep(directory, request["lock"], one.proven)
    return answer_of(one, strays, beside, wrong)


def answer_of(
    one: Verification, strays: dict[str, str], beside: list[str], wrong: list[str]
) -> dict[str, Any]:
    faults = {**one.faults, **strays}
    return {
        "ok": not faults,
        "faults": [f"{place.shown(name)}: {why}" for name, why in sorted(faults.items())],
        "wrong": wrong,
        "extra": sorted(strays),
        "beside": [place.shown(name) for name in beside],
        "left": place.leftovers(one.directory),
        "bytes": one.count.done,
        "remembered_bytes": one.remembered_bytes,
        "files": len(one.entries),
        "seconds": one.count.progress()["seconds"],
    }


def subject(request: dict[str, Any]) -> str:
    how = "full read" if request["full"] else "read"
    return f"a {how} of {request['directory']} against lock {request['lock'][:12]}"


def main(argv: list[str]) -> dict[str, Any]:
    work = Work("shards", subject, verify, lambda _: Count("read"), apart=("fetch", "survey"))
    return detached.command(work, argv)
