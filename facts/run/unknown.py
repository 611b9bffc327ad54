"""The third answer: not "no", not "absent", but "could not be read"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

FAULTS = (*(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError),)
T = TypeVar("T")
Section = Mapping[str, Any]


@dataclass(frozen=True)
class Unknown:
    """A part of a host's state that could not be read; never to be taken for a clean one."""

    reason: str

    def __str__(self) -> str:
        return f"unknown ({self.reason})"


def parsed(section: object, parse: Callable[[Section], T]) -> T | Unknown:
    """Parse one section of a snapshot; odd output becomes Unknown, nothing raises."""
    if not isinstance(section, Mapping):
        return Unknown(f"odd answer: {str(section)[:120]!r}")
    if "unknown" in section:
        return Unknown(str(section["unknown"]))
    try:
        return parse(section)
    except FAULTS as error:
        return Unknown(f"odd answer: {type(error).__name__}: {error}")
