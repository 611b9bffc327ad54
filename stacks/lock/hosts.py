"""Hashes from full reads on all hosts, believed when nothing speaks against them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stacks.schema import LockedModel, ModelFile

# host -> file name -> {"size", "sha256"}, as `spark_host survey` answers.
Surveys = Mapping[str, Mapping[str, Mapping[str, Any]]]


def disagreements(surveys: Surveys, published: LockedModel) -> list[str]:
    """Why these reads are no lock of that revision, in sentences; empty when they are one.

    Every file that the Hub has no hash for is on every host, with the revision's size and the same
    bytes everywhere; the others are those of the revision, or missing and to be brought.
    """
    said: list[str] = []
    for file in published.files:
        said += _of_file(file, {host: files.get(file.name) for host, files in surveys.items()})
    return said


def _of_file(file: ModelFile, found: Mapping[str, Mapping[str, Any] | None]) -> Iterator[str]:
    for host, one in found.items():
        if one is None:
            if file.sha256 is None:
                yield f"{host}: {file.name}: missing"
        elif file.size is not None and one["size"] != file.size:
            yield f"{host}: {file.name}: {one['size']} bytes found, {file.size} in the revision"
        elif file.sha256 is not None and one["sha256"] != file.sha256:
            yield f"{host}: {file.name}: {one['sha256']} found, {file.sha256} in the revision"
    hashes = {host: one["sha256"] for host, one in found.items() if one}
    if file.sha256 is None and len(set(hashes.values())) > 1:
        told = ", ".join(f"{sha256} on {host}" for host, sha256 in hashes.items())
        yield f"{file.name}: {told}; the same on all hosts expected"


def locked(surveys: Surveys, published: LockedModel) -> LockedModel:
    """The revision with the hashes of the hosts, among which there is no disagreement."""
    read = {name: one for files in surveys.values() for name, one in files.items()}
    files = tuple(
        file.model_copy(
            update={"size": read[file.name]["size"], "sha256": read[file.name]["sha256"]}
        )
        if file.name in read
        else file
        for file in published.files
    )
    return published.model_copy(update={"source": "hosts", "files": files})


def kept(old: LockedModel | None, new: LockedModel) -> LockedModel:
    """What was read of this very revision earlier stays known where the Hub says nothing of it."""
    if old is None or (old.repository, old.revision) != (new.repository, new.revision):
        return new
    known = {file.name: file for file in old.files}
    files = tuple(_kept(known.get(file.name), file) for file in new.files)
    return (
        new if files == new.files else new.model_copy(update={"files": files, "source": old.source})
    )


def _kept(old: ModelFile | None, new: ModelFile) -> ModelFile:
    if old is None or new.sha256 is not None or old.sha256 is None:
        return new
    if None not in (old.size, new.size) and old.size != new.size:
        return new
    size = old.size if new.size is None else new.size
    return new.model_copy(update={"size": size, "sha256": old.sha256})
