"""Bring the links between the ranks into force, with a way back."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.network.fabric import Fabric
from facts.run.unknown import Unknown
from inventory.schema import BOND_DEVICE, Cluster, Node
from operations.engines.recognise import by_podman, engines
from operations.network import comm
from operations.network.gids import fabric_facts, hca_addresses
from operations.network.netplan import (
    advice,
    care_faults,
    complaints,
    foreign_bond,
    live_faults,
    merged_wanted,
    trial_plan,
    volatile,
    why_not_converged,
)
from operations.network.netplan_files import merge_faults
from operations.run.findings import Finding, Look, Wanted, aside
from operations.run.job import Commands, Here, Job, fail, refuse, step
from operations.run.remote import RemoteError, call

# Time for `netplan apply` and the confirmation; an apply took 28 s in the lab under load.
TRIAL_S = 180


def cables(cluster: Cluster, fabric: Fabric) -> Iterator[Finding]:
    """Each fabric port's own link; a bond with one member left still carries everything."""
    wanted, bond = cluster.fabric, fabric.bonds.get(BOND_DEVICE)
    for name in wanted.interfaces:
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
    facts = fabric_facts(cluster, node.rank, fabric)
    if not facts.hcas:
        return line.lacking("no RDMA device on the fabric")
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
    return line.judged("; ".join(seen), reached == set(rails))


def assess(look: Look) -> Iterator[Finding]:
    """The fabric as the owner's file has it, its cables, and its RDMA devices."""
    cluster, node, fabric = look.cluster, look.node, look.state.fabric
    rails = ", ".join(f"{device} {address}" for device, address in cluster.rails(node))
    line = Wanted("fabric", "fabric", f"{rails}, MTU {cluster.fabric.mtu}")
    if not isinstance(fabric, Fabric):
        yield line.unread(fabric)
        for name in cluster.fabric.interfaces:
            yield Wanted("fabric", f"link {name}", "up").unread(fabric)
        return
    refuse = complaints(cluster, node, fabric)
    why = why_not_converged(cluster, node, fabric) + refuse
    seen = [*(why or ["as wanted"]), *volatile(cluster, fabric)]
    other = foreign_bond(cluster, fabric)
    if other:
        seen.append(f"{other.name} was made by somebody else")
        seen += [care for care in care_faults(cluster, fabric) if care not in why]
    yield line.judged("; ".join(seen), not why, refuse if look.settles else ())
    yield from cables(cluster, fabric)
    yield roce(cluster, node, fabric)
    all_read = [state.fabric for state in look.states if isinstance(state.fabric, Fabric)]
    yield aside("advice", comm.cable_advice(cluster, all_read))
    yield aside("advice", comm.twin_advice(cluster, node, fabric))
    yield aside("advice", advice(cluster, node, fabric))


def _await_applied(host: Host) -> None:
    deadline = time.monotonic() + TRIAL_S
    while True:
        phase = call(host, "fabric", "status")
        if phase["phase"] == "applied":
            return
        if phase["phase"] != "trying" or time.monotonic() > deadline:
            raise RemoteError(
                f"{host.name}: the fabric was not applied ({phase['phase']}: {phase['message']}); "
                "the old network is back"
            )
        time.sleep(1)


def _reconnect(host: Host) -> None:
    """A new connection, since an old one can outlive the route that it came over."""
    if host.name == "@local":
        return
    host.disconnect()
    host.connect(show_errors=False, raise_exceptions=True)


def _check_merged(job: Job, host: Host, node: Node, now: Fabric) -> None:
    """Let netplan itself merge all files, on paper; RemoteError when that is not what is wanted."""
    plan = trial_plan(job.cluster, node, now)
    made = call(host, "fabric", "check", stdin=plan)
    wanted, leaving = merged_wanted(job.cluster, node, now)
    said = merge_faults(wanted, leaving, now.netplan, made["before"], made["after"])
    if said:
        raise RemoteError(
            f"{host.name}: netplan would merge its files into something else: {'; '.join(said)}; "
            "nothing was applied, mend those files"
        )


def _checked(state: State, host: Host, job: Job, node: Node) -> bool:
    now = job.read(host).fabric
    try:
        if isinstance(now, Fabric):
            _check_merged(job, host, node, now)
    except RemoteError as error:
        return fail(state, host, job, str(error))
    return True


@step
def mergeable(here: Here) -> Commands:
    """
    Find out that netplan would not take the fabric's file before any engine is taken down for it.

    + here: this host's share of the run
    """
    fabric = here.read().fabric
    if isinstance(fabric, Fabric) and why_not_converged(here.cluster, here.node, fabric):
        yield FunctionCommand(_checked, (here.job, here.node), {})


def _apply(state: State, host: Host, job: Job, node: Node) -> bool:
    """Try, reconnect, read back, confirm; whatever fails before the confirmation reverts itself."""
    before = job.read(host).fabric
    try:
        if isinstance(before, Unknown):
            raise RemoteError(f"{host.name}: fabric {before}")
        _check_merged(job, host, node, before)
        call(host, "fabric", "try", str(TRIAL_S), stdin=trial_plan(job.cluster, node, before))
        _await_applied(host)
        _reconnect(host)
        wrong = ["not read"]
        deadline = time.monotonic() + 30
        while wrong and time.monotonic() < deadline:  # carrier and address come a moment later
            job.changed(host)
            now = job.read(host).fabric
            wrong = [str(now)] if isinstance(now, Unknown) else live_faults(job.cluster, node, now)
        if wrong:
            raise RemoteError(
                f"{host.name}: after netplan apply {'; '.join(wrong)}; "
                f"not confirmed, the old network comes back within {TRIAL_S} s"
            )
        call(host, "fabric", "confirm")
    except Exception as error:
        return fail(state, host, job, str(error))
    job.changed(host)
    return True


def _remark(job: Job, host: Host, remarks: list[str]) -> None:
    """Once a run, and in its receipt: with -y pyinfra does not plan, without it it plans first."""
    if host.name not in job.notes.volatile:
        job.notes.volatile[host.name] = remarks
        for remark in remarks:
            host.log(remark, log_func=logger.warning)


@step
def converged(here: Here, after_teardown: bool) -> Commands:
    """
    Bring the fabric to the owner's file; never while an engine runs over it.

    + here: this host's share of the run
    + after_teardown: the job takes the engines down first; otherwise the fabric waits for them

    Fails: one sentence, and the old network comes back by itself.
    Undo: the originals of /etc/netplan are in the journal.
    """
    fabric = here.read().fabric
    if isinstance(fabric, Unknown):
        yield here.refuse(f"fabric {fabric}")
        return
    wrong = why_not_converged(here.cluster, here.node, fabric)
    if not wrong:
        here.noop("the fabric is as wanted")
        return
    busy = [
        f"{e.container.name} on {here.job.hosts[rank].name}"
        for rank, state in enumerate(here.job.states())
        for e in engines(rank, state, here.job.known)
        if e.container.running
    ]
    busy += [
        f"{one.title} on {here.job.hosts[rank].name}"
        for rank, state in enumerate(here.job.states())
        for one, stack in by_podman(state, here.job.known)
        if stack
    ]
    if busy and not after_teardown:
        here.warn(
            f"waits: the fabric ({'; '.join(wrong)}) until {', '.join(busy)} is down "
            "(deploys/stop.py or deploys/serve.py)"
        )
        return
    _remark(here.job, here.host, volatile(here.cluster, fabric))
    if busy and here.executing:
        yield refuse(here.job, f"the fabric is not touched while {', '.join(busy)} runs")
        return
    yield FunctionCommand(_apply, (here.job, here.node), {})
