"""What verify looks at on one host: wanted, found, verdict. Pure; the comparisons are those of the
operations, so that verify and a dry run cannot disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from facts.engines.containers import Containers
from facts.look.machine import Machine, Sensor
from facts.model.images import Images
from facts.model.shards import Shards
from facts.network.fabric import Fabric
from facts.run.program import program_sha256
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.boot import Boot
from facts.systemd.services import Services
from inventory.host_settings import HostSettings
from inventory.schema import BOND_DEVICE, Cluster, Node
from operations.clocks import clock_items
from operations.engines.recognise import by_podman, foreign
from operations.memory import memory_items
from operations.model import images, shards
from operations.network import comm, netplan
from operations.network.gids import fabric_facts, hca_addresses
from operations.pair import ports
from operations.run.detached import volume
from operations.run.findings import Item, judged, unread
from operations.systemd import boot, maintenance, services, userunits
from operations.watchdogs import resurrection
from stacks.definition import Stack

# Bits of clocks_event_reasons that mean a limit was hit (nvml.h nvmlClocksEventReason*): software
# power cap 0x4, hardware slowdown 0x8, software thermal 0x20, hardware thermal 0x40, brake 0x80.
THROTTLED = 0xEC
ARMED = {"armed", "refused"}


def program(state: HostState) -> Item:
    name, wanted = "on-host program", f"{program_sha256()[:12]}"
    if isinstance(state.program, Unknown):
        return unread("host", name, wanted, state.program)
    found = state.program[:12] if state.program else "absent"
    return judged("host", name, wanted, found, state.program == program_sha256())


def target(state: HostState, wanted: str) -> Item:
    found = state.boot
    if not isinstance(found, Boot):
        return unread("host", "boots into", wanted, found)
    # The kernel command line wins over the default target, whatever systemctl says.
    why = boot.forced(found, wanted)
    told = boot.seen(found) + (f", but {why}" if why else "")
    return judged("host", "boots into", wanted, told, boot.settled(found, wanted) and not why)


def service(
    part: str, wanted: str, found: Services | Unknown, asked: str, names: Sequence[str]
) -> Item:
    """One unit with its sockets, paths and timers, as services.plan sees them among the others."""
    if isinstance(found, Unknown):
        return unread(part, asked, wanted, found)
    if not {*names} <= {*found.asked}:
        return unread(part, asked, wanted, "not in the answer")
    left = services.unsettled(found, [asked], together=names)
    seen = "; ".join(left) or services.described(found.asked[asked])
    return judged(part, asked, wanted, seen, not left)


def desktop(state: HostState, names: Sequence[str]) -> Iterator[Item]:
    for asked in names:
        yield service("services", "down for good", state.services, asked, names)


def held(state: HostState, names: Sequence[str]) -> Iterator[Item]:
    """What would change a driver or restart dockerd by itself."""
    for asked in names:
        yield service("maintenance", "held", state.services, asked, names)
    wanted, found = "restarts nothing", state.maintenance
    if isinstance(found, Unknown) or isinstance(state.files, Unknown):
        why = found if isinstance(found, Unknown) else state.files
        yield unread("maintenance", "needrestart", wanted, str(why))
        return
    missing = maintenance.needrestart_missing(state)
    told = "restarts services as it likes" if missing else wanted
    good = judged("maintenance", "needrestart", wanted, told, not missing)
    yield good if found.needrestart else replace(good, found="absent")


def cables(cluster: Cluster, fabric: Fabric) -> Iterator[Item]:
    """Each fabric port's own link; a bond with one member left still carries everything."""
    wanted = cluster.fabric
    bond = fabric.bonds.get(BOND_DEVICE)
    for name in wanted.interfaces:
        link = fabric.links.get(name)
        if link is None:
            yield judged("fabric", f"link {name}", "up", "absent", False)
            continue
        seen, good = ("up" if link.carrier else "no carrier"), link.carrier
        if wanted.mode == "bond" and bond is not None and name in bond.members:
            inside = name in bond.members_up
            seen, good = seen + ("" if inside else f", down in {bond.name}"), good and inside
            seen += f", active in {bond.name}" if bond.active == name else ""
        yield judged("fabric", f"link {name}", "up", seen, good)


