"""What an earlier full read has proven about the model directories, and what else lies there."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Shards:
    """directory -> verified (unchanged since a full read), changed, unverified or absent."""

    state: dict[str, str]


@dataclass(frozen=True)
class Leftover:
    """An unfinished download, another revision in the same cache, or a ref (of no size)."""

    what: str
    path: str
    size_bytes: int


def leftovers(section: Section) -> dict[str, tuple[Leftover, ...]]:
    return {
        str(directory): tuple(Leftover(o["what"], o["path"], int(o["bytes"])) for o in found)
        for directory, found in section.items()
    }


def parse(section: Section) -> Shards:
    return Shards({str(directory): str(state) for directory, state in section.items()})
