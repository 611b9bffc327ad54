"""Writing below a folder that is not root's, a home or models, where no link is to be trusted.

Whoever owns that folder can put a link in the place of one below it at any moment, and root would
follow it to a file of the system. So such a path is walked once, without links, and what is done
to it then goes by the descriptor of its folder, wherever the name may lead meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from run.command import Failed

LINKS_FOLLOWED = 40  # as the kernel
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def top_of(path: str) -> str | None:
    """The first folder on the way to a path, links followed, that is not root's; None when all of
    them are. A link that somebody else made, as all may in /tmp, is as good as their folder."""
    here, left, followed = "", path.split("/")[:-1], 0
    while left:
        name = left.pop(0)
        if name in ("", "."):
            continue
        step = os.path.dirname(here) if name == ".." else f"{here}/{name}"
        try:
            info = os.lstat(step or "/")
            target = os.readlink(step) if stat.S_ISLNK(info.st_mode) else None
        except OSError:  # from here on nothing is there
            return None
        if info.st_uid:
            return step
        if target is None:
            here = step
            continue
        followed += 1
        if followed > LINKS_FOLLOWED:
            return None
        here = "" if target.startswith("/") else here
        left = target.split("/") + left
    return None


def opened(name: str, path: str, above: int | None = None) -> int:
    """Descriptor of a folder that is no link; path: for the sentence."""
    try:
        return os.open(name, FOLDER, dir_fd=above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            word = os.path.basename(name)
            raise Failed(f"{path}: {word} turned into a link meanwhile: not touched") from None
        raise


@contextlib.contextmanager
def pinned(path: str) -> Iterator[str]:
    """The same path, but by the descriptor of its folder where that is not only root's.

    The last name is not looked at: what is done to it must not follow a link. Raises Failed for a
    path that leads to where its owner has no folder, and FileNotFoundError for a missing one.
    """
    top = top_of(path)
    if top is None:
        yield path
        return
    folder = os.path.realpath(os.path.dirname(path))
    home = top_of(folder + "/")
    if home is None:
        raise Failed(f"{path} leads out of {top}: not touched")
    fd = opened(home, path)
    try:
        # A home may lead to another disk: nothing is lost where the same person owns the folder.
        if os.fstat(fd).st_uid != os.lstat(top).st_uid:
            raise Failed(f"{path} leads out of {top}: not touched")
        for name in os.path.relpath(folder, home).split("/"):
            below = opened(name, path, fd)
            os.close(fd)
            fd = below
        yield f"/proc/self/fd/{fd}/{os.path.basename(path)}"
    finally:
        os.close(fd)


def hand_over(there: str, path: str) -> None:
    """Give a folder that was just made to the owner of the one above; there: its pinned path."""
    fd = opened(there, path)
    try:
        give(fd, there)
    finally:
        os.close(fd)


def give(fd: int, there: str) -> None:
    """What was just made belongs to the owner of its folder; there: its pinned path."""
    os.fchown(fd, *owner_above(there))


def owner_above(there: str) -> tuple[int, int]:
    folder = os.stat(os.path.dirname(there))
    return folder.st_uid, folder.st_gid


def expanded(token: str, home: str) -> str:
    for prefix in ("~/", "$HOME/", "${HOME}/"):
        if token.startswith(prefix):
            return f"{home}/{token[len(prefix) :]}"
    return token
