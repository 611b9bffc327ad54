"""The managers of systemd here, the system's and those of users, and what they say of units.

A scope is "system" or a user's name.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator

from run import homes
from run.command import run

from systemd import units

# Highest precedence first: systemd.unit(5).
UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/transient",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
)
USER_UNIT_FOLDERS = ("~/.config/systemd/user", "/etc/systemd/user")
USER_FOLDERS = ("/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")
OWN_USER_FOLDERS = ("~/.config/systemd/user", "~/.local/share/systemd/user")
RUNTIME = "/run/user/{}/systemd"
LINGER = "/var/lib/systemd/linger"
STARTED_BY = ("WantedBy", "RequiredBy", "UpheldBy", "OnFailureOf", "OnSuccessOf")
PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,TriggeredBy," + ",".join(STARTED_BY)


def users() -> Iterator[pwd.struct_passwd]:
    """People (and root) whose user units could start: those with units, with linger, or here."""
    for person in pwd.getpwall():
        home = person.pw_dir
        own = any(os.path.isdir(homes.expanded(f, home)) for f in OWN_USER_FOLDERS)
        here = os.path.isdir(RUNTIME.format(person.pw_uid))
        if own or here or os.path.exists(f"{LINGER}/{person.pw_name}"):
            yield person


def manager(scope: str, uid: int) -> list[str] | None:
    """The systemctl that speaks to the manager of a scope; None where that one does not run."""
    if scope == "system":
        return ["systemctl"]
    runtime = RUNTIME.format(uid)
    if not os.path.exists(runtime + "/private"):
        return None
    environment = ["env", f"XDG_RUNTIME_DIR={os.path.dirname(runtime)}"]
    return ["runuser", "-u", scope, "--", *environment, "systemctl", "--user"]


def shown(systemctl: list[str] | None, names: list[str]) -> dict[str, dict[str, str]]:
    """{name: {property: value}} of units that the manager knows; templates have no properties."""
    whole = [name for name in names if "@." not in name]
    if not whole or systemctl is None:
        return {}
    _code, out, _err = run([*systemctl, "show", "-p", PROPERTIES, "--", *whole])
    blocks = [block for block in out.split("\n\n") if block.strip()]
    if len(blocks) != len(whole):
        return {}
    return {
        name: dict(line.split("=", 1) for line in block.strip().splitlines() if "=" in line)
        for name, block in zip(whole, blocks)
    }


def instances(systemctl: list[str] | None, template: str) -> dict[str, str]:
    """{instance: ActiveState} of a template, as far as the manager has any loaded."""
    if systemctl is None:
        return {}
    listed = ["list-units", "--all", "--full", "--plain", "--no-legend", "--no-pager"]
    _code, out, _err = run([*systemctl, *listed, "--", whole(template)])
    rows = [line.split(None, 4) for line in out.splitlines()]
    return {row[0]: row[2] for row in rows if len(row) > 3}


def whole(name: str) -> str:
    """All instances of a template, the unit itself otherwise."""
    return name.replace("@.", "@*.")


def activity(
    systemctl: list[str] | None, name: str, state: dict[str, str], unsaid: str = "unknown"
) -> str:
    """Of a unit, or of the most lively instance of a template; state: what the manager shows."""
    if "@." not in name:
        return state.get("ActiveState", unsaid if systemctl else "inactive")
    found = instances(systemctl, name).values()
    return next((one for one in found if one not in units.ASLEEP), "inactive")


def installed(systemctl: list[str], name: str) -> bool:
    return shown(systemctl, [name]).get(name, {}).get("LoadState") != "not-found"


def reload(scopes: Iterable[tuple[str, int]]) -> None:
    for scope, uid in scopes:
        systemctl = manager(scope, uid)
        if systemctl:
            run([*systemctl, "daemon-reload"])
