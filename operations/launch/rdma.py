"""RDMA between the ranks, tried with the tools that the hosts have; figures read and judged."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.network.fabric import Fabric
from inventory.schema import Cluster
from operations.network.cables import carrier_of
from operations.network.gids import hca_addresses, roce_v2_index, unlike, usable
from operations.pair.identity import faults, specs
from operations.run.findings import Line, Verdict
from operations.run.job import Commands, Here, Job, fail, step
from operations.run.remote import RemoteError, call
from stacks.definition import StackError
from stacks.render import RankSpec

PINGPONG, WRITE_BW = "ibv_rc_pingpong", "ib_write_bw"
PORT = 18515  # of both programs when nobody names one
# Field case D17 (NVIDIA/dgx-spark-playbooks pull 108): a badly initialised ConnectX-7 links at
# 200 Gb/s and carries about 13; a good one carries 92 to 106 over one PCIe function.
DEGRADED_GBPS = (8.0, 25.0)
GOOD_SHARE = 0.4
GID_S = 15  # a device and its GIDs follow their link within seconds
FAST_GBPS = 100.0  # of a slower link nothing is known to judge it by
DEGRADED = "a ConnectX-7 that started badly; power both hosts off at the wall and on again"
Judgement = Literal["good", "degraded init", "slow", "not judged"]


@dataclass(frozen=True)
class Exchange:
    """One device of the head with the one it meets on another host; GID indexes of both; mtu: of
    the path, in bytes of a message."""

    device: str
    gid: int
    rank: int
    other_device: str
    other_gid: int
    other_address: str
    mtu: int


def path_mtu(mtu: int) -> int:
    """The largest RDMA message that fits a frame of so many bytes with all its headers, 96 bytes:
    the kernel's iboe_get_mtu (include/rdma/ib_addr.h)."""
    return max(size for size in (256, 512, 1024, 2048, 4096) if size <= mtu - 96)


def exchanges(cluster: Cluster, fabrics: list[Fabric]) -> Iterator[Exchange]:
    """Every usable device of the head, to its counterpart on each other host: the one in the same
    place among those of the same rail."""
    able = [list(usable(cluster, rank, f).items()) for rank, f in enumerate(fabrics)]
    on = [hca_addresses(cluster, rank, fabric) for rank, fabric in enumerate(fabrics)]
    for rank, node in enumerate(cluster.nodes[1:], start=1):
        for (_, mine), (_, address) in zip(
            cluster.rails(cluster.head), cluster.rails(node), strict=True
        ):
            here = [one for one in able[0] if on[0][one[0]] == mine]
            there = [one for one in able[rank] if on[rank][one[0]] == address]
            links = carrier_of(mine, fabrics[0]), carrier_of(address, fabrics[rank])
            mtu = path_mtu(min([link.mtu for link in links if link] or [cluster.fabric.mtu]))
            for (name, gid), (other, other_gid) in zip(here, there, strict=False):
                yield Exchange(name, gid, rank, other, other_gid, address, mtu)


def average_gbps(text: str) -> float | None:
    """`BW average[Gb/sec]` of ib_write_bw's report, None when there is no such figure."""
    found = None
    unit = re.search(r"BW average\[(Gb|MiB|MB)/sec\]", text)
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and re.fullmatch(r"\d+", words[0]) and re.fullmatch(r"\d+", words[1]):
            with contextlib.suppress(ValueError):
                found = float(words[3])
    return found if unit and unit[1] == "Gb" else None


def judged(gbps: float, rate_gbps: float | None) -> Judgement:
    """What a bandwidth says about a link of that rate (both in Gb/s)."""
    if rate_gbps is None or rate_gbps < FAST_GBPS:
        return "not judged"
    if DEGRADED_GBPS[0] <= gbps <= DEGRADED_GBPS[1]:
        return "degraded init"
    return "good" if gbps >= GOOD_SHARE * rate_gbps else "slow"


def unreachable(cluster: Cluster, spec: RankSpec, fabric: Fabric) -> Iterator[str]:
    """Why a rank that was told to use RDMA would hang once it has loaded: an address of the fabric
    that no active device of its host has a GID for."""
    if "NCCL_IB_HCA" not in spec.env or spec.env.get("NCCL_IB_DISABLE", "0") not in ("0", ""):
        return
    able = usable(cluster, spec.rank, fabric)
    addresses = hca_addresses(cluster, spec.rank, fabric)
    states = {hca.name: hca.state for hca in fabric.hcas}
    for address in dict.fromkeys(addresses.values()):
        mine = [hca for hca in addresses if addresses[hca] == address]
        if {*mine} & {*able}:
            continue
        indexes = {hca: roce_v2_index(fabric, hca, address) for hca in mine}
        told = ", ".join(
            f"{hca} is {states[hca]} and has "
            + ("no such GID" if index is None else f"GID {index}")
            for hca, index in indexes.items()
        )
        yield (
            f"{spec.host}: no active RDMA device has a RoCE v2 GID of {address} ({told}), and "
            f"{spec.stack} uses RDMA: take the link down and up (sudo ip link set DEVICE down), or "
            "see `rdma link`"
        )


def lacking(fabrics: list[Fabric], names: list[str], program: str) -> str | None:
    """Why the program cannot be run between these hosts, None when it can."""
    without = [n for n, f in zip(names, fabrics, strict=True) if program not in f.tools]
    return f"{program} is not installed on {', '.join(without)}" if without else None


