"""Who gives which host the model files that it lacks. Pure; sizes and sets in, transfers out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Transfer:
    """Files for the host of rank `to`; `source` is the rank that lends them, None for the Hub."""

    to: int
    source: int | None
    names: tuple[str, ...]


def transfers(
    lacking: Sequence[Set[str]], sizes: Mapping[str, int], on_fabric: Collection[int]
) -> list[list[Transfer]]:
    """Two stages: what comes from the Hub, then what crosses the fabric; each file the Hub once.

    lacking: by rank, the names that are missing or wrong there; sizes: bytes of each name;
    on_fabric: the ranks that reach each other over the fabric (no other way between hosts is used).
    What no host on the fabric has goes from the Hub to the one of them that lacks the fewest bytes,
    and from there to the others.
    """
    ranks = range(len(lacking))

    def missing_bytes(rank: int) -> int:
        return sum(sizes.get(name, 0) for name in lacking[rank])

    fabric = sorted(on_fabric) if len(on_fabric) > 1 else []
    from_hub: dict[int, set[str]] = {r: set(lacking[r]) for r in ranks if r not in fabric}
    have = {rank: set(sizes) - lacking[rank] for rank in fabric}
    if fabric:
        nowhere = set.intersection(*(set(lacking[rank]) for rank in fabric))
        first = min(fabric, key=lambda rank: (missing_bytes(rank), rank))
        from_hub[first] = nowhere
        have[first] |= nowhere
    across = []
    for rank in fabric:
        left = set(lacking[rank]) - have[rank]
        for lender in fabric:
            given = left & have[lender]
            left -= given
            if given and lender != rank:
                across.append(Transfer(rank, lender, tuple(sorted(given))))
    hub = [
        Transfer(r, None, tuple(sorted(names))) for r, names in sorted(from_hub.items()) if names
    ]
    return [stage for stage in (hub, across) if stage]
