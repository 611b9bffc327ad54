"""The verbs of the lab, on both guests as one pair."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lab.common import tools
from lab.common.arch import Arch, machine_arch
from lab.common.errors import LabError
from lab.common.parallel import each
from lab.common.paths import HOSTS, LabHome
from lab.common.progress import say
from lab.guests import accel, qemu, ssh
from lab.guests.qemu import Guest, guests
from lab.guests.qmp import Qmp
from lab.image import cache, hostfiles
from lab.image.cache import Image
from lab.pair import found as unknown
from lab.pair import fresh
from lab.pair.state import Snapshot, State, load, save
from lab.services import registry
from lab.stacks import images

FRESH = "fresh"
FOUND = "found"


@dataclass(frozen=True)
class Pair:
    """A made pair: its home, image, acceleration and what its snapshots depend on."""

    home: LabHome
    arch: Arch
    image: Image
    accel: str

    def line(self, guest: Guest) -> list[str]:
        """QEMU's command line for a guest."""
        return qemu.command(guest, self.image, self.arch, self.accel)

    def key(self) -> str:
        """What any snapshot of this pair depends on."""
        return qemu.fingerprint([self.line(guest) for guest in guests(self.home)], self.arch)


def up(home: LabHome) -> None:
    """Have both guests running: nothing to do, a resume of ``fresh``, or a build and a boot."""
    arch = machine_arch()
    tools.require(arch)
    home.make()
    hostfiles.make_keys(home)
    ssh.write_config(home)
    if _already_up(home, arch):
        return
    made = cache.ensure(home, arch)
    digests = images.ensure(home, made.tree)
    old_engine = images.reference("dsf-lab", digests)
    pair = Pair(home, arch, made, accel.choose(home, arch, made))
    fresh_key = _fresh_key(pair, old_engine)
    state = load(home)
    known = state.snapshots.get(FRESH)
    if state.image == made.id and known and known.key == fresh_key and _on_disks(home, FRESH):
        say("resuming snapshot fresh")
        restore(home, FRESH)
        return
    _boot_new(pair)
    fresh.make_dirty(home, old_engine)
    _take(home, FRESH, fresh_key)
    say("up: both hosts run, snapshot fresh is taken")


def _already_up(home: LabHome, arch: Arch) -> bool:
    """Complete a pair of which a host runs; False when nothing runs that is worth keeping."""
    running = [guest for guest in guests(home) if guest.pid() is not None]
    if not running:
        return False
    state = load(home)
    if FRESH not in state.snapshots:
        say("up: an earlier `up` did not finish; starting over")
        for guest in running:
            _quit(guest)
        return False
    images.start_registry(home)
    for guest in guests(home):
        if guest not in running:
            power(home, guest.name, "on")
    if cache.wanted(home, arch).id != state.image:
        say("up: already running, from older inputs; `python -m lab down` and `up` rebuild it")
    else:
        say("up: already running")
    return True


