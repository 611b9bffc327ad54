"""The package tree of the guests, made with mmdebstrap as root."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.image.tree import GUEST, chroot, kernel_version, remove_tree, run

# The real unit files of services whose packages would bring the whole desktop.
_UNIT_PACKAGES = {
    "gdm3": ("gdm.service", "gdm3.service"),
    "gnome-remote-desktop": ("gnome-remote-desktop.service",),
    "fwupd": ("fwupd.service", "fwupd-refresh.service", "fwupd-refresh.timer"),
}
_UNIT_DIR = Path("usr/lib/systemd/system")
_BUILD_PACKAGES = ("gcc", "make")
_UNWANTED_PATHS = (
    *(f"/usr/share/{name}/*" for name in ("doc", "man", "info", "locale", "gnome/help")),
    # Ubuntu's kernel brings 600 MiB of firmware; a virtual machine loads none.
    *("/lib/firmware/*", "/usr/lib/firmware/*"),
)
_INITRD_MODULES = ("virtio_pci", "virtio_blk", "ext4")


@dataclass(frozen=True)
class BaseSpec:
    """Input of the package tree: suite, sources, packages, kernel headers, apt options, target."""

    suite: str
    sources: list[str]
    packages: list[str]
    headers: str
    aptopts: list[str]
    tree: str


def build_base(spec: BaseSpec) -> None:
    """Make the package tree with mmdebstrap, with the kernel module built inside it."""
    final = Path(spec.tree)
    draft = final.with_name(final.name + ".new")
    remove_tree(draft)
    hook = f"{sys.executable} -m lab.image.build hook {final}.json"
    command = [
        "mmdebstrap",
        "--variant=minbase",
        "--mode=root",
        f"--include={','.join(spec.packages)}",
        *(f"--dpkgopt=path-exclude={path}" for path in _UNWANTED_PATHS),
        *(f"--aptopt={option}" for option in spec.aptopts),
        f'--setup-hook={hook} setup "$1"',
        f'--customize-hook={hook} customize "$1"',
        spec.suite,
        str(draft),
        *spec.sources,
    ]
    run(command)
    draft.rename(final)


def setup_hook(tree: Path) -> None:
    """Before the packages: keep the initrd small, it is unpacked under emulation at each boot."""
    conf = tree / "etc/initramfs-tools"
    (conf / "conf.d").mkdir(parents=True, exist_ok=True)
    (conf / "conf.d/spark-lab").write_text("MODULES=list\nCOMPRESS=lz4\n")
    (conf / "modules").write_text("".join(f"{module}\n" for module in _INITRD_MODULES))


def customize_hook(tree: Path, headers: str) -> None:
    """After the packages: units of the desktop, the kernel module, and the build's traces gone."""
    _desktop_units(tree)
    _kernel_module(tree, headers)
    for trace in ("etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/sources.list"):
        (tree / trace).unlink(missing_ok=True)
    for source in (tree / "etc/apt/sources.list.d").iterdir():
        source.unlink()
    (tree / "etc/resolv.conf").write_text("")


def _desktop_units(tree: Path) -> None:
    with tempfile.TemporaryDirectory(dir=tree / "tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)  # apt downloads as another user
        inside = f"/tmp/{folder.name}"  # noqa: S108 - the guest tree's /tmp, made just above
        script = f"cd {inside} && apt-get download {' '.join(_UNIT_PACKAGES)}"
        chroot(tree, "sh", "-c", script)
        for package, units in _UNIT_PACKAGES.items():
            (deb,) = folder.glob(f"{package}_*.deb")
            run(["dpkg-deb", "-x", str(deb), str(folder / package)])
            for unit in units:
                shutil.copy2(
                    folder / package / _UNIT_DIR / unit,
                    tree / _UNIT_DIR / unit,
                    follow_symlinks=False,
                )
    # gdm3's own maintainer script makes this link, `systemctl enable` does not.
    link = tree / "etc/systemd/system/display-manager.service"
    link.unlink(missing_ok=True)
    link.symlink_to("/usr/lib/systemd/system/gdm3.service")


def _kernel_module(tree: Path, headers: str) -> None:
    before = _installed(tree)
    packages = (headers, *_BUILD_PACKAGES)
    chroot(tree, "apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages)
    kernel = kernel_version(tree)
    source = tree / "usr/src/spark-lab"
    shutil.copytree(GUEST / "kernel", source)
    chroot(tree, "make", "-C", f"/lib/modules/{kernel}/build", "M=/usr/src/spark-lab", "modules")
    updates = tree / "lib/modules" / kernel / "updates"
    updates.mkdir(exist_ok=True)
    for module in source.glob("*.ko"):
        shutil.copy(module, updates)
    shutil.rmtree(source)
    # Not autoremove: it keeps what some other package merely suggests.
    chroot(tree, "apt-get", "purge", "-qq", "-y", *sorted(_installed(tree) - before))
    chroot(tree, "depmod", kernel)


def _installed(tree: Path) -> set[str]:
    listing = subprocess.run(
        ["dpkg-query", f"--admindir={tree}/var/lib/dpkg", "-W", "-f", "${Package}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(listing.stdout.split())
