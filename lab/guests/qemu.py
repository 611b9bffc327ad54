"""One guest as a QEMU process: its command line, its start, its life."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lab.common.arch import Arch
from lab.common.errors import LabError
from lab.common.paths import HOSTS, LabHome
from lab.image.cache import Image
from lab.image.hostfiles import MANAGEMENT_IP
from lab.services import hub

SSH_PORT = {"spark1": 2201, "spark2": 2202}
API_PORT = {"spark1": 18888, "spark2": 28888}
GUEST_API_PORT = 8888
REGISTRY_PORT = 5000  # docker-registry's own; the guests see it at 10.0.2.100
CABLES = (1, 2)

_MEMORY_MIB = 2048
_CPUS = 2
_QUIT_S = 30.0

# tsc, no_timer_check, nowatchdog: under emulation on a busy machine the kernel would distrust its
# clock and its processors. performance is what a Spark boots with.
_KERNEL_ARGUMENTS = (
    "root=/dev/vda quiet mitigations=off apparmor=0 no_timer_check tsc=reliable nowatchdog "
    "init=/usr/lib/spark-lab/init cpufreq.default_governor=performance "
    # A panic must end as a reboot that somebody sees, not as a guest that hangs.
    "panic=10"
)


@dataclass(frozen=True)
class Guest:
    """One guest of a lab home."""

    home: LabHome
    name: str

    @property
    def disk(self) -> Path:
        return self.home.disks / f"{self.name}.qcow2"

    @property
    def console(self) -> Path:
        return self.home.run / f"{self.name}.console.log"

    @property
    def monitor(self) -> Path:
        return self.home.sockets / f"{self.name}.qmp"

    @property
    def pid_file(self) -> Path:
        return self.home.run / f"{self.name}.pid"

    def pid(self) -> int | None:
        """Process id, None when it does not run. A reused pid of a stale file is not believed."""
        try:
            pid = int(self.pid_file.read_text())
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(self.pid_file).encode() in arguments else None


def guests(home: LabHome) -> list[Guest]:
    """Both guests, head first."""
    return [Guest(home, name) for name in HOSTS]


def command(guest: Guest, image: Image, arch: Arch, accel: str) -> list[str]:
    """QEMU's command line for a guest.

    + accel: kvm or tcg
    """
    rank = HOSTS.index(guest.name) + 1
    other = len(HOSTS) + 1 - rank
    forwards = (
        (SSH_PORT[guest.name], 22),
        (API_PORT[guest.name], GUEST_API_PORT),
    )
    management = ",".join(
        [
            "user,id=management,restrict=on",
            *(
                f"guestfwd=tcp:10.0.2.100:{port}-cmd:socat STDIO TCP4:127.0.0.1:{port}"
                for port in (REGISTRY_PORT, hub.PORT)
            ),
            *(
                f"hostfwd=tcp:127.0.0.1:{here}-{MANAGEMENT_IP[guest.name]}:{there}"
                for here, there in forwards
            ),
        ]
    )
    # cache=unsafe gives up what a crash of this machine would lose, not what a guest's would:
    # QEMU still hands every flush to this kernel, it only does not wait for the disk.
    line = [
        arch.qemu,
        *("-name", guest.name),
        # One thread for both processors: with one each, a kernel that patches its own code (jump
        # labels, when dockerd loads netfilter modules) now and then dies of "Oops: int3".
        *("-accel", "kvm" if accel == "kvm" else "tcg,thread=single"),
        *("-cpu", "host" if accel == "kvm" else arch.tcg_cpu),
        *("-machine", arch.machine),
        *("-m", str(_MEMORY_MIB)),
        *("-smp", str(_CPUS)),
        *("-display", "none"),
        *("-serial", f"file:{guest.console}"),
        *("-qmp", f"unix:{guest.monitor},server=on,wait=off"),
        *("-pidfile", str(guest.pid_file)),
        *("-kernel", str(image.kernel)),
        *("-initrd", str(image.initrd)),
        *("-append", f"console={arch.console} {_KERNEL_ARGUMENTS} spark.host={guest.name}"),
        *("-drive", f"file={guest.disk},if=virtio,format=qcow2,cache=unsafe"),
        *("-device", "virtio-rng-pci"),
        *("-netdev", management),
        *("-device", f"virtio-net-pci,netdev=management,mac=52:54:0{rank}:aa:00:01"),
    ]
    for cable in CABLES:
        line += [
            "-netdev",
            f"dgram,id=line{cable},"
            f"local.type=inet,local.host=127.0.0.1,local.port={_cable_port(cable, rank)},"
            f"remote.type=inet,remote.host=127.0.0.1,remote.port={_cable_port(cable, other)}",
            "-device",
            f"virtio-net-pci,id=cable{cable},netdev=line{cable},"
            f"mac=52:54:0{rank}:aa:00:0{cable + 1}",
        ]
    return line


def _cable_port(cable: int, rank: int) -> int:
    """UDP port on loopback that a cable's end at a rank listens on."""
    return 25000 + 100 * cable + rank


def make_disk(guest: Guest, image: Image) -> None:
    """Give a guest a new disk on top of the image."""
    guest.disk.unlink(missing_ok=True)
    backing = ["-b", str(image.disk), "-F", "raw"]
    _tool(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(guest.disk)])


def disk_snapshots(guest: Guest) -> set[str]:
    """Names of the snapshots in a guest's disk; it need not run."""
    shown = _tool(["qemu-img", "info", "-U", "--output=json", str(guest.disk)])
    return {entry["name"] for entry in json.loads(shown).get("snapshots", [])}


def start(guest: Guest, line: list[str], snapshot: str | None = None) -> None:
    """Start a guest's process; with a snapshot it is loaded and the guest stands still.

    Raises LabError with QEMU's own words when it does not start.
    """
    guest.monitor.unlink(missing_ok=True)
    guest.pid_file.unlink(missing_ok=True)
    extra = ["-loadvm", snapshot, "-S"] if snapshot else []
    done = subprocess.run(
        [*line, *extra, "-daemonize"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"{guest.name} did not start: {done.stderr.strip()}")


def wait_end(guest: Guest) -> None:
    """Wait until a guest's process is gone. Raises LabError when it stays."""
    deadline = time.monotonic() + _QUIT_S
    while guest.pid() is not None:
        if time.monotonic() > deadline:
            raise LabError(f"{guest.name} (pid {guest.pid()}) did not end in {_QUIT_S:.0f} s")
        time.sleep(0.05)


def version(arch: Arch) -> str:
    """First line of QEMU's version."""
    return _tool([arch.qemu, "--version"]).splitlines()[0]


def fingerprint(lines: list[list[str]], arch: Arch) -> str:
    """Hash of what a snapshot depends on: QEMU's version and the guests' command lines."""
    content = json.dumps([version(arch), lines])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _tool(line: list[str]) -> str:
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(line)}` failed: {done.stderr.strip()}")
    return done.stdout
