"""What differs between the two guests: names, keys, addresses, docker's image store."""

from __future__ import annotations

import hashlib
import json
import subprocess
import textwrap
from pathlib import Path

from lab.common.paths import HOSTS, LabHome
from lab.services.registry import GUEST_ADDRESS

MANAGEMENT_IP = {"spark1": "10.0.2.11", "spark2": "10.0.2.12"}
FABRIC_IP = {"spark1": "192.168.100.1", "spark2": "192.168.100.2"}

# Real pairs have both: the store is fixed by the docker version that was installed first.
_CONTAINERD_STORE = {"spark1": False, "spark2": True}


def make_keys(home: LabHome) -> None:
    """Make the login key and one host key a guest, once in the life of a lab home."""
    for name in ("login", *HOSTS):
        key = home.keys / name
        if not key.exists():
            kind = ["-q", "-t", "ed25519", "-N", "", "-C", f"lab {name}"]
            subprocess.run(["ssh-keygen", *kind, "-f", str(key)], check=True)


def public_key(home: LabHome) -> str:
    """Line for authorized_keys."""
    return _public(home, "login")


def host_key(home: LabHome, host: str) -> str:
    """Type and key of a guest's host key, as known_hosts wants it."""
    return " ".join(_public(home, host).split()[:2])


def write(home: LabHome, folder: Path) -> None:
    """Write one tree of files a host below `folder`; modes are as they shall be in the guest."""
    for host in HOSTS:
        for path, (text, mode) in _files(home, host).items():
            file = folder / host / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(mode)
        for directory in (folder / host, *(p for p in (folder / host).rglob("*") if p.is_dir())):
            directory.chmod(0o755)


def digest(home: LabHome) -> str:
    """Hash over all per-host files."""
    content = json.dumps([_files(home, host) for host in HOSTS], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _public(home: LabHome, name: str) -> str:
    return (home.keys / f"{name}.pub").read_text().strip()


def _files(home: LabHome, host: str) -> dict[str, tuple[str, int]]:
    docker: dict[str, object] = {"insecure-registries": [GUEST_ADDRESS]}
    if _CONTAINERD_STORE[host]:
        docker["features"] = {"containerd-snapshotter": True}
    names = "".join(f"{FABRIC_IP[h]} {h}\n" for h in HOSTS)
    return {
        "etc/hostname": (f"{host}\n", 0o644),
        "etc/hosts": (f"127.0.0.1 localhost\n::1 localhost\n{names}", 0o644),
        "etc/machine-id": (hashlib.sha256(host.encode()).hexdigest()[:32] + "\n", 0o444),
        "etc/docker/daemon.json": (json.dumps(docker, indent=2) + "\n", 0o644),
        "etc/netplan/01-mgmt.yaml": (_management(host), 0o600),
        "etc/netplan/40-cx7.yaml": (_fabric(host), 0o600),
        "etc/ssh/ssh_host_ed25519_key": ((home.keys / host).read_text(), 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": (_public(home, host) + "\n", 0o644),
    }


def _management(host: str) -> str:
    return textwrap.dedent(f"""\
        network:
          version: 2
          ethernets:
            enP7s7:
              renderer: networkd
              dhcp4: no
              link-local: []
              addresses:
                - {MANAGEMENT_IP[host]}/24
        """)


def _fabric(host: str) -> str:
    """As NVIDIA's playbook for two Sparks leaves it: one address, no bond, no MTU."""
    return textwrap.dedent(f"""\
        network:
          version: 2
          ethernets:
            enp1s0f0np0:
              addresses:
                - {FABRIC_IP[host]}/24
              dhcp4: no
        """)
