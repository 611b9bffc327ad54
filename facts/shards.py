"""What an earlier full read has proven about the model directories."""

from __future__ import annotations

from dataclasses import dataclass

from facts.unknown import Section


@dataclass(frozen=True)
class Shards:
    """directory -> verified (unchanged since a full read), changed, unverified or absent."""

    state: dict[str, str]


def parse(section: Section) -> Shards:
    return Shards({str(directory): str(state) for directory, state in section.items()})
