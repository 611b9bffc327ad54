"""What verify's page and the preflight say of a host's fabric, its cables and its RDMA devices."""

from __future__ import annotations

from collections.abc import Iterator

from facts.network.fabric import Fabric
from inventory.schema import BOND_DEVICE, Cluster, Node
from operations.engines.recognise import outsiders
from operations.network import cables as wiring
from operations.network import comm
from operations.network.gids import hca_addresses, roce_v2_index, usable
from operations.network.judge import advice, care_faults, case, volatile, why_not_converged
from operations.network.obstacles import complaints
from operations.run.findings import Finding, Look, Wanted, aside


def cables(cluster: Cluster, node: Node, fabric: Fabric) -> Iterator[Finding]:
    """Each fabric port's own link; a bond with one member left still carries everything."""
    wanted, bond = cluster.fabric, fabric.bonds.get(BOND_DEVICE)
    for name in cluster.interfaces(node):
        line, link = Wanted("fabric", f"link {name}", "up"), fabric.links.get(name)
        if link is None:
            yield line.judged("absent", False)
            continue
        seen, good = ("up" if link.carrier else "no carrier"), link.carrier
        if wanted.mode == "bond" and bond is not None and name in bond.members:
            inside = name in bond.members_up
            seen, good = seen + ("" if inside else f", down in {bond.name}"), good and inside
            seen += f", active in {bond.name}" if bond.active == name else ""
        yield line.judged(seen, good)


def roce(cluster: Cluster, node: Node, fabric: Fabric) -> Finding:
    """The GID that NCCL looks for; a bond of ConnectX-7 ports does not always have it.

    A twin that is up and left out halves the speed; that is the owner's choice, and said.
    """
    rails = [address for _, address in cluster.rails(node)]
    line = Wanted("fabric", "RDMA", f"RoCE v2 GID of {' and '.join(rails)}")
    able, on = usable(cluster, node.rank, fabric), hca_addresses(cluster, node.rank, fabric)
    if not on:
        return line.lacking("no RDMA device on the fabric")
    states = {h.name: h.state for h in fabric.hcas}
    indexes = {hca: roce_v2_index(fabric, hca, address) for hca, address in on.items()}
    seen = [
        f"{hca} {states[hca]}, " + ("no such GID" if index is None else f"GID {index}")
        for hca, index in indexes.items()
    ]
    twins = comm.unused_twins(cluster, node, fabric)
    seen += [f"{twin} is up on the cable of {used} and not used" for twin, used in twins.items()]
    return line.judged("; ".join(seen), {on[hca] for hca in able} == set(rails))


def under_programs(look: Look) -> list[str]:
    """Engines outside of containers: no job ends them, and the fabric waits for all of them."""
    return [
        f"{node.name}: {one.told} runs outside of docker, and the fabric is not changed under it; "
        f"stop it: {one.stop}"
        for node, state in zip(look.cluster.nodes, look.states, strict=True)
        for one in outsiders(state, look.known)
    ]


def assess(look: Look) -> Iterator[Finding]:
    """The fabric as the owner's file has it, its cables, and its RDMA devices."""
    cluster, node, fabric = look.cluster, look.node, look.state.fabric
    rails = ", ".join(f"{device} {address}" for device, address in cluster.rails(node))
    line = Wanted("fabric", "fabric", f"{rails}, MTU {cluster.fabric.mtu}")
    if not isinstance(fabric, Fabric):
        yield line.unread(fabric)
        for name in cluster.interfaces(node):
            yield Wanted("fabric", f"link {name}", "up").unread(fabric)
        return
    now = case(cluster, node, fabric)
    refuse = complaints(now)
    why = why_not_converged(now) + refuse
    seen = [*(why or ["as wanted"]), *volatile(now)]
    if now.foreign:
        seen.append(f"{now.foreign.name} was made by somebody else")
        seen += [care for care in care_faults(now) if care not in why]
    if why and look.launches:  # what a teardown leaves running, it must not be laid under
        refuse = [*refuse, *under_programs(look)]
    yield line.judged("; ".join(seen), not why, refuse if look.settles else ())
    yield from cables(cluster, node, fabric)
    yield roce(cluster, node, fabric)
    all_read = [state.fabric for state in look.states if isinstance(state.fabric, Fabric)]
    if len(all_read) == len(look.states):
        yield aside("advice", wiring.advice(cluster, all_read))
        yield aside("refuse", wiring.crossed(cluster, all_read) if look.settles else ())
    yield aside("advice", comm.twin_advice(cluster, node, fabric))
    yield aside("advice", comm.bond_advice(cluster, node, fabric))
    yield aside("advice", advice(now))
