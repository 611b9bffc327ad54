"""The write-ahead journal: the original of everything before its first change, on the host itself.

/var/lib/spark-converge/journal/, each document sealed with its sum (sealed.py)
    files/<key>.json     {"path", <content>, "saved_at", "ours", "written", "tag", "edits", "made"}
    settings/<key>.json  {"name", "value", "saved_at", "ours"}: units, governors, sysctls, links ...
    pending.json         only while systemctl makes and removes links (see links.py)

<content> is {"existed": false}, or {"existed": true, "mode", "uid", "gid"} with "b64" and "xattrs"
of a file or "link" of a symbolic link. The original is written once (the first touch). "ours" are
the fingerprints of all that was put there since, "written" the last bytes, "tag" the word before
held lines, "edits" what somebody else had put there before it was written over again, "made" the
folders that were not there before.

An entry is on the disk, folder included, before the change that it belongs to.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from run import homes, sealed
from run.command import Failed

ROOT = "/var/lib/spark-converge/journal"
ABSENT = {"existed": False}
LOCK_S = 400  # stopping services may take 300 s


def utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def entry_path(kind: str, name: str) -> str:
    readable = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-80:]
    return f"{ROOT}/{kind}/{readable}.{hashlib.sha256(name.encode()).hexdigest()[:12]}.json"


def sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: str, mode: int) -> None:
    """Make a folder and its missing parents, each on the disk before the next.

    In a home they belong to whom the folder above belongs, like all there.
    """
    if os.path.isdir(folder):
        return
    make_folder(os.path.dirname(folder), 0o755)
    with homes.pinned(folder) as there:
        with contextlib.suppress(FileExistsError):
            os.mkdir(there, mode)
            if there != folder:
                homes.hand_over(there, folder)
        sync_folder(os.path.dirname(there))


def remove_folder(folder: str) -> None:
    """Only an empty one: somebody else uses it by now otherwise."""
    with contextlib.suppress(OSError, Failed), homes.pinned(folder) as there:
        os.rmdir(there)


_locks: list[int] = []  # the descriptor that holds the lock, while this process has it


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One process changes this host at a time; raises Failed when another one does not end.

    What a killed run had asked for goes on here while the next run already asks for more.
    """
    if _locks:
        yield
        return
    folder = os.path.dirname(ROOT)
    make_folder(folder, 0o755)
    fd = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Failed(
                        f"another spark-host has been at work for {LOCK_S} s: see `ps -ef | grep "
                        "spark_host`, end it, then run this again"
                    ) from None
                time.sleep(0.1)
        _locks.append(fd)
        yield
    finally:
        _locks.clear()
        os.close(fd)


