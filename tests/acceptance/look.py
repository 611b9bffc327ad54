"""Looking at a host with ordinary commands."""

from __future__ import annotations

import shlex

import pytest
from testinfra.host import Host


def read(host: Host, script: str) -> str:
    """What a read-only shell script prints; a test that cannot look fails, it never passes."""
    done = host.run("sh -c %s", script)
    if done.rc != 0:
        said = (done.stderr or done.stdout).strip()[-300:]
        pytest.fail(f"{script!r} ended with status {done.rc}: {said}", pytrace=False)
    return str(done.stdout)


def properties(host: Host, unit: str) -> dict[str, str]:
    """The unit as systemd has it: Id, LoadState, ActiveState, UnitFileState, TriggeredBy."""
    wanted = "Id,LoadState,ActiveState,UnitFileState,TriggeredBy"
    text = read(host, f"systemctl show --property={wanted} -- {shlex.quote(unit)}")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
