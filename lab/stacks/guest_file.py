"""A file of an owner's stack, as it lies in a guest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GuestFile:
    """A file for a guest: absolute path, text, octal mode; owner and group are root's."""

    path: str
    text: str
    mode: int
    group: str = "root"
