"""What the hosts of one cluster should have alike, and what its ranks do together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from facts.look.machine import Machine
from facts.memory.memory import Memory
from facts.model.images import Images
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.boot import Boot
from inventory.schema import Cluster, Node
from operations.model import images
from operations.network.gids import usable
from operations.run.findings import Line
from stacks.definition import Stack
from stacks.lock import registry
from stacks.lock.errors import LockError

TAG_TIMEOUT_S = 5.0  # verify is a look; a registry that takes longer is told as unknown


def alike(name: str, found: Sequence[str | None], note: str = "") -> Line:
    """Drift when the hosts differ; with a note the difference is said, and is nothing to mend."""
    values = tuple(found)
    if None in values:
        return Line(name, values, "unknown")
    if len(set(values)) == 1:
        return Line(name, values, "unsupported" if values[0] == "none" else "ok")
    return Line(name, values, "ok" if note else "drift", note)


def of_boot(state: HostState, ask: Callable[[Boot], str]) -> str | None:
    return ask(state.boot) if isinstance(state.boot, Boot) else None


def of_machine(state: HostState, ask: Callable[[Machine], str | None]) -> str | None:
    """An answer of the machine's; "none" where the machine has no such thing."""
    return (ask(state.machine) or "none") if isinstance(state.machine, Machine) else None


def docker_version(found: Machine) -> str | None:
    return (found.docker.version or "no answer") if found.docker else None


def docker_store(found: Machine) -> str | None:
    return f"{found.docker.driver} ({found.docker.store})" if found.docker else None


def gpu_driver(found: Machine) -> str | None:
    return ", ".join(sorted({g.driver or "N/A" for g in found.gpus.found or ()}))


def gpu_vbios(found: Machine) -> str | None:
    return ", ".join(sorted({g.vbios or "N/A" for g in found.gpus.found or ()}))


def nic_firmware(found: Machine) -> str | None:
    return ", ".join(sorted({version for version in found.nic_firmware.values() if version}))


def memory_line(states: Sequence[HostState]) -> Line:
    """Equal machines differ by what their firmware keeps for itself, well below a hundredth."""
    sizes = [s.memory.total_mib if isinstance(s.memory, Memory) else None for s in states]
    told = tuple(None if size is None else f"{size / 1024:.1f} GiB" for size in sizes)
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return Line("memory", told, "unknown")
    return Line("memory", told, "ok" if min(known) > 0.99 * max(known) else "drift")


def mtus(cluster: Cluster, node: Node, state: HostState) -> str | None:
    if isinstance(state.fabric, Unknown):
        return None
    names = dict.fromkeys((cluster.device(node), *cluster.interfaces(node)))
    links = [state.fabric.links.get(name) for name in names]
    return "/".join("absent" if link is None else str(link.mtu) for link in links)


def hcas(cluster: Cluster, node: Node, state: HostState) -> str | None:
    """How many can carry the fabric; names may differ."""
    if isinstance(state.fabric, Unknown):
        return None
    return str(len(usable(cluster, node.rank, state.fabric)) or "none")


def lines(cluster: Cluster, states: Sequence[HostState]) -> list[Line]:
    """The parity lines; states in rank order."""

    def over(name: str, ask: Callable[[HostState], str | None], note: str = "") -> Line:
        return alike(name, [ask(state) for state in states], note)

    def machines(name: str, ask: Callable[[Machine], str | None], note: str = "") -> Line:
        return over(name, lambda state: of_machine(state, ask), note)

    hosts = list(zip(cluster.nodes, states, strict=True))
    links = f"MTU {cluster.device(cluster.head)} and members"

    return [
        over("kernel", lambda s: of_boot(s, lambda b: b.kernel)),
        over("architecture", lambda s: of_boot(s, lambda b: b.machine)),
        machines("system", lambda m: m.os),
        machines("machine", lambda m: m.product),
        machines("BIOS", lambda m: m.bios),
        machines("CPUs", lambda m: str(m.cpus)),
        memory_line(states),
        machines("docker", docker_version),
        machines("image store", docker_store, "images are compared by digest, never by id"),
        machines("GPU driver", gpu_driver),
        machines("GPU firmware", gpu_vbios),
        machines("NIC firmware", nic_firmware),
        alike("RDMA devices of the fabric", [hcas(cluster, *one) for one in hosts]),
        alike(links, [mtus(cluster, *one) for one in hosts]),
    ]


def image_line(stack: Stack, states: Sequence[HostState]) -> Line:
    """The stack's image on each host by repository digest and platform; ids are not comparable."""

    def told(state: HostState) -> str | None:
        if not isinstance(state.images, Images):
            return None
        image = images.found(state, stack)
        if image is None:
            return "absent"
        given = sorted({digest.partition("@")[2] for digest in image.digests})
        locked = stack.image_reference.partition("@")[2]
        return f"{locked if locked in given else ', '.join(given)}"[:19] + f" {image.platform}"

    return alike("image by digest", [told(state) for state in states])


def tag_line(stack: Stack, hosts: int) -> Line | None:
    """Where the tag that the stack names points to now; None when it names none.

    Asks the registry from this machine. A tag that moved is said and nothing more: the lock
    decides.
    """
    locked = stack.image_reference.partition("@")[2]
    if stack.tag is None or not locked:
        return None
    name = f"tag {stack.tag}"
    try:
        now = registry.digest_of(stack.repository, stack.tag, TAG_TIMEOUT_S)
    except LockError as error:
        return Line(name, (None,) * hosts, "unknown", str(error))
    moved = "" if now == locked else f", moved: the lock keeps {locked[:19]}"
    return Line(name, (now[:19] + moved,) * hosts, "ok")
