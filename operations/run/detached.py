"""Long work on a host that a dead SSH link does not end: started or joined, followed, its answer.

The other half is files/bin/spark_host/detached.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyinfra import logger
from pyinfra.api.host import Host

from operations.run.remote import RemoteError, call

# The host itself waits so long for the end before it says how far it is.
POLL_S = 5
# No more bytes for so long is a hang; a disk that spins up takes seconds.
STALL_S = 300
# A host that reboots in the middle is gone for about as long; then the work is gone too.
RECONNECT_S = 240

Found = Mapping[str, Any]


def volume(size_bytes: float) -> str:
    """Bytes for a person: GiB of a real model, MiB of a small one."""
    gib = size_bytes / 2**30
    return f"{gib:.2f} GiB" if gib >= 1 else f"{size_bytes / 2**20:.1f} MiB"


def told(progress: Found) -> str:
    """How far it is, as `61.20 GiB of 181.50 GiB read, 2.10 GiB/s, about 58 s left`."""
    done, total, seconds = progress["done"], progress["total"], progress["seconds"]
    if done > total:  # of files whose size no source gives
        return f"{volume(done)} {progress['what']}"
    line = f"{volume(done)} of {volume(total)} {progress['what']}"
    if not done or not seconds:
        return line
    left_s = seconds * (total - done) / done
    return f"{line}, {volume(done / seconds)}/s, about {left_s:.0f} s left"


def follow(host: Host, name: str, found: Found) -> dict[str, Any]:
    """The answer of work that `found` shows, with a line now and then until it ends.

    Raises RemoteError when the host is gone, when nothing moves, and when the work was cut short.
    """
    moved, seen = time.monotonic(), -1
    while found["active"]:
        progress = found["progress"]
        # A pull unpacks for minutes in which no byte arrives; it says that it is alive.
        if progress and (now := progress.get("alive", progress["done"])) != seen:
            moved, seen = time.monotonic(), now
            host.log(told(progress), log_func=logger.info)
        if time.monotonic() - moved > STALL_S:
            raise RemoteError(
                f"{host.name}: {found['subject']} has not moved for {STALL_S} s; "
                f"`systemctl stop spark-converge-{name}` there ends it"
            )
        found = patiently(lambda: call(host, name, "poll", str(POLL_S)), host)
    answer = found["answer"]
    if answer is None:
        raise RemoteError(
            f"{host.name}: {found['subject'] or name} was cut short "
            f"(`journalctl -u spark-converge-{name}`); what it did is kept, run this again"
        )
    if answer.get("message"):
        raise RemoteError(f"{host.name}: {answer['message']}")
    return dict(answer)


def patiently(ask: Callable[[], dict[str, Any]], host: Host) -> dict[str, Any]:
    """Ask again over a new link when the old one broke: the work goes on without it."""
    deadline = time.monotonic() + RECONNECT_S
    while True:
        try:
            return ask()
        except RemoteError:
            if host.connected or time.monotonic() > deadline:
                raise
            time.sleep(3)


def done(host: Host, name: str, request: Found) -> dict[str, Any]:
    """Start the work, or join it when it runs already, and wait for its answer.

    Raises RemoteError; other work in the way is a reason.
    """
    start = patiently(lambda: call(host, name, "run", str(POLL_S), stdin=dict(request)), host)
    return follow(host, name, start)


def awaited(host: Host, name: str) -> None:
    """Let work that an earlier run left going come to its end, whatever that is."""
    found = patiently(lambda: call(host, name, "poll", "0"), host)
    if found["active"]:
        host.log(f"{found['subject']} still runs; waiting for it", log_func=logger.info)
        with contextlib.suppress(RemoteError):  # a host that is gone is found so by what follows
            follow(host, name, found)