def roce(cluster: Cluster, node: Node, fabric: Fabric) -> Item:
    """The GID that NCCL looks for; a bond of ConnectX-7 ports does not always have it.

    A twin that is up and left out halves the speed; that is the owner's choice, and said.
    """
    rails = [address for _, address in cluster.rails(node)]
    wanted = f"RoCE v2 GID of {' and '.join(rails)}"
    facts = fabric_facts(cluster, node.rank, fabric)
    if not facts.hcas:
        return Item("fabric", "RDMA", wanted, "no RDMA device on the fabric", "unsupported")
    states = {h.name: h.state for h in fabric.hcas}
    seen = [
        f"{hca} {states[hca]}, "
        + (f"GID {facts.gid_indexes[hca]}" if hca in facts.gid_indexes else "no such GID")
        for hca in facts.hcas
    ]
    twins = comm.unused_twins(cluster, node, fabric)
    seen += [f"{twin} is up on the cable of {used} and not used" for twin, used in twins.items()]
    addresses = hca_addresses(cluster, node.rank, fabric)
    reached = {addresses[hca] for hca in facts.gid_indexes if states[hca] == "ACTIVE"}
    return judged("fabric", "RDMA", wanted, "; ".join(seen), reached == set(rails))


def network(cluster: Cluster, node: Node, state: HostState) -> Iterator[Item]:
    rails = ", ".join(f"{device} {address}" for device, address in cluster.rails(node))
    wanted = f"{rails}, MTU {cluster.fabric.mtu}"
    fabric = state.fabric
    if not isinstance(fabric, Fabric):
        yield unread("fabric", "fabric", wanted, fabric)
        yield from (
            unread("fabric", f"link {name}", "up", fabric) for name in cluster.fabric.interfaces
        )
        return
    why = netplan.why_not_converged(cluster, node, fabric)
    why += netplan.complaints(cluster, node, fabric)
    seen = [*(why or ["as wanted"]), *netplan.volatile(cluster, fabric)]
    other = netplan.foreign_bond(cluster, fabric)
    if other:
        seen.append(f"{other.name} was made by somebody else")
        seen += [care for care in netplan.care_faults(cluster, fabric) if care not in why]
    yield judged("fabric", "fabric", wanted, "; ".join(seen), not why)
    yield from cables(cluster, fabric)
    yield roce(cluster, node, fabric)


def strangers(cluster: Cluster, state: HostState, known: tuple[Stack, ...]) -> Item:
    found = state.containers
    if not isinstance(found, Containers):
        return unread("engine", "other containers", "none", found)
    if not found.installed:
        return judged("engine", "other containers", "none", "docker is not installed", False)
    names = [c.name for c in foreign(state, known)]
    names += [
        one.title + (f" of stack {stack}" if stack else "")
        for one, stack in by_podman(state, known)
    ]
    return judged("engine", "other containers", "none", ", ".join(names) or "none", not names)


def image(state: HostState, stack: Stack) -> Item:
    if stack.unlocked:
        return unread("engine", "image", "by digest", f"{stack.name} is not locked")
    digest = stack.image_reference.split("@")[-1][:19]
    wanted = f"{digest} for {images.platform_of(state) or 'this machine'}"
    if not isinstance(state.images, Images):
        return unread("engine", "image", wanted, state.images)
    found, wrong = images.found(state, stack), list(images.complaints(state, stack))
    seen = "; ".join(wrong) or (f"present, {found.platform}" if found else "absent")
    return judged("engine", "image", wanted, seen, bool(found) and not wrong)


def model(cluster: Cluster, state: HostState, stack: Stack) -> Item:
    if stack.unlocked:
        return unread("engine", "model files", "by SHA-256", f"{stack.name} is not locked")
    found = state.shards
    where = shards.directory(stack, cluster.model_dir)
    said = found.state.get(where) if isinstance(found, Shards) else str(found)
    if said is None or isinstance(found, Unknown) or said == "unverified":
        told = "never read in full (deploys/prepare.py does)" if said == "unverified" else said
        return unread("engine", "model files", "verified", told or "not in the answer")
    seen = "unchanged since their full read" if said == "verified" else said
    return judged("engine", "model files", "verified", seen, said == "verified")


def beside_model(cluster: Cluster, state: HostState, stack: Stack) -> Iterator[Item]:
    """What downloads and other revisions take; never removed by us, so never a drift."""
    name = "beside the model"
    if state.leftovers is None:
        return
    if isinstance(state.leftovers, Unknown):
        yield unread("engine", name, "-", state.leftovers)
        return
    found = state.leftovers.get(shards.directory(stack, cluster.model_dir), ())
    told = [
        f"{one.what} {one.path.rsplit('/', 1)[1][:40]}"
        + (f", {volume(one.size_bytes)}" if one.size_bytes else "")
        for one in found
    ]
    yield judged("engine", name, "-", "; ".join(told) or "nothing", True)


