"""Debian's docker-registry on the lab machine's loopback, with its storage in the lab's home."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import yaml

from lab.common.errors import LabError

HOST = "127.0.0.1"
PORT = 5000
ADDRESS = f"{HOST}:{PORT}"  # as the lab machine sees it
GUEST_ADDRESS = "10.0.2.100:5000"  # as a guest sees it, through QEMU's guestfwd

_START_S = 20.0  # measured 0.1 s on an idle machine; generous for a busy one
_STOP_S = 10.0


class RegistryError(LabError):
    """One sentence: what was found, what was expected, what to do next."""


def start(home: Path) -> None:
    """Start the registry of this lab home and wait until it answers; nothing to do when it runs.

    Writes ``registry.yaml``, ``registry.pid``, ``registry.log`` and ``registry/`` below `home`.
    Raises RegistryError when the program is missing, the port is taken, or it does not answer.
    """
    if running(home):
        return
    program = shutil.which("docker-registry")
    if program is None:
        raise RegistryError(
            "docker-registry not found; install it: apt-get install docker-registry"
        )
    if _answers() is not None or _port_taken():
        raise RegistryError(
            f"port {PORT} on {HOST} is taken by another program than the registry of {home}; "
            f"`ss -ltnp 'sport = :{PORT}'` names it; stop it and try again"
        )
    storage = home / "registry"
    storage.mkdir(parents=True, exist_ok=True)
    _config_file(home).write_text(yaml.safe_dump(_config(storage), sort_keys=False))
    with (home / "registry.log").open("ab") as log:
        process = subprocess.Popen(
            [program, "serve", str(_config_file(home))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=home,
            start_new_session=True,
        )
    _pid_file(home).write_text(f"{process.pid}\n")
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            _pid_file(home).unlink(missing_ok=True)
            raise RegistryError(
                f"docker-registry ended with status {process.returncode}; see {home}/registry.log"
            )
        if _answers() == httpx.codes.OK:
            return
        time.sleep(0.1)
    stop(home)
    raise RegistryError(
        f"docker-registry did not answer on {ADDRESS} in {_START_S:.0f} s; see {home}/registry.log"
    )


def stop(home: Path) -> None:
    """Stop the registry of this lab home, if it runs. Another one on the port is left alone."""
    pid = _pid(home)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while _pid(home) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        if _pid(home) is not None:
            os.kill(pid, signal.SIGKILL)
    _pid_file(home).unlink(missing_ok=True)


def running(home: Path) -> bool:
    """True when the registry of this lab home is alive and answers."""
    return _pid(home) is not None and _answers() == httpx.codes.OK


def _config_file(home: Path) -> Path:
    return home / "registry.yaml"


def _pid_file(home: Path) -> Path:
    return home / "registry.pid"


def _config(storage: Path) -> dict[str, object]:
    return {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(storage)},
            "delete": {"enabled": True},
        },
        "http": {"addr": ADDRESS},
    }


def _pid(home: Path) -> int | None:
    """Process id of our registry; None when the file is stale (a pid may have been reused)."""
    try:
        pid = int(_pid_file(home).read_text())
        process = Path(f"/proc/{pid}")
        argv = (process / "cmdline").read_bytes().split(b"\0")
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    ours = b"serve" in argv and str(_config_file(home)).encode() in argv
    return pid if ours and state != "Z" else None


def _answers() -> int | None:
    """HTTP status of ``/v2/``, or None when nobody speaks HTTP there."""
    try:
        # trust_env off: a proxy of the machine must never see loopback traffic.
        return httpx.get(f"http://{ADDRESS}/v2/", timeout=2.0, trust_env=False).status_code
    except httpx.HTTPError:
        return None


def _port_taken() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        return probe.connect_ex((HOST, PORT)) == 0
