"""Working on a root tree as root: run commands in it, remove it safely."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

GUEST = Path(__file__).parent / "guest"


def kernel_version(tree: Path) -> str:
    """The one kernel in the tree."""
    (name,) = (path.name for path in (tree / "lib/modules").iterdir())
    return name


def chroot(tree: Path, *command: str, text: str | None = None) -> None:
    """Run a command inside the tree, free of this machine's environment but its proxies."""
    proxies = {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **proxies}
    env["DEBIAN_FRONTEND"] = "noninteractive"
    run(["chroot", str(tree), *command], env=env, text=text)


def run(command: list[str], env: dict[str, str] | None = None, text: str | None = None) -> None:
    """Run a command; its output joins this program's."""
    subprocess.run(command, check=True, env=env, input=text, text=True)


def remove_tree(tree: Path) -> None:
    """Remove a root tree, never through a mount that an interrupted build left in it."""
    if not tree.exists():
        return
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    below = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{tree}/")]
    for mount in sorted(below, reverse=True):
        run(["umount", mount])
    shutil.rmtree(tree)
