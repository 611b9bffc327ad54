"""The architecture of the guests: this machine's, as one parameter."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from lab.common.errors import LabError


@dataclass(frozen=True)
class Arch:
    """What differs between architectures.

    + name: as ``uname -m`` says it
    + deb: as dpkg says it
    + qemu: the emulator's program
    + machine: QEMU machine type
    + tcg_cpu: CPU model under software emulation
    + console: serial console's device in the guest
    + qemu_package: Debian and Ubuntu package of the emulator
    """

    name: str
    deb: str
    qemu: str
    machine: str
    tcg_cpu: str
    console: str
    qemu_package: str


_ARCHES = {
    # la57 off: five-level page tables cost time under emulation and serve nothing in 2 GiB.
    "x86_64": Arch(
        "x86_64", "amd64", "qemu-system-x86_64", "q35", "max,la57=off", "ttyS0", "qemu-system-x86"
    ),
    # pauth-impdef: the architected pointer-authentication hash is very slow to emulate.
    "aarch64": Arch(
        "aarch64",
        "arm64",
        "qemu-system-aarch64",
        "virt,gic-version=max",
        "max,pauth-impdef=on",
        "ttyAMA0",
        "qemu-system-arm",
    ),
}


def machine_arch(name: str | None = None) -> Arch:
    """The guests' architecture; this machine's when `name` is None.

    Raises LabError for a machine that is neither x86-64 nor arm64.
    """
    name = name or platform.machine()
    if name not in _ARCHES:
        raise LabError(f"this machine is {name}; the lab runs on {' or '.join(_ARCHES)}")
    return _ARCHES[name]
