"""How two locks differ, for a person who has to say yes or no. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stacks.schema import Lock, ModelFile

NULL = "null"
_SHOWN = 3  # names of a long list of files that only became known


@dataclass(frozen=True)
class Change:
    """One line of the difference. What was null before and is known now changes nobody's bytes."""

    what: str
    old: str
    new: str


def changes(old: Lock | None, new: Lock) -> list[Change]:
    """What would change in the lock file; empty when it says the same already."""
    return [*_image(old, new), *_model(old, new)]


def _image(old: Lock | None, new: Lock) -> Iterator[Change]:
    was = old.image if old else None
    yield from _change("image", was and was.index, new.image.index)
    before, after = (was.platforms if was else {}), new.image.platforms
    for platform in sorted(before.keys() | after.keys()):
        yield from _change(platform, before.get(platform), after.get(platform))
    sizes, now = (was.download_bytes if was else {}), new.image.download_bytes
    for platform in sorted(sizes.keys() | now.keys()):
        yield from _change(f"{platform}, download bytes", sizes.get(platform), now.get(platform))


def _model(old: Lock | None, new: Lock) -> Iterator[Change]:
    was = old.model if old else None
    yield from _change("model", was and was.repository, new.model.repository)
    yield from _change("revision", was and was.revision, new.model.revision)
    yield from _change("hashes from", was and was.source, new.model.source)
    before = {file.name: file for file in was.files} if was else {}
    after = {file.name: file for file in new.model.files}
    learnt: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name), after.get(name)
        if one and other and one != other and _only_learnt(one, other):
            learnt.append(name)
        else:
            yield from _change(name, one and _told(one), other and _told(other), absent="absent")
    if learnt:
        names = ", ".join(learnt[:_SHOWN])
        more = f" and {len(learnt) - _SHOWN} more" if len(learnt) > _SHOWN else ""
        yield Change(f"{names}{more}", "size or SHA-256 null", "both known")


def _only_learnt(old: ModelFile, new: ModelFile) -> bool:
    return None not in (new.size, new.sha256) and all(
        before in (None, after)
        for before, after in ((old.size, new.size), (old.sha256, new.sha256))
    )


def _told(file: ModelFile) -> str:
    size = NULL if file.size is None else str(file.size)
    return f"{size} bytes, {file.sha256 or NULL}"


def _change(what: str, old: object, new: object, absent: str = NULL) -> Iterator[Change]:
    if old != new:
        yield Change(what, absent if old is None else str(old), absent if new is None else str(new))