def resurrections(
    cluster: Cluster, node: Node, state: HostState, stack: Stack, known: tuple[Stack, ...]
) -> Iterator[Item]:
    """One line for each kind of thing that could start an engine unasked.

    Beside a stack that this tool launches none may be armed; the owner's own compose stack has its
    watchdogs to itself, and none may still be held.
    """
    wanted, wrong = ("none held", {"held"}) if stack.compose else ("none armed", ARMED)
    found = resurrection.sources(node.rank, state, cluster.tags.hold, stack, known)
    for kind in resurrection.KINDS:
        why = resurrection.unread(kind, state)
        if why:
            yield unread("resurrection", kind, wanted, why)
            continue
        mine = [one for one in found if one.kind == kind]
        told = [f"{one.status}: {one.name}" + (f" ({one.why})" if one.why else "") for one in mine]
        bad = any(one.status in wrong for one in mine)
        yield judged("resurrection", kind, wanted, "; ".join(told) or "none", not bad)


def heat(sensor: Sensor) -> Item | None:
    """A sensor that has a limit or at least a figure."""
    wanted = f"below {sensor.limit_celsius:.0f} °C" if sensor.limit_celsius else "-"
    if sensor.celsius is None:
        return None
    good = sensor.limit_celsius is None or sensor.celsius < sensor.limit_celsius
    return judged("machine", sensor.name, wanted, f"{sensor.celsius:.0f} °C", good)


def hottest(sensors: tuple[Sensor, ...]) -> list[Sensor]:
    """The hottest sensor of each name: a Spark has several zones that call themselves the same."""
    best: dict[str, Sensor] = {}
    for one in sensors:
        kept = best.get(one.name)
        if one.celsius is not None and (kept is None or one.celsius > (kept.celsius or 0)):
            best[one.name] = one
    return [best[name] for name in sorted(best)]


def clocks(found: Machine) -> Item:
    read = [c for c in found.clocks if c.now_mhz is not None]
    if not read:
        return Item("machine", "CPU clock", "-", "no CPU frequency policies", "unsupported")
    low, high = min(c.now_mhz or 0 for c in read), max(c.now_mhz or 0 for c in read)
    caps = sorted({c.cap_mhz for c in read if c.cap_mhz and c.cap_mhz != c.top_mhz})
    capped = f", capped at {'/'.join(map(str, caps))}" if caps else ""
    span = f"{low}" if low == high else f"{low} to {high}"
    return judged("machine", "CPU clock", "-", f"{span} MHz{capped}", True)


def graphics(found: Machine) -> Iterator[Item]:
    """One line for each GPU; throttling is a drift, a question answered [N/A] is said as such."""
    if found.gpus.unread:
        yield unread("machine", "GPU", "not throttled", found.gpus.unread)
    elif found.gpus.found is None:
        yield Item("machine", "GPU", "not throttled", "no nvidia-smi here", "unsupported")
    for number, one in enumerate(found.gpus.found or ()):
        name = "GPU" if number == 0 else f"GPU {number}"
        heat_c = "N/A" if one.celsius is None else f"{one.celsius:.0f} °C"
        clock = "N/A" if one.sm_mhz is None else f"{one.sm_mhz} MHz"
        seen = f"{one.name} {heat_c}, {clock}" + (", memory of the host" if one.unified else "")
        if one.throttled is None:
            yield Item("machine", name, "not throttled", f"{seen}, throttling N/A", "unsupported")
            continue
        bits = one.throttled & THROTTLED
        yield judged(
            "machine", name, "not throttled", seen + (f", throttled ({bits:#x})" if bits else ""),
            not bits,
        )  # fmt: skip


def machine(state: HostState) -> Iterator[Item]:
    found = state.machine
    if not isinstance(found, Machine):
        yield unread("machine", "sensors", "-", found or "not asked for")
        return
    warm = [item for one in hottest(found.sensors) if (item := heat(one))]
    yield from warm or [Item("machine", "temperature", "-", "no sensor here", "unsupported")]
    yield clocks(found)
    yield from graphics(found)


def items(
    cluster: Cluster,
    node: Node,
    state: HostState,
    stack: Stack,
    known: tuple[Stack, ...],
    settings: HostSettings,
) -> list[Item]:
    """Everything that verify says about one host by itself.

    stack: what the owner's file wants served; settings: files/host.yaml.
    """
    return [
        target(state, settings.boot_target),
        program(state),
        *desktop(state, settings.services_down),
        *userunits.items(state, settings.user_units_down),
        *held(state, settings.maintenance_held),
        *clock_items.items(cluster, state, settings),
        *network(cluster, node, state),
        *memory_items.items(state, stack, settings.sysctl),
        image(state, stack),
        model(cluster, state, stack),
        *beside_model(cluster, state, stack),
        strangers(cluster, state, known),
        ports.item(cluster, node.rank, state, stack, known),
        *resurrections(cluster, node, state, stack, known),
        *machine(state),
    ]
