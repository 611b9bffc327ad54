"""What a model lacks on this host, and only that, brought into its place.

run SECONDS < request   start the work in a unit of its own or join it; the answer, or how far it is
poll SECONDS            the same question later
stop                    end it; a later one goes on from the part files
here                    the work itself, in the unit

request: {"directory", "lock", "entries": [{"name", "size", "sha256"}] of what is wanted,
          "extra": [name] that must not lie there, "root": the folder of all models,
          "repository", "revision",
          "source": {"said", "urls": {name: url}, "token", "lent"} or null}
    lent: the source is another host of this cluster, which made the token for this one run

First what this host has elsewhere (a Hugging Face cache, the file behind a link): by reflink or
hard link where the file system can, so that nothing is copied. The rest comes from the source, into
NAME.spark-converge-part beside its place; it is hashed as it arrives and moved into place whole.
Bytes that are not the wanted ones are thrown away and asked for once more. Below a folder of
somebody else's, all of it follows no link that is put there meanwhile (see homes.py).
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
from typing import Any

from run import detached, homes, journal
from run.command import Failed
from run.detached import Count, Work

from model import aside, download, names, place, proofs, reading
from model.proofs import identity

SENT = ("token", "lent")  # of what a request says of its source
STREAMS = 4  # files at a time: one waits for the disk or the far end while another one arrives


class Fetch:
    """One run. Names of files by what became of them."""

    def __init__(self, request: dict[str, Any], count: Count) -> None:
        names.checked(request["entries"], request["extra"])
        self.request, self.count = request, count
        self.directory = names.folder(request["directory"])
        self.cache = place.cache_of(self.directory)
        self.store = f"{self.cache}/blobs" if self.cache else self.directory
        self.brought: dict[str, int] = {}
        self.local: dict[str, str] = {}
        self.aside: list[dict[str, str]] = []
        self.failed: dict[str, str] = {}
        self.known = proofs.load(self.directory)
        self._lock = threading.Lock()

    def target(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def bytes_path(self, entry: dict[str, Any]) -> str:
        """Where the bytes go: the file itself, or in a cache the blob that it links to."""
        if self.cache:
            return f"{self.store}/{entry['sha256']}"
        return self.target(entry["name"])

    def part(self, entry: dict[str, Any]) -> str:
        return self.bytes_path(entry) + place.PART

    def put(self, entry: dict[str, Any], there: str | None, book: proofs.Book) -> None:
        """Move a part that is proven into its place; there: that place's pinned path, None when a
        cache's blob is there already."""
        name, target = entry["name"], self.target(entry["name"])
        with self._lock:
            points = bool(self.cache) and blob_of(target) == self.bytes_path(entry)
            kept = None if points else aside.clear(self.directory, name, entry["sha256"])
            if kept:
                self.aside.append({"path": place.shown(target), "to": place.shown(kept)})
            if there:
                os.replace(there + place.PART, there)
                journal.sync_folder(os.path.dirname(there))
            if self.cache and not points:
                self.link(target, self.bytes_path(entry))
        book.add(name, identity(target), entry["sha256"])

    def link(self, target: str, to: str) -> None:
        """What a snapshot has of a blob."""
        with homes.pinned(target) as there:
            owner = homes.owner_above(there)
        journal.write_link(target, os.path.relpath(to, os.path.dirname(target)), owner)

    def sha256_of(self, fd: int, source: str, name: str) -> str:
        """As an earlier read of it in its place has shown, or read now; fd: of the source."""
        proof, now = self.known.get(name), proofs.numbers(os.fstat(fd))
        in_place = source == os.path.realpath(self.target(name))
        if proof and in_place and proof["identity"][: len(now)] == now:
            return str(proof["sha256"])
        before = self.count.done
        found = reading.sha256(place.by(fd), self.count.add)
        self.count.add(before - self.count.done)
        return found

    def from_here(self, entry: dict[str, Any], found: list[str], book: proofs.Book) -> bool:
        """Have the bytes from another place of this host; False when no place has them."""
        name, target = entry["name"], self.target(entry["name"])
        for source in place.candidates(
            target, name, entry["sha256"], found, self.request["revision"]
        ):
            fd = place.opened(source)
            if fd is None:
                continue
            try:
                if not self.holds(fd, source, entry):
                    continue
                self.local[name] = self.taken(fd, source, entry, book)
                self.count.add(os.path.getsize(target))
                return True
            finally:
                os.close(fd)
        return False

    def holds(self, fd: int, source: str, entry: dict[str, Any]) -> bool:
        """Whether an open file has the wanted bytes; one that cannot be read has none."""
        try:
            if entry["size"] not in (None, os.fstat(fd).st_size):
                return False
            return bool(self.sha256_of(fd, source, entry["name"]) == entry["sha256"])
        except OSError:
            return False

    def taken(self, fd: int, source: str, entry: dict[str, Any], book: proofs.Book) -> str:
        """Bring an open file of this host into place; how. It is never opened by name again: what
        lies there by then may not be what was proven."""
        if is_file(self.bytes_path(entry), fd):  # a cache's blob that nothing leads to
            self.put(entry, None, book)
            return "link"
        with homes.pinned(self.bytes_path(entry)) as there:
            how = place.shared(fd, there + place.PART)
            if how is None:
                self.copy(fd, source, there + place.PART, entry["sha256"])
            self.put(entry, there, book)
        return how or "copy"

    def copy(self, fd: int, source: str, part: str, sha256: str) -> None:
        if os.fstat(fd).st_size > free(self.store):
            raise Failed(f"no space in {self.store} for a copy of {source}")
        to = download.Part(part, lambda _: None)
        try:
            to.start_over()
            for block in reading.blocks(place.by(fd)):
                to.add(block)
            if to.digest.hexdigest() != sha256:
                raise Failed(f"{source} changed while it was copied")
            to.settle()
        except download.Unwritable as error:
            raise Failed(f"a copy of {source} cannot be made in {self.store}: {error}") from None
        finally:
            to.close()

    def from_source(
        self, entry: dict[str, Any], source: download.Source, book: proofs.Book
    ) -> None:
        name = entry["name"]
        try:
            with homes.pinned(self.bytes_path(entry)) as there:
                for again in (False, True):
                    try:
                        url = self.request["source"]["urls"][name]
                        source.fetch(url, there + place.PART, entry, self.count.add)
                        break
                    except download.Wrong:
                        if again:
                            raise
                self.put(entry, there, book)
            self.brought[name] = os.path.getsize(self.target(name))
        except download.Unwritable as error:
            self.failed[name] = f"{error}: {self.part(entry)}"
        except (download.Refused, download.Dropped, download.Wrong, Failed) as error:
            self.failed[name] = str(error)
        except ValueError as error:  # an address or an answer that is none
            self.failed[name] = f"odd answer of the source ({place.shown(str(error))[:120]})"
        except OSError as error:  # its own path may be a descriptor's
            self.failed[name] = f"{error.strerror or error}: {self.bytes_path(entry)}"

    def from_twin(self, entry: dict[str, Any], twin: str, book: proofs.Book) -> None:
        """Lead a name to the blob that came, or did not come, for another one."""
        if twin in self.failed:
            self.failed[entry["name"]] = f"the same bytes as {twin}"
            return
        self.put(entry, None, book)
        self.local[entry["name"]] = "link"
        self.count.add(os.path.getsize(self.bytes_path(entry)))

    def make_room(self, entries: list[dict[str, Any]]) -> None:
        """Raises Failed when the disk cannot take what comes, parts that are there counted in."""
        needed = sum(e["size"] or 0 for e in entries) - sum(size(self.part(e)) for e in entries)
        # A wrong file makes room only once its successor is there.
        wrong = [size(self.bytes_path(e)) for e in entries]
        needed -= sum(wrong) - sum(sorted(wrong)[-STREAMS:])
        left = free(self.store)
        if needed > left:
            raise Failed(
                f"{self.store}: {needed / 2**30:.2f} GiB needed for {len(entries)} files, "
                f"{left / 2**30:.2f} GiB free"
            )

    def run(self) -> int:
        """Do it; the bytes that crossed the network."""
        request = self.request
        journal.make_folder(self.directory, 0o755)
        journal.make_folder(self.store, 0o755)
        for name in request["extra"]:
            if os.path.lexists(self.target(name)):
                to = aside.keep(self.directory, name, "")
                self.aside.append({"path": place.shown(self.target(name)), "to": place.shown(to)})
        self.count.total = sum(e["size"] or 0 for e in request["entries"])
        found = place.caches(request["root"], request["repository"])
        source = download.Source(**{key: (request["source"] or {}).get(key) for key in SENT})
        book = proofs.Book(self.directory, self.known)
        try:
            left = []
            for entry in request["entries"]:
                journal.make_folder(os.path.dirname(self.target(entry["name"])), 0o755)
                if not self.from_here(entry, found, book):
                    left.append(entry)
            if request["source"]:
                # In a cache, names with the same bytes lead to one blob: it comes once.
                first = {self.bytes_path(e): e for e in reversed(left)}
                twins = [e for e in left if first[self.bytes_path(e)] is not e]
                self.make_room(list(first.values()))
                with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
                    jobs = [pool.submit(self.from_source, e, source, book) for e in first.values()]
                    for job in jobs:
                        job.result()
                for entry in twins:
                    self.from_twin(entry, first[self.bytes_path(entry)]["name"], book)
        finally:
            book.close()
        return source.moved


