"""Hashes from full reads on all hosts, believed when nothing speaks against them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stacks.schema import LockedModel, ModelFile

# host -> file name -> {"size", "sha256"}, as `spark_host survey` answers.
Surveys = Mapping[str, Mapping[str, Mapping[str, Any]]]


def disagreements(surveys: Surveys, published: LockedModel) -> list[str]:
    """Why these reads are no lock of that revision, in sentences; empty when they are one.

    Every file of the revision is on every host, with the revision's size, with the revision's hash
    where the Hub publishes it, and with the same bytes everywhere.
    """
    said: list[str] = []
    for file in published.files:
        said += _of_file(file, {host: files.get(file.name) for host, files in surveys.items()})
    names = {file.name for file in published.files}
    for host, files in surveys.items():
        strays = [n for n in sorted(files) if n.endswith(".safetensors") and n not in names]
        said += [f"{host}: {name}: not in revision {published.revision}" for name in strays]
    return said


def _of_file(file: ModelFile, found: Mapping[str, Mapping[str, Any] | None]) -> Iterator[str]:
    for host, one in found.items():
        if one is None:
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
    files = next(iter(surveys.values()))
    return published.model_copy(
        update={
            "source": "hosts",
            "files": tuple(
                file.model_copy(
                    update={
                        "size": files[file.name]["size"],
                        "sha256": files[file.name]["sha256"],
                    }
                )
                for file in published.files
            ),
        }
    )
