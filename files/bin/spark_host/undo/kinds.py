"""Every kind of thing that the journal keeps, in the order in which nothing trips.

The network before the units that listen on it; clocks after the units that ran, since a daemon that
comes up again sets what it likes; cron's jobs and what a link runs last, since a watchdog that
comes to life again wants the rest to be as it was.
"""

from __future__ import annotations

from clocks import kept as clocks
from engines import kept as policies
from engines import names
from memory import sysctls
from model import aside
from network import kept as links
from run.verdicts import Entry, Kind, key
from systemd import kept as units
from systemd import userunits
from watchdogs import holds, starters

from undo import files

JOBS = (
    *("/var/spool/cron/", "/etc/cron", "/etc/anacrontab"),
    *(hook.partition("*")[0] for hook in starters.HOOKS),
)
FABRIC = "fabric links"
PROFILE = (clocks.look_profile, clocks.give_profile, clocks.daemon)
HELD = Kind("held units", together=lambda _: holds.rearm())
KINDS = (
    Kind("files", ("/",), look=files.look, give=files.give),
    Kind("systemd", together=units.reload),
    Kind("kernel settings", ("sysctl.",), "sysctl {}", sysctls.look, sysctls.give),
    Kind("logind", together=units.reload_logind),
    Kind("hands", ("managed.",), "NetworkManager's hold on {}", links.look_managed),
    Kind(FABRIC, ("link.",), FABRIC, links.look, None, links.read, links.give),
    Kind("kept aside", ("aside.",), look=aside.look, give=aside.give),
    Kind("policies", ("restart.",), policies.called, policies.look, policies.give, policies.read),
    Kind("image names", ("imagetag.",), "image name {}", names.look, names.give),
    Kind("units", ("unit.",), "unit {}", units.look, None, units.read, units.start),
    Kind("units of users", ("userunit.",), userunits.called, userunits.look, userunits.give),
    Kind("profile", ("profile.",), "power profile", *PROFILE),
    Kind("caps", ("cpu_max.",), "clock cap of {}", clocks.look, clocks.give),
    Kind("governors", ("governor.",), "governor of {}", clocks.look, clocks.give),
    HELD,
    Kind("jobs", JOBS, look=files.look, give=files.give),
)


def of(entry: Entry) -> Kind | None:
    """The kind of an entry; None for one that this version does not know."""
    found = {start: kind for kind in KINDS for start in kind.mine if key(entry).startswith(start)}
    return found[max(found, key=len)] if found else None
