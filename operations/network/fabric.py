"""Bring the links between the ranks into force, with a way back."""

from __future__ import annotations

import time
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.network.fabric import Fabric
from facts.run.unknown import Unknown
from inventory.schema import BOND_DEVICE
from operations.engines.recognise import alive
from operations.network.judge import (
    Case,
    case,
    cosmetic,
    live_faults,
    other_hash,
    unfit,
    volatile,
    why_not_converged,
)
from operations.network.netplan import FILE, PATH, document
from operations.network.obstacles import merge_faults
from operations.network.wanted import WantedFabric, wanted
from operations.run.job import Commands, Here, Job, fail, refuse, step
from operations.run.journal import put
from operations.run.remote import RemoteError, call

# Time for `netplan apply` and the confirmation; an apply took 28 s in the lab under load.
TRIAL_S = 180


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


def trial_plan(now: Case) -> dict[str, Any]:
    """What spark-host's `fabric try` and `fabric check` take."""
    links = now.found.links.values()
    gone = {bond.name for bond in now.bonds} | ({BOND_DEVICE} & now.defined)
    if now.wanted.bond:
        gone = gone - {BOND_DEVICE} | ({BOND_DEVICE} if _to_remake(now) else set())
    return {
        "files": {FILE: document(now.wanted)},
        "devices": sorted(
            name
            for name in now.devices | now.defined
            if not any(name in link.altnames for link in links)
        ),
        "shadow": now.replaced,
        "delete_links": sorted(gone),
        "created_links": [BOND_DEVICE] if now.wanted.bond and now.ours is None else [],
    }


def _to_remake(now: Case) -> bool:
    """networkd before systemd 257 does not change a bond that exists (systemd#36406)."""
    want, bond = now.wanted.bond, now.ours
    if want is None or bond is None:
        return False
    other = (bond.mode, bond.mii_ms) != (want.mode, want.mii_ms) or other_hash(now) is not None
    return other or bool({*bond.members} - {*want.members})


def _check_merged(host: Host, now: Case) -> None:
    """Let netplan itself merge all files, on paper; RemoteError when that is not what is wanted."""
    made = call(host, "fabric", "check", stdin=trial_plan(now))
    said = merge_faults(now, made["before"], made["after"])
    if said:
        raise RemoteError(
            f"{host.name}: netplan would merge its files into something else: {'; '.join(said)}; "
            "nothing was applied, mend those files"
        )


def _checked(state: State, host: Host, job: Job, want: WantedFabric) -> bool:
    fabric = job.read(host).fabric
    try:
        if isinstance(fabric, Fabric):
            _check_merged(host, Case(want, fabric))
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
    want = wanted(here.cluster, here.node)
    if isinstance(fabric, Fabric) and unfit(Case(want, fabric)):
        yield FunctionCommand(_checked, (here.job, want), {})


def _apply(state: State, host: Host, job: Job, want: WantedFabric) -> bool:
    """Try, reconnect, read back, confirm; whatever fails before the confirmation reverts itself."""
    before = job.read(host).fabric
    try:
        if isinstance(before, Unknown):
            raise RemoteError(f"{host.name}: fabric {before}")
        _check_merged(host, Case(want, before))
        call(host, "fabric", "try", str(TRIAL_S), stdin=trial_plan(Case(want, before)))
        _await_applied(host)
        _reconnect(host)
        wrong = ["not read"]
        deadline = time.monotonic() + 30
        while wrong and time.monotonic() < deadline:  # carrier and address come a moment later
            job.changed(host)
            now = job.read(host).fabric
            wrong = [str(now)] if isinstance(now, Unknown) else live_faults(Case(want, now))
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


def busy_with(job: Job) -> list[str]:
    """Each engine, of a known stack or not, that runs on any host: the fabric may be its own."""
    return [
        f"{one.told} on {host.name}"
        for host, state in zip(job.hosts, job.states(), strict=True)
        for one in alive(state, job.known)
    ]


def _case(here: Here) -> Case:
    return case(here.cluster, here.node, here.known(here.read().fabric, "fabric"))


@step
def converged(here: Here, after_teardown: bool) -> Commands:
    """
    Bring the fabric to the owner's file; never while an engine runs over it.

    + here: this host's share of the run
    + after_teardown: the job takes the engines down first; otherwise the fabric waits for them

    Fails: one sentence, and the old network comes back by itself.
    Undo: the originals of /etc/netplan are in the journal.
    """
    now = _case(here)
    wrong = why_not_converged(now)
    if not wrong:
        here.noop("the fabric is as wanted")
        return
    if cosmetic(now):  # in place: no link is touched, whatever runs over it
        yield put(PATH, document(now.wanted).encode(), 0o600)
        here.changed()
        left = why_not_converged(_case(here))
        if left:
            yield here.refuse(f"{', '.join(left)} after the change")
        return
    busy = busy_with(here.job)
    if busy and not after_teardown:
        here.warn(
            f"waits: the fabric ({'; '.join(wrong)}) until {', '.join(busy)} is down "
            "(deploys/stop.py or deploys/serve.py)"
        )
        return
    _remark(here.job, here.host, volatile(now))
    if busy and here.executing:
        yield refuse(here.job, f"the fabric is not touched while {', '.join(busy)} runs")
        return
    yield FunctionCommand(_apply, (here.job, now.wanted), {})
