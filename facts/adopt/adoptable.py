"""Containers that look like a rank of an engine: what their hosts say of them, without secrets."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Engine:
    """One container; None where nothing says it.

    containers: it and what else of its compose project runs, in the order of their starts, each
    with the SHA-256 of what it was made from; kept: the same of all of them; reference: the image
    as it was spelled, image: its id; rank, world, address, rendezvous: as its command says;
    api: the port that lists models; ready, progress: patterns that its own log has; missing: files
    that it was started from and that are gone; cannot: sentences, what no copy brings back.
    """

    name: str
    containers: dict[str, str]
    kept: str
    project: str | None
    folders: tuple[str, ...]
    reference: str
    image: str
    digests: tuple[str, ...]
    started_at: str
    rank: int | None
    world: int | None
    address: str | None
    rendezvous: int | None
    api: int | None
    model_name: str | None
    context: int | None
    progress: tuple[str, ...]
    ready: str | None
    models: tuple[str, ...]
    missing: tuple[str, ...]
    commit: str | None
    dirty: bool | None
    cannot: tuple[str, ...]


@dataclass(frozen=True)
class Adoptable:
    engines: tuple[Engine, ...]


def parse(section: Section) -> Adoptable:
    return Adoptable(
        tuple(
            Engine(
                name=str(one["name"]),
                containers=dict(one["containers"]),
                kept=one["sum"],
                project=one["project"],
                folders=tuple(one["folders"]),
                reference=one["reference"],
                image=one["image"],
                digests=tuple(one["digests"]),
                started_at=one["started_at"],
                rank=one["rank"],
                world=one["world"],
                address=one["address"],
                rendezvous=one["rendezvous"],
                api=one["api"],
                model_name=one["model_name"],
                context=one["context"],
                progress=tuple(one["progress"]),
                ready=one["ready"],
                models=tuple(one["models"]),
                missing=tuple(file["path"] for file in one["files"] if not file["there"]),
                commit=(one["checkout"] or {}).get("commit"),
                dirty=(one["checkout"] or {}).get("dirty"),
                cannot=tuple(one["cannot"]),
            )
            for one in section["engines"]
        )
    )
