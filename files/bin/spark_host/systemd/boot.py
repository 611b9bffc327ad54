"""What the host boots into, and the kernel command line that may say otherwise."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from run.command import Failed, read, run

from systemd import units

# Words of the kernel command line that win over the default target: kernel-command-line(7).
OVERRIDE = re.compile(r"systemd\.unit=\S+|[1-5]|[sS]|single|rescue|emergency|-b")


def section(_: dict[str, Any]) -> dict[str, Any]:
    status, out, err = run(["systemctl", "get-default"])
    fault = units.default_fault()
    if status and not fault:
        raise Failed(err.strip() or "systemctl get-default failed")
    words = (read("/proc/cmdline") or "").split()
    override = [w for w in words if OVERRIDE.fullmatch(w)]
    return {
        "default_target": "" if status else out.strip(),
        "fault": fault,
        "override": " ".join(override) or None,
        "override_from": bootloader_files(override),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "machine": os.uname().machine,
        "kernel": os.uname().release,
    }


def bootloader_files(words: list[str]) -> list[str]:
    """Files of grub's settings that have one of these words of the kernel command line."""
    paths = ["/etc/default/grub", *sorted(glob.glob("/etc/default/grub.d/*"))]
    lines = {p: [ln for ln in (read(p) or "").splitlines() if "CMDLINE" in ln] for p in paths}
    marks = [re.compile(rf"(?<![\w.=-]){re.escape(word)}(?![\w.=-])") for word in words]
    return [
        p
        for p in paths
        if any(m.search(ln) for m in marks for ln in lines[p] if not ln.strip().startswith("#"))
    ]
