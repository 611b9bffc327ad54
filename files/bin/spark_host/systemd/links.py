"""The links that systemctl makes and removes: enablement, aliases, masks, the default target.

What `disable` takes away is more than what `enable` would bring back: links made by hand, aliases,
other units that the unit names in Also=, the start links of an init script. So the links are read
before and after, and every difference is journalled as a file entry; undo restores those.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from run import journal, sealed

FOLDERS = (
    "/etc/systemd/system",
    "/etc/systemd/user",
    *(f"/etc/rc{level}.d" for level in "0123456S"),
)


def paths(folders: Iterable[str]) -> Iterator[str]:
    """Every symbolic link below some folders, by their listings alone."""
    for folder in folders:
        try:
            with os.scandir(folder) as listed:
                here = [*listed]
        except OSError:  # not there
            continue
        yield from (one.path for one in here if one.is_symlink())
        yield from paths(one.path for one in here if one.is_dir(follow_symlinks=False))


def scan() -> dict[str, dict[str, Any]]:
    """{path: content} of every symbolic link below FOLDERS."""
    return {path: journal.content(path) for path in paths(FOLDERS)}


def pending_path() -> str:
    return f"{journal.ROOT}/pending.json"


def pending() -> dict[str, Any] | None:
    """{"units": [name], "links": {path: content}} of a change that was cut short, else None; raises
    ValueError naming a damaged one."""
    try:
        return sealed.opened(pending_path(), sealed.is_record)
    except FileNotFoundError:
        return None


def stem(path: str) -> str:
    """cups for cups.socket, multi-user.target.wants/cups.service and rc2.d/S01cups."""
    return re.sub(r"^[SK]\d\d", "", os.path.basename(path)).rsplit(".", 1)[0]


def differences(
    before: dict[str, dict[str, Any]], units: Collection[str] | None
) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """[(path, content before, content now)]; with units only the links that have to do with them:
    after a cut-off change others may have been at work before anybody looks again."""
    now = scan()
    found = []
    for path in sorted({*before, *now}):
        old, new = before.get(path, journal.ABSENT), now.get(path, journal.ABSENT)
        names = {stem(path), *(stem(one["link"]) for one in (old, new) if one["existed"])}
        if old != new and (units is None or names & {stem(unit) for unit in units}):
            found.append((path, old, new))
    return found


def settle(units: Collection[str] | None = None) -> None:
    """Journal what became of the links since the pending record, then forget the record."""
    was = pending()
    if was is None:
        return
    for path, old, new in differences(was["links"], units):
        journal.record(path, old, new)
    os.unlink(pending_path())
    journal.sync_folder(journal.ROOT)


def settle_cut() -> None:
    """What a change that was cut short has done goes into the journal; raises ValueError where its
    record is damaged."""
    left = pending()
    if left is not None:
        settle(left["units"])


@contextlib.contextmanager
def watched(units: Collection[str]) -> Iterator[None]:
    """Journal all links that are made or removed inside, also when that is cut short."""
    with journal.alone():
        settle_cut()
        journal.make_folder(journal.ROOT, 0o700)
        record = {"units": list(units), "links": scan()}
        journal.write(pending_path(), sealed.seal(record), 0o600)
        try:
            yield
        finally:
            settle()
