"""The guests' disk, kernel and initrd, made from the package tree as root."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.image.tree import GUEST, chroot, kernel_version, remove_tree, run

# Waiting units would only delay the boot; the timers only disturb measurements.
_MASKED = (
    "systemd-networkd-wait-online.service",
    "NetworkManager-wait-online.service",
    "e2scrub_all.timer",
    "fstrim.timer",
)
_DISABLED = (
    *("power-profiles-daemon.service", "e2scrub_reap.service", "docker.socket"),
    "earlyoom.service",
)
_ENABLED = (
    "ssh.service",
    "cron.service",
    "docker.service",
    "containerd.service",
    "gnome-remote-desktop.service",
    "cups.service",
    "cups-browsed.service",
    "avahi-daemon.service",
    "bluetooth.service",
    "ModemManager.service",
    "NetworkManager.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "unattended-upgrades.service",
    "fwupd-refresh.timer",
    "spark-lab-roce.service",
)
_DISK_SIZE = "8G"  # sparse; the tree itself is about 1 GiB


@dataclass(frozen=True)
class DiskSpec:
    """Input of the disk: package tree, output folder, per-host files, model folder, login key.

    + hosts: folder with one tree of files a host, named after it
    + models: folder with one model directory a stack
    + public_key: line for authorized_keys
    + owner_uid, owner_gid: who owns the output
    """

    tree: str
    out: str
    hosts: str
    models: str
    public_key: str
    owner_uid: int
    owner_gid: int


def build_disk(spec: DiskSpec) -> None:
    """Make disk, kernel and initrd in the output folder from a copy of the package tree."""
    out = Path(spec.out)
    draft = out / "root"
    remove_tree(draft)
    run(["cp", "-a", "--reflink=auto", spec.tree, str(draft)])
    _users(draft, spec.public_key)
    run(["cp", "-R", "--no-preserve=ownership,timestamps", f"{GUEST}/root/.", str(draft)])
    run(["cp", "-a", "--no-preserve=ownership", spec.hosts, str(draft / "usr/lib/spark-lab/hosts")])
    (draft / "srv/models").mkdir(parents=True)
    run(["cp", "-R", f"{spec.models}/.", str(draft / "srv/models")])
    for model in (draft / "srv/models").iterdir():
        model.chmod(0o755)
    _configure(draft)
    _pack(draft, out)
    remove_tree(draft)
    for file in out.iterdir():
        os.chown(file, spec.owner_uid, spec.owner_gid)


def _users(tree: Path, public_key: str) -> None:
    for user in ("nvidia", "ci"):
        chroot(tree, "useradd", "--create-home", "--shell", "/bin/bash", user)
        ssh = tree / "home" / user / ".ssh"
        ssh.mkdir(mode=0o700)
        (ssh / "authorized_keys").write_text(public_key + "\n")
        (ssh / "authorized_keys").chmod(0o600)
        chroot(tree, "chown", "-R", f"{user}:{user}", f"/home/{user}/.ssh")
    chroot(tree, "usermod", "--append", "--groups", "sudo", "nvidia")
    chroot(tree, "chpasswd", text="nvidia:nvidia\n")
    sudoers = tree / "etc/sudoers.d/ci"
    sudoers.write_text("ci ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)


def _configure(tree: Path) -> None:
    (tree / "etc/fstab").write_text("/dev/vda / ext4 errors=remount-ro 0 1\n")
    for own in (tree / "etc/ssh").glob("ssh_host_*"):
        own.unlink()  # each host brings its own
    chroot(tree, "useradd", "--system", "--no-create-home", "gnome-remote-desktop")
    (tree / "etc/lab-engine").mkdir()
    chroot(tree, "systemctl", "set-default", "graphical.target")
    chroot(tree, "systemctl", "mask", *_MASKED)
    chroot(tree, "systemctl", "disable", *_DISABLED)
    chroot(tree, "systemctl", "enable", *_ENABLED)


def _pack(tree: Path, out: Path) -> None:
    kernel = kernel_version(tree)
    shutil.copy(tree / f"boot/vmlinuz-{kernel}", out / "vmlinuz")
    shutil.copy(tree / f"boot/initrd.img-{kernel}", out / "initrd")
    disk = out / "disk.raw"
    disk.unlink(missing_ok=True)
    options = ["-q", "-t", "ext4", "-L", "spark-lab", "-m", "0", "-E", "lazy_itable_init=0"]
    run(["mke2fs", *options, "-d", str(tree), str(disk), _DISK_SIZE])
