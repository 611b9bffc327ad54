"""Whether KVM runs the guests' kernel here; a present /dev/kvm alone says little."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

from lab.common.arch import Arch
from lab.common.paths import LabHome
from lab.common.progress import say
from lab.guests.qemu import version
from lab.image.cache import Image

_KVM = "/dev/kvm"
_PROBE_S = 20.0  # a kernel under KVM reaches its init in about two seconds
_MARKER = b"Run /init as init process"


def choose(home: LabHome, arch: Arch, image: Image) -> str:
    """``kvm`` when the image's kernel really boots with it, else ``tcg``.

    The verdict is kept in ``accel.json`` of the home for this QEMU, host kernel and processor.
    """
    allowed = os.access(_KVM, os.R_OK | os.W_OK)
    key = [version(arch), platform.release(), _processor(), arch.name, allowed]
    memory = home.root / "accel.json"
    if memory.exists():
        known = json.loads(memory.read_text())
        if known["key"] == key:
            return str(known["accel"])
    if not allowed:
        why = f"{_KVM} is {'not for this user' if Path(_KVM).exists() else 'missing'}"
        accel = "tcg"
    elif _kvm_boots(arch, image):
        accel, why = "kvm", "a guest booted with it"
    else:
        accel, why = "tcg", "a guest did not boot with KVM"
    say(f"acceleration: {accel} ({why})")
    memory.write_text(json.dumps({"key": key, "accel": accel}))
    return accel


def _kvm_boots(arch: Arch, image: Image) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        console = Path(folder) / "console"
        line = [
            arch.qemu,
            *("-accel", "kvm", "-cpu", "host", "-machine", arch.machine, "-m", "512"),
            *("-display", "none", "-nodefaults", "-no-reboot", "-serial", f"file:{console}"),
            *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
            *("-append", f"console={arch.console} panic=-1"),
        ]
        with subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as probe:
            try:
                return _marker_appears(console, probe)
            finally:
                probe.kill()


def _marker_appears(console: Path, probe: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _PROBE_S
    while time.monotonic() < deadline and probe.poll() is None:
        if console.exists() and _MARKER in console.read_bytes():
            return True
        time.sleep(0.2)
    return False


def _processor() -> str:
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "CPU part"))
    ]
    return names[0] if names else "unknown"
