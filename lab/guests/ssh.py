"""SSH to the guests: one configuration for people, OpenSSH and paramiko alike."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

from lab.common.errors import LabError
from lab.common.paths import HOSTS, LabHome
from lab.guests.qemu import SSH_PORT
from lab.image.hostfiles import host_key

BOOT_S = 900.0  # a pair under emulation on a busy two-core machine; 45 s seen on an idle one


def write_config(home: LabHome) -> None:
    """Write ssh_config and known_hosts; the guests' host keys were made here, so none is asked."""
    hosts = "".join(f"[127.0.0.1]:{SSH_PORT[host]} {host_key(home, host)}\n" for host in HOSTS)
    home.known_hosts.write_text(hosts)
    home.ssh_config.write_text("\n".join(_entry(home, host) for host in HOSTS))


def _entry(home: LabHome, host: str) -> str:
    return f"""\
Host {host}
    HostName 127.0.0.1
    Port {SSH_PORT[host]}
    User ci
    IdentityFile {home.keys / "login"}
    IdentitiesOnly yes
    UserKnownHostsFile {home.known_hosts}
    StrictHostKeyChecking yes
    ControlMaster auto
    ControlPath {home.sockets}/%C
    ControlPersist 600
    ServerAliveInterval 20
    ServerAliveCountMax 6
    LogLevel ERROR
"""


def command(home: LabHome, host: str, *words: str) -> list[str]:
    """The ssh command line for a host; the words are joined by the guest's shell."""
    return ["ssh", "-F", str(home.ssh_config), host, *words]


def run(
    home: LabHome, host: str, script: str, data: bytes | None = None, timeout_s: float = 300.0
) -> str:
    """Run a shell script in a guest and return what it prints.

    Raises LabError with the end of its output when it fails or takes longer than `timeout_s`.
    """
    line = ["ssh", "-F", str(home.ssh_config), "-o", "ConnectTimeout=60", host, script]
    try:
        done = subprocess.run(
            line, input=data or b"", capture_output=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{host}: `{script}` took longer than {timeout_s:.0f} s") from error
    if done.returncode != 0:
        text = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise LabError(f"{host}: `{script}` ended with status {done.returncode}: {text[-500:]}")
    return done.stdout.decode(errors="replace")


def boot_id(home: LabHome, host: str, timeout_s: float = 20.0) -> str | None:
    """Id of the present boot, None when the guest does not answer in time."""
    try:
        return run(home, host, "cat /proc/sys/kernel/random/boot_id", timeout_s=timeout_s).strip()
    except LabError:
        return None


def wait(home: LabHome, host: str, not_boot: str | None = None) -> None:
    """Wait until a guest answers, with another boot id than `not_boot` when that is given.

    Raises LabError after BOOT_S; the sentence names the console's log.
    """
    started = time.monotonic()
    while time.monotonic() - started < BOOT_S:
        now = boot_id(home, host)
        if now is not None and now != not_boot:
            return
        drop_shared(home, host)
        time.sleep(1)
    raise LabError(
        f"{host} did not answer on SSH in {BOOT_S:.0f} s; its console is in "
        f"{home.run / host}.console.log"
    )


def wait_units(home: LabHome, host: str) -> str:
    """Wait until every unit of a guest's boot is done; the state then: running or degraded.

    Asked again and again, over a new connection where one failed: one that was made early in a boot
    has been seen to end before the boot did. Raises LabError after BOOT_S.
    """
    started = time.monotonic()
    state = ""
    while time.monotonic() - started < BOOT_S:
        try:
            state = run(home, host, "systemctl is-system-running || true", timeout_s=60.0).strip()
        except LabError as error:
            state = str(error)
            drop_shared(home, host)
        if state in ("running", "degraded"):
            return state
        time.sleep(1)
    raise LabError(f"{host} was still booting after {BOOT_S:.0f} s: {state}")


def drop_shared(home: LabHome, host: str) -> None:
    """End a host's shared connection: a guest that was restored or reset knows nothing of it."""
    base = ["ssh", "-F", str(home.ssh_config)]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run([*base, "-O", "exit", host], capture_output=True, check=False, timeout=5)
    shown = subprocess.run([*base, "-G", host], capture_output=True, text=True, check=True)
    for line in shown.stdout.splitlines():
        key, _, value = line.partition(" ")
        if key == "controlpath":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(value)  # noqa: PTH108 - a socket's path as ssh prints it


def set_clock(home: LabHome, host: str) -> None:
    """Give a guest this machine's time: its own stood still while it was not running."""
    boot_id(home, host)  # open the shared connection first, so that the time is not stale
    run(home, host, f"sudo date --set=@{time.time():.3f} >/dev/null")
