"""Full frames over the fabric, before anything is bound across it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from operations.network.cables import carrier_of
from operations.pair.identity import faults
from operations.run import remote
from operations.run.job import Commands, Here, Job, fail, step
from operations.run.remote import RemoteError


@dataclass(frozen=True)
class Way:
    """From a link of this host to an address of another one, with the MTU to prove."""

    device: str
    mtu: int
    other: str
    address: str


def _ping(state: State, host: Host, job: Job, ways: Sequence[Way]) -> bool:
    for way in ways:
        size = way.mtu - 28  # IPv4 and ICMP headers
        command = f"ping -M do -s {size} -c 3 -i 0.3 -W 3 -q {way.address}"
        try:
            remote.run(host, command, timeout_s=20)
        except RemoteError as error:
            link = f"{way.device} of {host.name} to {way.other}"
            return fail(
                state, host, job,
                f"{link} does not carry {size} bytes unfragmented ({error}): "
                f"check the cables and the MTU on both ends",
            )  # fmt: skip
    return True


@step
def crossed(here: Here) -> Commands:
    """
    Send full-size, unfragmented frames to every other rank over the fabric.

    + here: this host's share of the run
    """
    if not faults(here.job):
        return
    state = here.known(here.read().fabric, "fabric")
    ways = []
    for number, (device, address) in enumerate(here.cluster.rails(here.node)):
        link = carrier_of(address, state)
        if not here.job.settles and link is None:
            yield here.refuse(
                f"no link holds {address}, its fabric address in the owner's file; "
                "bring the link up (deploys/prepare.py does while nothing runs)",
            )
            return
        name, mtu = device, here.cluster.fabric.mtu
        if not here.job.settles and link is not None:
            name, mtu = link.name, link.mtu
        others = [other for other in here.cluster.nodes if other.rank != here.rank]
        ways += [Way(name, mtu, o.name, here.cluster.rails(o)[number][1]) for o in others]
    yield FunctionCommand(_ping, (here.job, ways), {})
