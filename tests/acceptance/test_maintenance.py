"""Nothing upgrades packages, drivers or firmware by itself while a model is served."""

from __future__ import annotations

from typing import Any

import pytest
from testinfra.host import Host

from tests.acceptance.look import cannot_start, read, units


def test_update_is_held(host: Host, update: str, settings: dict[str, Any]) -> None:
    one = units(host, tuple(settings["maintenance_held"]))[update]
    if one.load == "not-found":
        pytest.skip(f"{update} is not on this host")
    seen = f"{one.name} is {one.active}, {one.file}"
    assert one.active in ("inactive", "failed"), seen
    assert cannot_start(host, one), seen


def test_no_upgrade_is_in_progress(host: Host) -> None:
    runs = "apt-daily.service apt-daily-upgrade.service fwupd-refresh.service"
    states = read(host, f"systemctl is-active {runs} || true").split()
    assert not {*states} & {"active", "activating", "deactivating"}


def test_needrestart_restarts_nothing(host: Host) -> None:
    """Asked as perl reads it: the last word of all its files counts."""
    if not host.file("/etc/needrestart/needrestart.conf").exists:
        pytest.skip("needrestart is not on this host")
    ask = 'our %nrconf; do "/etc/needrestart/needrestart.conf"; print $nrconf{restart} // "i"'
    assert read(host, f"perl -e '{ask}'").strip() == "l"
