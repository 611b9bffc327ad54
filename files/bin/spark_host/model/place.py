"""Where the bytes of a model lie: a plain directory, or a snapshot of a Hugging Face cache.

A cache is models--ORG--NAME/ with blobs/, refs/ and snapshots/REVISION/ of links into blobs/. Only
the directory that was asked for counts; what else lies there is listed, never removed.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import stat
from collections.abc import Iterator
from typing import Any

from run import homes

FICLONE = 0x40049409  # linux/fs.h: _IOW(0x94, 9, int), the same on x86 and arm64
PART = ".spark-converge-part"  # after the name of a file that is on its way
MODE = 0o644


def shown(name: str) -> str:
    """A name that lies there, for a person: what no terminal can show is written out."""
    return name if name.isprintable() else ascii(name)[1:-1]


def cache_of(directory: str) -> str | None:
    """The cache's folder of the repository when the directory is a snapshot in one."""
    snapshots = os.path.dirname(directory)
    repository = os.path.dirname(snapshots)
    named = os.path.basename(repository).startswith("models--")
    return repository if named and os.path.basename(snapshots) == "snapshots" else None


def why_unseen(path: str, outside: str, inside: str) -> str | None:
    """Why a container that has the folder `outside` mounted as `inside` does not find a file there.

    Links are followed as the container does it: an absolute one begins at the container's root.
    None when it finds what the host finds.
    """
    here, left = outside, os.path.relpath(path, outside).split("/")
    followed = 0
    while left:
        word = left.pop(0)
        if word in ("", "."):
            continue
        step = os.path.dirname(here) if word == ".." else f"{here}/{word}"
        if step != outside and not step.startswith(outside + "/"):
            return f"it leads out of {outside}, which is all that the container sees"
        if word == ".." or not os.path.islink(step):
            here = step
            continue
        followed += 1
        target = os.readlink(step)
        if followed > homes.LINKS_FOLLOWED:
            return "too many links"
        if target.startswith("/"):
            if not f"{target}/".startswith(f"{inside}/"):
                return f"it leads to {target}, which the container does not have"
            here, target = outside, os.path.relpath(target, inside)
        left = target.split("/") + left
    return None if os.path.exists(here) else "it dangles inside the container"


def caches(root: str, repository: str) -> list[str]:
    """The folders of one repository in the caches of this host: the model folder's and users'."""
    name = "models--" + repository.replace("/", "--")
    homes = ["/root", *glob.glob("/home/*")]
    tops = [root, f"{root}/hub", *(f"{home}/.cache/huggingface/hub" for home in homes)]
    return [f"{top}/{name}" for top in tops if os.path.isdir(f"{top}/{name}")]


def candidates(
    target: str, name: str, sha256: str, found: list[str], revision: str
) -> Iterator[str]:
    """Regular files on this host that may hold the wanted bytes; each one once, unproven."""
    seen = set()
    paths = [target] if os.path.islink(target) else []  # where a file of its own is wanted
    for cache in found:
        paths += [f"{cache}/blobs/{sha256}", f"{cache}/snapshots/{revision}/{name}"]
    for path in paths:
        real = os.path.realpath(path)
        if os.path.isfile(real) and real not in seen:
            seen.add(real)
            yield real


def opened(path: str) -> int | None:
    """Descriptor of a regular file, None for anything else that lies there by now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def by(fd: int) -> str:
    """A path to an open file that stays the same file, whatever becomes of its name."""
    return f"/proc/self/fd/{fd}"


def clone(source: int, new: str) -> bool:
    """A file of its own that shares the source's blocks (reflink), where the file system can."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o600), "wb") as file:
        try:
            fcntl.ioctl(file.fileno(), FICLONE, source)
        except OSError:
            return False
        settle(file.fileno(), new)
    return True


def settle(fd: int, there: str) -> None:
    """A file whose bytes are proven is for its folder's owner to have and for all to read."""
    homes.give(fd, there)
    os.fchmod(fd, MODE)


def shared(source: int, new: str) -> str | None:
    """Make `new` from an open file without copying a byte: "reflink", "hard link" or None.

    A hard link shares owner and mode with its other name, which keeps both. None where the file
    system can do neither, as between two of them; then nothing is left.
    """
    if os.path.lexists(new):
        os.unlink(new)
    if clone(source, new):
        return "reflink"
    os.unlink(new)
    try:
        # The folder's descriptor means nothing beside an absolute path, but without one Python
        # calls link(2), which does not follow.
        os.link(by(source), new, src_dir_fd=source, follow_symlinks=True)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT):
            return None
        raise
    return "hard link"


def size_of(path: str, without: set[int]) -> int:
    """Bytes below a folder, each inode once and none of those left out."""
    total, seen = 0, set(without)
    for folder, _folders, files in os.walk(path):
        for name in files:
            try:
                info = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            if info.st_ino not in seen:
                seen.add(info.st_ino)
                total += info.st_size
    return total


def inodes(directory: str) -> set[int]:
    found = set()
    for folder, _folders, files in os.walk(directory):
        for name in files:
            try:
                found.add(os.stat(f"{folder}/{name}").st_ino)
            except OSError:
                continue
    return found


def below(top: str, end: str) -> Iterator[str]:
    """Paths of files by the end of their names, hidden folders left out. No link is followed: one
    may lead back up, or to the whole of another disk."""
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name[0] != "."]
        yield from (f"{folder}/{name}" for name in files if name.endswith(end))


def leftovers(directory: str) -> list[dict[str, Any]]:
    """[{"path", "bytes", "what"}]: unfinished downloads, other revisions; never removed by us."""
    cache = cache_of(directory)
    left = []
    download = f"{directory}/.cache/huggingface/download"
    unfinished = [(directory, PART), (download, ".incomplete")]
    if cache:
        unfinished += [(f"{cache}/blobs", ".incomplete"), (f"{cache}/blobs", PART)]
    for top, end in unfinished:
        for path in sorted(below(top, end)):
            size = os.path.getsize(path) if os.path.isfile(path) else 0
            left.append({"path": shown(path), "bytes": size, "what": "unfinished download"})
    if cache:
        ours = inodes(directory)
        for other in sorted(glob.glob(f"{cache}/snapshots/*")):
            if other != directory:
                size = size_of(other, ours)
                left.append({"path": shown(other), "bytes": size, "what": "other revision"})
        for ref in sorted(glob.glob(f"{cache}/refs/*")):
            what = f"ref to {shown(reference(ref)[:12])}"
            left.append({"path": shown(ref), "bytes": 0, "what": what})
    return left


def section(ask: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """{directory: what lies beside the model}, as a part of the snapshot."""
    return {directory: leftovers(directory) for directory, _ in ask["shards"]}


def reference(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return "?"
