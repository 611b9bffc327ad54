"""One RDMA test between two hosts: this host waits, or it meets the one that does.

serve PROGRAM DEVICE GID PORT MTU           start the waiting end; answers when it listens
meet  PROGRAM DEVICE GID PORT MTU ADDRESS   {"out"}: what the other end says of the exchange
end                                         stop a waiting end that nobody met

PROGRAM is ibv_rc_pingpong or ib_write_bw. Both ends give up by themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any

from run.command import Failed, run

STATE = "/run/spark-converge"
LISTENING = "0A"  # include/net/tcp_states.h
WAIT_S = 10
LIFE_S = 40  # of the waiting end
MEET_S = 25
# ibv_rc_pingpong: messages of 4096 bytes; ib_write_bw: seconds of writing, figures in Gb/s.
OPTIONS = {
    "ibv_rc_pingpong": ("-d", "-g", ["-n", "200"]),
    "ib_write_bw": ("-d", "-x", ["-F", "--report_gbits", "-D", "5"]),
}


def command(program: str, device: str, gid: str, port: str, mtu: str) -> list[str]:
    by_device, by_gid, more = OPTIONS[program]
    return [program, by_device, device, by_gid, gid, "-p", port, "-m", mtu, *more]


def listens(port: int) -> bool:
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(path) as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[3] == LISTENING and int(words[1].rsplit(":", 1)[1], 16) == port:
                    return True
    return False


def end() -> None:
    """End the waiting end of an earlier test: only a process that still runs what was started."""
    try:
        with open(f"{STATE}/rdma.pid") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            ours = line.read().split(b"\0")[0].endswith(b"timeout")
    except (OSError, ValueError):
        return
    if ours:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)


def serve(program: str, device: str, gid: str, port: str, mtu: str) -> dict[str, Any]:
    end()
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    with open(f"{STATE}/rdma.log", "wb") as log:
        server = subprocess.Popen(
            ["timeout", str(LIFE_S), *command(program, device, gid, port, mtu)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with open(f"{STATE}/rdma.pid", "w") as file:
        file.write(str(server.pid))
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and server.poll() is None:
        if listens(int(port)):
            return {}
        time.sleep(0.1)
    end()
    with open(f"{STATE}/rdma.log", errors="replace") as text:
        said = text.read().strip().splitlines()
    return {"ok": False, "message": said[-1] if said else f"{program} does not listen"}


def meet(program: str, device: str, gid: str, port: str, mtu: str, address: str) -> dict[str, Any]:
    words = [*command(program, device, gid, port, mtu), address]
    code, out, err = run(words, timeout_s=MEET_S)
    if code:
        said = (err or out).strip().splitlines()
        raise Failed(said[-1] if said else f"{program}: exit status {code}")
    return {"out": out}


def main(argv: list[str]) -> dict[str, Any]:
    action, rest = argv[0], argv[1:]
    if action == "serve":
        return serve(*rest)
    if action == "meet":
        return meet(*rest)
    end()
    return {}