def _fresh_key(pair: Pair, old_engine: str) -> str:
    parts = [pair.key(), old_engine, fresh.digest()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _on_disks(home: LabHome, name: str) -> bool:
    return all(g.disk.exists() and name in qemu.disk_snapshots(g) for g in guests(home))


def _boot_new(pair: Pair) -> None:
    home = pair.home
    say(f"booting both hosts ({pair.accel})")
    for guest in guests(home):
        qemu.make_disk(guest, pair.image)
    save(home, State(image=pair.image.id, accel=pair.accel))
    cache.prune(home, keep=pair.image)
    for guest in guests(home):
        ssh.drop_shared(home, guest.name)
        qemu.start(guest, pair.line(guest))
    _on_monitors(guests(home), lambda monitor: monitor.run("cont"))
    each(HOSTS, lambda host: fresh.wait_booted(home, host))
    say("both hosts are booted")


def down(home: LabHome) -> None:
    """Stop both guests and the registry, like pulling their plugs; snapshots stay."""
    for guest in guests(home):
        _quit(guest)
    registry.stop(home.root)
    say("down: both hosts and the registry are off")


def destroy(home: LabHome, images: bool) -> None:
    """Remove all that the lab made but its images; those too when `images` is set.

    What else is in the home stays, and is named: its path is the user's choice.
    """
    down(home)
    if images:
        cache.prune(home, keep=None)
    kept = []
    for entry in sorted(home.root.iterdir()):
        if entry.name not in home.made:
            kept.append(entry.name)
        elif entry != home.images and entry.name != "lock":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if kept:
        say(f"destroy: left in {home.root}, not made by the lab: {', '.join(kept)}")
    if home.sockets.exists():
        shutil.rmtree(home.sockets)


def snapshot(home: LabHome, name: str) -> None:
    """Keep this moment of both guests. Raises LabError for a bad name or a guest that is off."""
    _check_name(name)
    if name == FRESH:
        raise LabError("fresh is the snapshot that `up` takes; choose another name")
    pair = _running_pair(home)
    _take(home, name, pair.key())


def found(home: LabHome) -> None:
    """Take the snapshot ``found``, anew where there is one: `fresh` with a stack nobody knows.

    Raises LabError when there is no pair yet or its stack does not answer.
    """
    restore(home, FRESH)
    unknown.lay(home)
    _take(home, FOUND, _running_pair(home).key())
    say("found: both hosts serve a stack that no file knows, snapshot found is taken")


def _take(home: LabHome, name: str, key: str) -> None:
    both = guests(home)
    _on_monitors(both, lambda monitor: monitor.run("stop"))
    try:
        _on_monitors(both, lambda monitor: monitor.human(f"savevm {name}"))
    finally:
        _on_monitors(both, lambda monitor: monitor.run("cont"))
    state = load(home)
    state.snapshots[name] = Snapshot(key, {h: dict(ends) for h, ends in state.cables.items()})
    save(home, state)
    each(HOSTS, lambda host: ssh.set_clock(home, host))


def restore(home: LabHome, name: str) -> None:
    """Bring both guests back to a snapshot, at the same moment, with their clocks set.

    A guest that is off is started from it. Raises LabError when there is no such snapshot or
    when it was made by another QEMU or command line.
    """
    state = load(home)
    kept = state.snapshots.get(name)
    if kept is None:
        names = ", ".join(sorted(state.snapshots)) or "none"
        raise LabError(f"no snapshot {name!r}; there are: {names}")
    pair = _made_pair(home, state)
    if name != FRESH and kept.key != pair.key():
        raise LabError(f"snapshot {name!r} was made by another QEMU or command line; take it anew")
    images.start_registry(home)
    each(HOSTS, lambda host: ssh.drop_shared(home, host))
    each(guests(home), lambda guest: _load(pair, guest, name))
    state.cables = {host: dict(ends) for host, ends in kept.cables.items()}
    save(home, state)
    for guest in guests(home):
        _set_cables(guest, state.cables[guest.name])
    _on_monitors(guests(home), lambda monitor: monitor.run("cont"))
    each(HOSTS, lambda host: ssh.wait(home, host))
    each(HOSTS, lambda host: ssh.set_clock(home, host))
    say(f"both hosts are back at {name}")


def _load(pair: Pair, guest: Guest, name: str) -> None:
    if guest.pid() is None:
        qemu.start(guest, pair.line(guest), snapshot=name)
        return
    with Qmp(guest.monitor) as monitor:
        monitor.run("stop")
        for cable in qemu.CABLES:
            monitor.run("set_link", name=f"cable{cable}", up=True)
        monitor.human(f"loadvm {name}")


def cable(home: LabHome, number: int, plugged: bool, end: str | None) -> None:
    """Pull or plug a cable, at both ends or at one host's end only."""
    state = load(home)
    for host in [end] if end else HOSTS:
        state.cables[host][str(number)] = plugged
        guest = Guest(home, host)
        if guest.pid() is not None:
            _set_cables(guest, state.cables[host])
    save(home, state)


def power(home: LabHome, host: str, what: str) -> None:
    """Switch one host: ``off`` like pulling its plug, ``on`` boots it, ``reset`` is its button.

    ``on`` and ``reset`` return when the host answers on SSH from its new boot.
    """
    guest = Guest(home, host)
    if what == "off":
        _quit(guest)
        ssh.drop_shared(home, host)
    elif what == "on":
        if guest.pid() is None:
            state = load(home)
            pair = _made_pair(home, state)
            images.start_registry(home)
            qemu.start(guest, pair.line(guest))
            _set_cables(guest, state.cables[host])
            _on_monitors([guest], lambda monitor: monitor.run("cont"))
        ssh.wait(home, host)
    else:
        _require_running(guest)
        before = ssh.boot_id(home, host)
        _on_monitors([guest], lambda monitor: monitor.run("system_reset"))
        ssh.drop_shared(home, host)
        ssh.wait(home, host, not_boot=before)


def status(home: LabHome) -> dict[str, Any]:
    """The lab as data: hosts, cables, snapshots, acceleration, image, registry."""
    state = load(home)
    hosts = {
        guest.name: {
            "running": guest.pid() is not None,
            "pid": guest.pid(),
            "ssh_port": qemu.SSH_PORT[guest.name],
            "api_port": qemu.API_PORT[guest.name],
            "console": str(guest.console),
            "cables": {n: "plug" if on else "pull" for n, on in state.cables[guest.name].items()},
        }
        for guest in guests(home)
    }
    return {
        "home": str(home.root),
        "hosts": hosts,
        "snapshots": sorted(state.snapshots),
        "accel": state.accel,
        "image": state.image,
        "registry": registry.running(home.root),
        "ssh_config": str(home.ssh_config),
    }


def _made_pair(home: LabHome, state: State) -> Pair:
    if not state.image:
        raise LabError("there is no pair yet; make it with `python -m lab up`")
    arch = machine_arch()
    made = replace(cache.wanted(home, arch), id=state.image, folder=home.images / state.image)
    return Pair(home, arch, made, state.accel)


def _running_pair(home: LabHome) -> Pair:
    for guest in guests(home):
        _require_running(guest)
    return _made_pair(home, load(home))


def _require_running(guest: Guest) -> None:
    if guest.pid() is None:
        raise LabError(f"{guest.name} is off; start it with `python -m lab up`")


def _quit(guest: Guest) -> None:
    if guest.pid() is None:
        return
    with Qmp(guest.monitor) as monitor:
        monitor.run("quit")
    qemu.wait_end(guest)


def _set_cables(guest: Guest, ends: dict[str, bool]) -> None:
    with Qmp(guest.monitor) as monitor:
        for number, plugged in ends.items():
            monitor.run("set_link", name=f"cable{number}", up=plugged)


def _on_monitors(chosen: list[Guest], work: Callable[[Qmp], object]) -> None:
    def one(guest: Guest) -> None:
        with Qmp(guest.monitor) as monitor:
            work(monitor)

    each(chosen, one)


def _check_name(name: str) -> None:
    # QEMU takes a number for a snapshot's id, so a name starts with a letter.
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,63}", name):
        raise LabError(
            f"snapshot name {name!r}: expected a letter, then letters, digits, dots, dashes"
        )
