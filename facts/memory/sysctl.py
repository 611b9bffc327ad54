"""Kernel settings: live values, and who sets them at boot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class BootFile:
    """A file of sysctl.d and what it sets of the settings that were asked for."""

    path: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Sysctl:
    """values: None where this kernel has no such setting; boot: in the order of their application,
    so that the last file that names a setting decides it."""

    values: Mapping[str, str | None]
    boot: tuple[BootFile, ...]


def parse(section: Section) -> Sysctl:
    return Sysctl(
        dict(section["values"]),
        tuple(BootFile(f["path"], dict(f["values"])) for f in section["files"]),
    )
