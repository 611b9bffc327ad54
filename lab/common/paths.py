"""Where the lab keeps its state on this machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

HOSTS = ("spark1", "spark2")  # rank order: head first
REPOSITORY = Path(__file__).resolve().parents[2]
LAB = REPOSITORY / "lab"

# A unix socket's path holds 107 bytes; ssh adds "/" + 40 hex + "." + 16 random characters.
_LONGEST_SOCKET_DIR = 45


@dataclass(frozen=True)
class LabHome:
    """The folders and files below one lab home."""

    root: Path

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def disks(self) -> Path:
        return self.root / "disks"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def locks(self) -> Path:
        return self.root / "locks"

    @property
    def ssh_config(self) -> Path:
        return self.root / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def state_file(self) -> Path:
        return self.root / "state.json"

    @property
    def sockets(self) -> Path:
        """Folder of unix sockets: below the home, or in /tmp when that would be too long."""
        below = self.root / "s"
        if len(str(below)) <= _LONGEST_SOCKET_DIR:
            return below
        tag = hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        return Path(tempfile.gettempdir()) / f"spark-lab-{os.getuid()}-{tag}"

    @property
    def made(self) -> frozenset[str]:
        """Names of all that the lab makes in the root."""
        paths = (
            *(self.images, self.disks, self.run, self.keys, self.locks),
            *(self.ssh_config, self.known_hosts, self.state_file, self.root / "s"),
        )
        return frozenset(path.name for path in paths) | {
            *("lock", "accel.json", "engines.json", "build.log", "staging", "disk.json"),
            *("registry", "registry.log", "registry.yaml", "registry.pid", "state.new"),
        }

    def make(self) -> None:
        """Create the folders; only their owner may enter those with keys and sockets."""
        for folder in (self.root, self.images, self.disks, self.run, self.locks):
            folder.mkdir(parents=True, exist_ok=True)
        for private in (self.keys, self.sockets):
            private.mkdir(mode=0o700, parents=True, exist_ok=True)


def lab_home() -> LabHome:
    """The home named by SPARK_LAB_HOME, else spark-converge/lab in the user's cache folder."""
    given = os.environ.get("SPARK_LAB_HOME")
    if given:
        return LabHome(Path(given).expanduser().resolve())
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return LabHome(Path(cache).resolve() / "spark-converge" / "lab")
