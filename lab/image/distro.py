"""Which suite the guests get and from where: read from this machine's own apt configuration."""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.common.errors import LabError

_APT = Path("/etc/apt")

_COMMON = (
    # apt: the smallest variant of noble comes without it.
    *(
        "apt",
        "systemd",
        "systemd-sysv",
        "dbus",
        "udev",
        "kmod",
        "procps",
        "util-linux",
        "e2fsprogs",
    ),
    *("initramfs-tools", "lz4", "openssh-server", "sudo", "cron", "at", "openssl"),
    *("ca-certificates", "curl", "jq", "python3", "polkitd", "docker.io"),
    *("netplan.io", "iproute2", "iptables", "iputils-ping", "ethtool"),
    *("rdma-core", "ibverbs-utils", "perftest"),
    # What a Spark's desktop brings along; the rest of it is only unit files (basetree.py).
    *("cups", "cups-browsed", "avahi-daemon", "bluez", "modemmanager", "colord"),
    *("network-manager", "power-profiles-daemon"),
    # What changes packages, firmware and services by itself, and what ends processes.
    *("unattended-upgrades", "needrestart", "earlyoom"),
)
# linux-sysctl-defaults: without it ping is root's only.
_DEBIAN = ("docker-cli", "docker-compose", "linux-sysctl-defaults")
_UBUNTU = ("docker-compose-v2",)


@dataclass(frozen=True)
class Distro:
    """The guests' distribution.

    + suite: trixie or noble
    + sources: one-line apt sources for the build
    + packages: what every guest has
    + headers: kernel headers matching the kernel in `packages`
    + aptopts: proxy settings of this machine's apt, for the build only
    """

    suite: str
    sources: tuple[str, ...]
    packages: tuple[str, ...]
    headers: str
    aptopts: tuple[str, ...]


def guest_distro(deb_arch: str) -> Distro:
    """Ubuntu noble where this machine's mirrors are Ubuntu's, else Debian trixie.

    Raises LabError when no usable archive is found in the apt sources.
    """
    release = platform.freedesktop_os_release()
    codename = release.get("UBUNTU_CODENAME") or release.get("VERSION_CODENAME", "")
    uri = archive_uri(_sources_texts(), codename)
    if "ubuntu" in (release["ID"], *release.get("ID_LIKE", "").split()):
        return Distro(
            "noble",
            tuple(f"deb {uri} {suite} main universe" for suite in ("noble", "noble-updates")),
            (*_COMMON, *_UBUNTU, "linux-generic"),
            "linux-headers-generic",
            _proxy_options(),
        )
    return Distro(
        "trixie",
        (f"deb {uri} trixie main",),
        (*_COMMON, *_DEBIAN, f"linux-image-{deb_arch}"),
        f"linux-headers-{deb_arch}",
        _proxy_options(),
    )


def archive_uri(texts: list[str], codename: str) -> str:
    """URI of the main archive: the first source whose suite is `codename` itself.

    + texts: contents of apt source files, one-line or deb822
    """
    for text in texts:
        for uri, suites, components in _entries(text):
            if codename in suites and "main" in components:
                return uri.rstrip("/")
    raise LabError(
        f"no apt source for suite {codename or '?'} with component main found below {_APT}; "
        "the guests' image is made from this machine's own mirror: add one and try again"
    )


def _entries(text: str) -> list[tuple[str, list[str], list[str]]]:
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.lstrip().startswith("#")]
        fields = {
            key.strip().lower(): value.split()
            for key, colon, value in (line.partition(":") for line in lines)
            if colon and " " not in key.strip()
        }
        enabled = fields.get("enabled", ["yes"]) != ["no"]
        if enabled and "deb" in fields.get("types", []):
            suites, components = fields.get("suites", []), fields.get("components", [])
            found += [(uri, suites, components) for uri in fields.get("uris", [])]
        for line in lines:
            one_line = re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)", line.strip())
            if one_line:
                found.append((one_line[1], [one_line[2]], one_line[3].split()))
    return found


def _sources_texts() -> list[str]:
    files = [_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*"))]
    return [
        file.read_text()
        for file in files
        if file.suffix in (".list", ".sources") and file.is_file()
    ]


def _proxy_options() -> tuple[str, ...]:
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
    wanted = re.compile(r'Acquire::https?::Proxy(::\S+)? "[^"]+";')
    return tuple(line for line in dump.stdout.splitlines() if wanted.fullmatch(line))