def between(job: Job, one: Exchange, program: str, port: int) -> str:
    """Run one test from the head to another host; RemoteError names both ends."""
    head, other = job.hosts[0], job.hosts[one.rank]
    words = (program, one.other_device, str(one.other_gid), str(port), str(one.mtu))
    call(other, "rdma", "serve", *words, timeout_s=30)
    try:
        words = (program, one.device, str(one.gid), str(port), str(one.mtu))
        return str(call(head, "rdma", "meet", *words, one.other_address, timeout_s=40)["out"])
    finally:
        with contextlib.suppress(RemoteError):
            call(other, "rdma", "end", timeout_s=20)


def bandwidth(job: Job) -> list[Line]:
    """One line for each pair of devices that can meet: what ib_write_bw says, and whether that is
    a badly initialised card. Writes for five seconds over each, so it is asked for by the owner."""
    fabrics = [s.fabric for s in job.states() if isinstance(s.fabric, Fabric)]
    names = [h.name for h in job.hosts]
    if len(fabrics) < len(names):
        return [Line("RDMA write", (None,) * len(names), "unknown")]
    why = lacking(fabrics, names, WRITE_BW)
    found = list(exchanges(job.cluster, fabrics))
    if why or not found:
        told = why or "no active device"
        return [Line("RDMA write", (told,) * len(names), "unsupported")]
    return [_measured(job, one, fabrics[0], number) for number, one in enumerate(found)]


def _measured(job: Job, one: Exchange, head: Fabric, number: int) -> Line:
    name = f"RDMA write {one.device}"
    rate = next(h.rate_gbps for h in head.hcas if h.name == one.device)
    try:
        gbps = average_gbps(between(job, one, WRITE_BW, PORT + number))
        said = "no figure in the report of ib_write_bw"
    except RemoteError as error:
        gbps, said = None, str(error)
    if gbps is None:
        return _line(job, one, name, said, "unknown", "")
    verdict = judged(gbps, rate)
    told = f"{gbps:.1f} Gb/s, {verdict}" + (f" (link {rate:.0f})" if rate else "")
    good = verdict in ("good", "not judged")
    note = DEGRADED if verdict == "degraded init" else ""
    return _line(job, one, name, told, "ok" if good else "drift", note)


def _line(job: Job, one: Exchange, name: str, said: str, verdict: Verdict, note: str) -> Line:
    """Told in the column of the host that was written to."""
    found = tuple(said if host.name == job.hosts[one.rank].name else "-" for host in job.hosts)
    return Line(name, found, verdict, note)


def _all_unreachable(job: Job) -> list[str]:
    states = job.states()
    try:
        made = specs(job.cluster, job.stack, states) if job.stack else []
    except StackError as error:
        return list(error.lines)
    said = [
        sentence
        for spec, state in zip(made, states, strict=False)
        if isinstance(state.fabric, Fabric)
        for sentence in unreachable(job.cluster, spec, state.fabric)
    ]
    fabrics = [state.fabric for state in states if isinstance(state.fabric, Fabric)]
    alike = said or len(fabrics) < len(states) or not any("NCCL_IB_HCA" in s.env for s in made)
    return said if alike else list(unlike(job.cluster, fabrics))


def _without_gid(job: Job) -> list[str]:
    """What unreachable says of all ranks; a link that has just come up is given some time."""
    deadline = time.monotonic() + GID_S
    while True:
        said = _all_unreachable(job)
        if not said or time.monotonic() > deadline:
            return said
        time.sleep(1)
        for host in job.hosts:
            job.changed(host)


def _exchange(state: State, host: Host, job: Job) -> bool:
    gone = _without_gid(job)
    if gone:
        return fail(state, host, job, "; ".join(gone))
    fabrics = [s.fabric for s in job.states() if isinstance(s.fabric, Fabric)]
    names = [h.name for h in job.hosts]
    if len(fabrics) < len(names):
        return fail(state, host, job, "the fabric of a host could not be read for the RDMA test")
    why = lacking(fabrics, names, PINGPONG)
    found = list(exchanges(job.cluster, fabrics))
    if why or not found:
        told = why or "no active RDMA device has a GID of the fabric on all hosts"
        host.log(
            f"unsupported: RDMA between the ranks is not tried, {told}", log_func=logger.warning
        )
        return True
    for number, one in enumerate(found):
        try:
            between(job, one, PINGPONG, PORT + number)
        except RemoteError as error:
            return fail(
                state, host, job,
                f"RDMA from {one.device} (GID {one.gid}) of {names[0]} to {one.other_device} (GID "
                f"{one.other_gid}) of {names[one.rank]} does not pass though full frames do "
                f"({error}): look at `ibv_devinfo` on both and at the mode in fabric.mode",
            )  # fmt: skip
    return True


@step
def exchanged(here: Here) -> Commands:
    """
    Exchange RDMA messages from every active device of the head with every other rank.

    + here: this host's share of the run

    A rank that is told to use RDMA and has no active device with a GID of its address refuses.
    Where a host lacks ibv_rc_pingpong or such a device it is said, and nothing is tried.
    """
    if faults(here.job):
        yield FunctionCommand(_exchange, (here.job,), {})
