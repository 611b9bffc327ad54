"""What the host boots into."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import StringCommand

from facts.systemd.boot import Boot
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
from operations.run.journal import quiet


def forced(boot: Boot, target: str) -> str | None:
    """The sentence about a kernel command line that wins over the target, None without one."""
    if boot.forced_target in (None, target):
        return None
    told = " and ".join(boot.override_from) or "no file of /etc/default/grub*"
    return f"the kernel command line has {boot.override}, set in {told}"


def settled(boot: Boot, target: str) -> bool:
    """Is the default target right and its link sound? Whatever the kernel command line says."""
    return boot.default_target == target and boot.fault is None


def seen(boot: Boot) -> str:
    """What stands as the default target, in words."""
    if boot.fault is None:
        return boot.default_target
    return f"{boot.default_target or 'nothing'} ({boot.fault})"


def assess(look: Look) -> Iterator[Finding]:
    """The kernel command line wins over the default target, whatever systemctl says."""
    target, found = look.settings.boot_target, look.state.boot
    line = Wanted("host", "boots into", target)
    if not isinstance(found, Boot):
        yield line.unread(found)
        return
    why = forced(found, target)
    told = seen(found) + (f", but {why}" if why else "")
    yield line.judged(told, settled(found, target) and not why)


@step
def default_target(here: Here) -> Commands:
    """
    Make the host boot into a target; nothing is isolated, the running session stays.

    + here: this host's share of the run

    Warns of a kernel command line that wins over it; that one is the owner's to change.
    Undo: the link (or file) found is in the journal.
    """
    target = here.settings.boot_target
    boot = here.known(here.read().boot, "boot target")
    why = forced(boot, target)
    if why:
        here.warn(f"does not boot into {target}: {why}")
    if settled(boot, target):
        here.noop(f"boots into {target}")
        return
    yield StringCommand(quiet("units", "default", target))
    here.changed()
    now = here.known(here.read().boot, "boot target")
    if not settled(now, target):
        yield here.refuse(f"boots into {seen(now)} after set-default {target}")
