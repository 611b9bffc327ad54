"""NetworkManager's hands on the fabric's devices: taken off before a change, put back with it.

netplan's udev rules keep it away after the next boot; a device that it is bringing up by itself
("Wired connection 1") it keeps until told, and minutes later tears it out of the bond.
"""

from __future__ import annotations

from collections.abc import Iterable

from run.command import run


def is_managed(device: str) -> bool | None:
    """None when there is no such device or no NetworkManager that runs."""
    code, out, _err = run(["nmcli", "-g", "GENERAL.NM-MANAGED", "device", "show", device])
    return out.strip() == "yes" if code == 0 and out.strip() else None


def owned(devices: Iterable[str]) -> list[str]:
    """Those of the devices that NetworkManager manages at this moment."""
    return [device for device in devices if is_managed(device)]


def hands(devices: Iterable[str], managed: str) -> None:
    """Tell NetworkManager to take its hands off the devices (no), or to take them again (yes)."""
    for device in devices:
        run(["nmcli", "device", "set", device, "managed", managed])
