"""The machine under the host: what a cluster's hosts should have alike, sensors and clocks."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Sensor:
    """Temperatures in degrees Celsius; limit: where the machine slows down, else where it stops."""

    name: str
    celsius: float | None
    limit_celsius: float | None


@dataclass(frozen=True)
class Gpu:
    """As nvidia-smi says; None where it answers [N/A], as GB10 does to some questions.

    unified: it has no memory of its own, which is the host's (see facts/memory.py for figures).
    """

    name: str
    driver: str | None
    vbios: str | None
    celsius: float | None
    sm_mhz: int | None
    throttled: int | None  # bits of clocks_event_reasons.active
    top_mhz: int | None
    unified: bool


@dataclass(frozen=True)
class Gpus:
    """found None: no nvidia-smi here; unread: why it said nothing of them."""

    found: tuple[Gpu, ...] | None
    unread: str | None


@dataclass(frozen=True)
class Clock:
    policy: str
    now_mhz: int | None
    cap_mhz: int | None
    top_mhz: int | None


@dataclass(frozen=True)
class Docker:
    """store: docker (classic) or containerd; unread: why the daemon gave no answer."""

    version: str | None
    driver: str | None
    store: str | None
    unread: str | None


@dataclass(frozen=True)
class Machine:
    """docker None: not installed; docker_limits: of dockerd's own process, None when it does not
    run."""

    os: str | None
    product: str | None
    bios: str | None
    cpus: int | None
    docker: Docker | None
    docker_limits: dict[str, str] | None
    gpus: Gpus
    nic_firmware: dict[str, str]
    sensors: tuple[Sensor, ...]
    clocks: tuple[Clock, ...]


def said(text: str | None) -> str | None:
    """An answer of nvidia-smi, None where it has none ([N/A], Not Supported, nothing)."""
    bare = (text or "").strip()
    return None if not bare or bare.strip("[]").lower() in ("n/a", "not supported") else bare


def number(text: str | None) -> int | None:
    """A number of nvidia-smi's, decimal or 0x...; None for anything else."""
    try:
        return int(said(text) or "", 0)
    except ValueError:
        return None


def gpu(row: Section) -> Gpu:
    celsius = number(row.get("temperature.gpu"))
    return Gpu(
        name=str(row.get("name", "GPU")),
        driver=said(row.get("driver_version")),
        vbios=said(row.get("vbios_version")),
        celsius=None if celsius is None else float(celsius),
        sm_mhz=number(row.get("clocks.sm")),
        throttled=number(row.get("clocks_event_reasons.active")),
        top_mhz=number(row.get("clocks.max.sm")),
        unified=said(row.get("memory.total")) is None,
    )


def gpus(section: Section) -> Gpus:
    rows = section["gpus"]
    if isinstance(rows, dict):
        return Gpus((), str(rows["unread"]))
    return Gpus(None if rows is None else tuple(gpu(row) for row in rows), None)


def docker(found: Section) -> Docker | None:
    if found.get("absent"):
        return None
    return Docker(
        found.get("version"), found.get("driver"), found.get("store"), found.get("unread")
    )


def sensor(found: Section) -> Sensor:
    limits = (found.get("passive_celsius"), found.get("critical_celsius"))
    return Sensor(found["name"], found["celsius"], next((x for x in limits if x), None))


def parse(section: Section) -> Machine:
    return Machine(
        os=section["os"],
        product=section["product"],
        bios=section["bios"],
        cpus=section["cpus"],
        docker=docker(section["docker"]),
        docker_limits=section["docker_limits"],
        gpus=gpus(section),
        nic_firmware={str(n): str(v or "") for n, v in section["nic_firmware"].items()},
        sensors=tuple(sensor(one) for one in [*section["zones"], *section["hwmon"]]),
        clocks=tuple(
            Clock(name, one["now_mhz"], one["cap_mhz"], one["top_mhz"])
            for name, one in sorted(section["clocks"].items())
        ),
    )