def missing_folders(path: str) -> list[str]:
    """The folders above a path that are not there yet, the innermost first."""
    found = []
    folder = os.path.dirname(path)
    while folder and not os.path.isdir(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def new_path(path: str) -> str:
    """Where the next version of a file is prepared; an interrupted write may leave one behind."""
    return f"{os.path.dirname(path)}/.{os.path.basename(path)}.spark-converge-new"


def write(
    path: str,
    data: bytes,
    mode: int,
    owner: tuple[int, int] | None = None,
    xattrs: dict[str, str] | None = None,
) -> None:
    """Put bytes in place whole or not at all; safe against a power cut."""
    with homes.pinned(path) as there:
        _write(there, data, mode, owner, xattrs)


def _write(
    path: str,
    data: bytes,
    mode: int,
    owner: tuple[int, int] | None,
    xattrs: dict[str, str] | None,
) -> None:
    new = new_path(path)
    # What a cut-off write left is not written into: in the sticky folder of the crontabs the kernel
    # (fs.protected_regular) forbids that even to root, once the file is its user's.
    if os.path.lexists(new):
        os.unlink(new)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        if owner:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        for name, value in (xattrs or {}).items():
            os.setxattr(file.fileno(), name, base64.b64decode(value))
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(os.path.dirname(path))


def write_link(path: str, target: str, owner: tuple[int, int]) -> None:
    """Put a symbolic link in place of whatever is there."""
    with homes.pinned(path) as there:
        new = new_path(there)
        if os.path.lexists(new):
            os.unlink(new)
        os.symlink(target, new)
        os.lchown(new, *owner)
        os.replace(new, there)
        sync_folder(os.path.dirname(there))


def take_away(path: str) -> None:
    """Unlink a file or link, if it is there."""
    with contextlib.suppress(FileNotFoundError), homes.pinned(path) as there:
        if os.path.lexists(there):
            os.unlink(there)
            sync_folder(os.path.dirname(there))


def xattrs_of(fd: int) -> dict[str, str]:
    """{name: base64}; none on a file system that has no such thing."""
    try:
        names = os.listxattr(fd)
        return {n: base64.b64encode(os.getxattr(fd, n)).decode() for n in names}
    except OSError:
        return {}


def content(path: str) -> dict[str, Any]:
    """What is at a path now; raises OSError for what is neither a file nor a link."""
    try:
        with homes.pinned(path) as there:
            info = os.lstat(there)
            if stat.S_ISLNK(info.st_mode):
                return {**owned(info), "link": os.readlink(there)}
            if not stat.S_ISREG(info.st_mode):
                raise OSError(f"{path} is neither a file nor a link")
            # Not what a link that took its place meanwhile leads to: undo would hand that out.
            fd = os.open(there, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return dict(ABSENT)
    with os.fdopen(fd, "rb") as file:
        found = owned(os.fstat(fd))
        data = base64.b64encode(file.read()).decode()
        return {**found, "b64": data, "xattrs": xattrs_of(fd)}


def owned(info: os.stat_result) -> dict[str, Any]:
    mode = stat.S_IMODE(info.st_mode)
    return {"existed": True, "mode": mode, "uid": info.st_uid, "gid": info.st_gid}


def fingerprint(found: dict[str, Any]) -> str:
    """Tells two contents apart by bytes, mode and owner, or by a link's target."""
    if not found["existed"]:
        return "absent"
    owner = f"{found['uid']}:{found['gid']}"
    if "link" in found:
        return f"link:{owner}:{found['link']}"
    digest = hashlib.sha256(base64.b64decode(found["b64"])).hexdigest()
    return f"file:{found['mode']:o}:{owner}:{digest}"


def load(kind: str, name: str) -> dict[str, Any] | None:
    """The entry, None when there is none; raises ValueError naming a damaged one."""
    try:
        return opened(kind, entry_path(kind, name))
    except FileNotFoundError:
        return None


def opened(kind: str, path: str) -> dict[str, Any]:
    """Raises FileNotFoundError, and ValueError naming an entry that is damaged, or not its own."""
    word = "path" if kind == "files" else "name"

    def is_whole(entry: Any) -> bool:
        return sealed.FORMS[kind](entry) and entry_path(kind, entry[word]) == path

    return sealed.opened(path, is_whole)


def store(kind: str, name: str, entry: dict[str, Any]) -> None:
    path = entry_path(kind, name)
    make_folder(ROOT, 0o700)
    make_folder(os.path.dirname(path), 0o700)
    write(path, sealed.seal(entry), 0o600)


def record(path: str, found: dict[str, Any], then: dict[str, Any], tag: str | None = None) -> None:
    """Note, before the change, that a path goes from one content to another.

    What was found and is neither the original nor ours was edited by somebody: it is kept too.
    """
    entry = load("files", path)
    if entry is None:
        entry = {"path": path, **found, "saved_at": utc(), "ours": [], "edits": []}
        entry["made"] = missing_folders(path)
    known = (fingerprint(entry), *entry["ours"], *map(fingerprint, entry["edits"]))
    if fingerprint(found) not in known:
        entry["edits"].append({**found, "found_at": utc()})
    mark = fingerprint(then)
    entry["ours"] = [m for m in entry["ours"] if m != mark] + [mark]
    entry["written"] = then.get("b64")
    entry["tag"] = tag or entry.get("tag")
    store("files", path, entry)


def setting(name: str, value: str, ours: str) -> None:
    """Keep how a setting was found (the first value wins) and what it is set to now."""
    with alone():
        entry = load("settings", name)
        if entry is None:
            entry = {"name": name, "value": value, "saved_at": utc(), "ours": []}
        entry["ours"] = [v for v in entry["ours"] if v != ours] + [ours]
        store("settings", name, entry)


def forget(names: Iterable[str]) -> None:
    """Settings that are as they were found, and that nothing of ours touches any more."""
    with alone():
        for name in names:
            path = entry_path("settings", name)
            if os.path.exists(path):
                os.unlink(path)
                sync_folder(os.path.dirname(path))


def put(path: str, mode: int, owner: tuple[int, int], data: bytes, tag: str | None = None) -> None:
    """Keep the original, then write the new bytes; a folder that is missing is made (0755)."""
    then = {
        "existed": True,
        "mode": mode,
        "uid": owner[0],
        "gid": owner[1],
        "b64": base64.b64encode(data).decode(),
    }
    with alone():
        record(path, content(path), then, tag)
        make_folder(os.path.dirname(path), 0o755)
        write(path, data, mode, owner)


def remove(path: str) -> None:
    """Keep the original, then take the file away."""
    with alone():
        record(path, content(path), ABSENT)
        take_away(path)


def read_all() -> tuple[list[dict[str, Any]], dict[str, str]]:
    """All whole entries, each with its "kind", and {path: why} of what is damaged."""
    whole, damaged = [], {}
    for kind in sealed.FORMS:
        folder = f"{ROOT}/{kind}"
        if os.path.lexists(folder) and not os.path.isdir(folder):
            damaged[folder] = str(sealed.damaged(folder))
            continue
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if name.startswith(".") or not name.endswith(".json"):
                continue
            try:
                whole.append({"kind": kind, **opened(kind, f"{folder}/{name}")})
            except ValueError as error:
                damaged[f"{folder}/{name}"] = str(error)
    return whole, damaged


def entries() -> Iterator[dict[str, Any]]:
    """All whole entries; after the last one raises ValueError naming what is damaged."""
    whole, damaged = read_all()
    yield from whole
    if damaged:
        raise ValueError("; ".join(damaged.values()))


def main(argv: list[str]) -> dict[str, Any]:
    """put PATH MODE UID GID [TAG] < base64 and a line's end; remove PATH;
    setting NAME FOUND OURS ...; list"""
    action, rest = argv[0], argv[1:]
    if action == "put":
        path, mode, uid, gid, *tag = rest
        text = sys.stdin.read()
        if not text.endswith("\n"):  # of a sender that is gone
            raise ValueError("the input was cut short; nothing was written")
        put(path, int(mode, 8), (int(uid), int(gid)), sealed.decoded(text[:-1]), *tag)
    elif action == "remove":
        remove(rest[0])
    elif action == "setting":
        for name, value, ours in zip(rest[::3], rest[1::3], rest[2::3]):
            setting(name, value, ours)
    elif action == "list":
        return {"entries": [*entries()]}
    else:
        raise ValueError(f"unknown action {action}")
    return {}
