"""What an owner's file has to say about a host, as found there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from facts.run.unknown import Section

# enp1s0f0v0 (function), enp1s0f0r0 (its representor): systemd.net-naming-scheme(7);
# enp1s0f0npf0vf0, enp1s0f0npf0sf1: phys_port_name of the kernel's devlink ports
FUNCTION = re.compile(r"en(P\d+)?(p\d+)?s\d+.*?([vr]\d+|pf\d+[vs]f\d+)")


@dataclass(frozen=True)
class Port:
    """An interface with a device behind it; speed_mbps None: no link, or a virtual device;
    virtual: an SR-IOV function or its representor, which has no cable of its own."""

    name: str
    driver: str
    bus: str
    speed_mbps: int | None
    wireless: bool
    virtual: bool


@dataclass(frozen=True)
class ModelFolder:
    """A folder that has weights in it; files: how many *.safetensors."""

    path: str
    files: int
    size_bytes: int


@dataclass(frozen=True)
class Discovered:
    """login: who we are there; hcas: RDMA device -> its interfaces; models_cut: search not done."""

    hostname: str
    login: str
    ports: tuple[Port, ...]
    hcas: dict[str, tuple[str, ...]]
    people: tuple[str, ...]
    models: tuple[ModelFolder, ...]
    models_cut: bool


def parse(section: Section) -> Discovered:
    return Discovered(
        hostname=section["hostname"],
        login=section["login"],
        ports=tuple(
            Port(
                *(name, one["driver"], one["bus"], one["speed_mbps"], one["wireless"]),
                virtual=one.get("virtual", False) or bool(FUNCTION.fullmatch(name)),
            )
            for name, one in sorted(section["ports"].items())
        ),
        hcas={name: tuple(interfaces) for name, interfaces in section["hcas"].items()},
        people=tuple(section["people"]),
        models=tuple(
            ModelFolder(one["path"], one["files"], one["bytes"])
            for one in section["models"]["found"]
        ),
        models_cut=section["models"]["cut"],
    )
