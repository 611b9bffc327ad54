"""The GPU's clocks between two limits, now and after every boot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyinfra.api.command import StringCommand

from facts.look.machine import Gpus, Machine
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.services import Services
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
from operations.run.journal import put, quiet

UNIT = "spark-converge-gpu-clocks.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"

Span = tuple[int, int]


def unit_text(span: Span) -> bytes:
    """The boot unit for the lowest and the highest clock in MHz."""
    template = (Path(__file__).parents[2] / "files" / "units" / UNIT).read_text()
    return template.replace("@LOW@", str(span[0])).replace("@HIGH@", str(span[1])).encode()


def seen(state: HostState) -> Gpus | Unknown:
    """The GPUs, from whichever part of the state has them."""
    if isinstance(state.machine, Machine):
        return state.machine.gpus
    return state.gpu or state.machine or Unknown("not asked for")


def not_offered(found: Gpus, span: Span) -> list[str]:
    """A sentence for each GPU that cannot run as fast as the lower limit."""
    return [
        f"{gpu.name} runs at {gpu.top_mhz} MHz at most, below clocks.gpu_mhz {span[0]}"
        for gpu in found.found or ()
        if gpu.top_mhz is not None and gpu.top_mhz < span[0]
    ]


def unlocked(state: HostState, found: Gpus, span: Span) -> list[str]:
    """Why the clocks are not locked, as far as that can be read.

    No driver tells what a lock is. What is read is whether our unit set it since the host started,
    and whether the clock of this moment is above it; [N/A] says nothing against it.
    """
    if isinstance(state.files, Unknown) or not isinstance(state.services, Services):
        return [f"{UNIT} could not be read"]
    own, unit = state.files.get(UNIT_PATH), state.services.asked.get(UNIT)
    if own is None or own.data != unit_text(span):
        return [f"{UNIT} is {'absent' if own is None else 'for other clocks'}"]
    if unit is None or unit.file_state != "enabled":
        return [f"{UNIT} is not enabled"]
    if unit.active != "active":
        return [f"{UNIT} is {unit.active}"]
    gpus = found.found or ()
    return [f"{g.name} at {g.sm_mhz} MHz" for g in gpus if g.sm_mhz and g.sm_mhz > span[1]]


def assess(look: Look) -> Iterator[Finding]:
    """Ok means that our unit set the lock; what a GPU is locked to cannot be read."""
    span, state, found = look.cluster.clocks.gpu_mhz, look.state, seen(look.state)
    if span is None:
        return
    line = Wanted("cpu", "GPU clock lock", f"{span[0]} to {span[1]} MHz")
    if isinstance(found, Unknown) or found.unread:
        yield line.unread(found if isinstance(found, Unknown) else found.unread or "")
    elif found.found is None:
        yield line.lacking("no nvidia-smi here")
    elif isinstance(state.files, Unknown) or isinstance(state.services, Unknown):
        yield line.unread(f"{UNIT} could not be read")
    else:
        left = unlocked(state, found, span)
        refuse = look.named(not_offered(found, span), look.settles)
        yield line.judged(", ".join(left) or f"set by {UNIT}", not left, refuse)


def withdrawn(state: HostState) -> bool:
    """Does our unit still lock the clocks, now or at the next start?"""
    if not isinstance(state.services, Services):
        return False
    unit = state.services.asked.get(UNIT)
    return unit is not None and (not unit.asleep or unit.file_state == "enabled")


@step
def locked(here: Here) -> Commands:
    """
    Lock the GPU's clocks as the owner's file says; without that only a lock of ours is released.

    + here: this host's share of the run

    A host without nvidia-smi is left alone and said so. Undo takes the lock away: what was locked
    before cannot be read.
    """
    span = here.cluster.clocks.gpu_mhz
    state = here.read()
    if span is None:
        if not withdrawn(state):
            here.noop("no GPU clocks are asked for (clocks.gpu_mhz)")
            return
        yield StringCommand(f"systemctl disable --quiet --now {UNIT}")
        here.changed()
        if withdrawn(here.read()):
            yield here.refuse(f"{UNIT} still locks the GPU's clocks; disable it")
        return
    found = here.known(seen(state), "GPU clocks cannot be locked:")
    if found.unread:
        yield here.refuse(f"GPU clocks cannot be locked: {found.unread}")
        return
    if found.found is None:
        here.warn("unsupported: no nvidia-smi here to lock GPU clocks")
        return
    why_not = unlocked(state, found, span)
    if not why_not:
        here.noop(f"GPU clocks locked between {span[0]} and {span[1]} MHz")
        return
    here.host.log("a GPU lock found cannot be read; undo leaves the GPU without one")
    yield put(UNIT_PATH, unit_text(span), 0o644)
    yield StringCommand(quiet("units", "enable", UNIT))
    # Its verdict is read back below, with the reason.
    yield StringCommand(f"systemctl restart {UNIT} || true")
    here.changed()
    now = here.read()
    left = unlocked(now, here.known(seen(now), "GPU clocks are"), span)
    if left:
        yield here.refuse(
            f"GPU clocks are not locked: {', '.join(left)}; "
            f"journalctl -u {UNIT} has nvidia-smi's words (without clocks.gpu_mhz none is tried)",
        )
