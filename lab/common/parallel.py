"""The same work on both hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(items: Iterable[T], work: Callable[[T], R]) -> list[R]:
    """Run `work` on all items at the same time; the first error is raised after all have ended."""
    every = list(items)
    if not every:
        return []
    with ThreadPoolExecutor(len(every)) as pool:
        return [task.result() for task in [pool.submit(work, item) for item in every]]
