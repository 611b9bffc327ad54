"""Programs that end others for want of memory, where they run: earlyoom, nohang, systemd-oomd.

Only read: whoever set one up wants it. What their words mean is judged on the control machine.
"""

from __future__ import annotations

import os
from typing import Any

from run.command import read, run

# program -> the file in which its settings are looked for
KILLERS = {
    "earlyoom": "/etc/default/earlyoom",
    "nohang": "/etc/nohang/nohang.conf",
    "systemd-oomd": "/etc/systemd/oomd.conf",
}


def words(pid: str) -> list[str]:
    """The command line of a process, from the name of the program on (python is passed over)."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            argv = [w.decode(errors="replace") for w in file.read().split(b"\0")[:-1]]
    except OSError:
        return []
    if argv and os.path.basename(argv[0]).startswith("python"):
        argv = argv[1:]
    return argv


def setting_file(name: str, argv: list[str]) -> str:
    for at, word in enumerate(argv[:-1]):
        if name == "nohang" and word in ("-c", "--config"):
            return argv[at + 1]
    return KILLERS[name]


def section(_: dict[str, Any]) -> dict[str, Any]:
    """{"killers": [{"name", "pid", "argv", "file", "text", "state"}]}; text is null without file,
    state is what oomctl says of systemd-oomd and null for the others."""
    found = []
    for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        argv = words(pid)
        name = os.path.basename(argv[0]) if argv else ""
        if name not in KILLERS:
            continue
        path = setting_file(name, argv)
        state = run(["oomctl", "--no-pager"])[1] if name == "systemd-oomd" else None
        one = {"name": name, "pid": int(pid), "argv": argv[1:], "file": path}
        found.append({**one, "text": read(path), "state": state})
    return {"killers": found}
