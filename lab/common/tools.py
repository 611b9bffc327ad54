"""The programs that the lab needs on this machine."""

from __future__ import annotations

import os
import shutil

from lab.common.arch import Arch
from lab.common.errors import LabError

_PACKAGES = {
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "dpkg-deb": "dpkg",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "socat": "socat",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


def require(arch: Arch) -> None:
    """Raise LabError with one line that names every missing package and how to install them."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    wanted = {arch.qemu: arch.qemu_package, **_PACKAGES}
    missing = sorted({wanted[name] for name in wanted if shutil.which(name, path=path) is None})
    if missing:
        names = " ".join(missing)
        raise LabError(
            f"not installed: {', '.join(missing)}; install with: sudo apt-get install {names}"
        )
