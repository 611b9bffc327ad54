"""How hot and how fast the machine runs, and what dockerd gives a container: looked at only."""

from __future__ import annotations

from collections.abc import Iterator

from facts.look.machine import Machine, Sensor
from operations.run.findings import Finding, Look, Wanted

# Bits of clocks_event_reasons that mean a limit was hit (nvml.h nvmlClocksEventReason*): software
# power cap 0x4, hardware slowdown 0x8, software thermal 0x20, hardware thermal 0x40, brake 0x80.
THROTTLED = 0xEC


def heat(sensor: Sensor) -> Finding | None:
    """A sensor that has a limit or at least a figure."""
    limit = sensor.limit_celsius
    line = Wanted("machine", sensor.name, f"below {limit:.0f} °C" if limit else "-")
    if sensor.celsius is None:
        return None
    return line.judged(f"{sensor.celsius:.0f} °C", limit is None or sensor.celsius < limit)


def hottest(sensors: tuple[Sensor, ...]) -> list[Sensor]:
    """The hottest sensor of each name: a Spark has several zones that call themselves the same."""
    best: dict[str, Sensor] = {}
    for one in sensors:
        kept = best.get(one.name)
        if one.celsius is not None and (kept is None or one.celsius > (kept.celsius or 0)):
            best[one.name] = one
    return [best[name] for name in sorted(best)]


def clocks(found: Machine) -> Finding:
    line = Wanted("machine", "CPU clock", "-")
    read = [c for c in found.clocks if c.now_mhz is not None]
    if not read:
        return line.lacking("no CPU frequency policies")
    low, high = min(c.now_mhz or 0 for c in read), max(c.now_mhz or 0 for c in read)
    caps = sorted({c.cap_mhz for c in read if c.cap_mhz and c.cap_mhz != c.top_mhz})
    capped = f", capped at {'/'.join(map(str, caps))}" if caps else ""
    return line.judged((f"{low}" if low == high else f"{low} to {high}") + f" MHz{capped}", True)


def graphics(found: Machine) -> Iterator[Finding]:
    """One line for each GPU; throttling is a drift, a question answered [N/A] is said as such."""
    line = Wanted("machine", "GPU", "not throttled")
    if found.gpus.unread:
        yield line.unread(found.gpus.unread)
    elif found.gpus.found is None:
        yield line.lacking("no nvidia-smi here")
    for number, one in enumerate(found.gpus.found or ()):
        line = Wanted("machine", f"GPU {number}" if number else "GPU", line.wanted)
        heat_c = "N/A" if one.celsius is None else f"{one.celsius:.0f} °C"
        clock = "N/A" if one.sm_mhz is None else f"{one.sm_mhz} MHz"
        seen = f"{one.name} {heat_c}, {clock}" + (", memory of the host" if one.unified else "")
        if one.throttled is None:
            yield line.lacking(f"{seen}, throttling N/A")
            continue
        bits = one.throttled & THROTTLED
        yield line.judged(seen + (f", throttled ({bits:#x})" if bits else ""), not bits)


def docker_limits(found: Machine) -> Finding:
    """What a container that sets no ulimits gets; the stacks set memlock themselves, as RDMA needs
    all its memory locked."""
    line, limits = Wanted("memory", "limits of dockerd", "-"), found.docker_limits
    if limits is None:
        return line.lacking("dockerd does not run")
    return line.judged(", ".join(f"{k} {v}" for k, v in limits.items()), True)


def assess(look: Look) -> Iterator[Finding]:
    found = look.state.machine
    if not isinstance(found, Machine):
        yield Wanted("machine", "sensors", "-").unread(found or "not asked for")
        yield Wanted("memory", "limits of dockerd", "-").unread(found or "not asked for")
        return
    yield docker_limits(found)
    warm = [one for sensor in hottest(found.sensors) if (one := heat(sensor))]
    yield from warm or [Wanted("machine", "temperature", "-").lacking("no sensor here")]
    yield clocks(found)
    yield from graphics(found)