def blob_of(target: str) -> str | None:
    """The path that a link leads to in one step, None for what is not a link."""
    if not os.path.islink(target):
        return None
    return os.path.normpath(f"{os.path.dirname(target)}/{os.readlink(target)}")


def is_file(path: str, fd: int) -> bool:
    """Is this very file open there? A link to it is not."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def size(path: str) -> int:
    try:
        return os.stat(path).st_size if os.path.isfile(path) else 0
    except OSError:
        return 0


def free(directory: str) -> int:
    """Bytes that may be written there by others than root, as `df` shows them."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def fetch(request: dict[str, Any], count: Count) -> dict[str, Any]:
    """The answer: ok; brought: name -> bytes from the source; moved_bytes: all that crossed the
    network for it; local: name -> how; aside: what was moved out of the way; failed: sentences."""
    one = Fetch(request, count)
    moved = one.run()
    return {
        "ok": not one.failed,
        "brought": one.brought,
        "moved_bytes": moved,
        "local": one.local,
        "aside": one.aside,
        "failed": [f"{place.shown(name)}: {why}" for name, why in sorted(one.failed.items())],
        "seconds": count.progress()["seconds"],
    }


def subject(request: dict[str, Any]) -> str:
    return f"a fetch into {request['directory']} for lock {request['lock'][:12]}"


def main(argv: list[str]) -> dict[str, Any]:
    apart = ("shards", "survey")
    work = Work("fetch", subject, fetch, lambda _: Count("brought"), apart)
    return detached.command(work, argv)
