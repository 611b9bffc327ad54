"""Reach a port of a host's own loopback through the SSH link that is already there.

The API may listen on loopback only, and a firewall may stand between; the link is known to work.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

import paramiko

CHUNK_BYTES = 65536


def _pump(near: socket.socket, far: paramiko.Channel) -> None:
    # Either end may go at any time; both are then closed, and the client says what it missed.
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException), near, far:
        while True:
            ready, _, _ = select.select([near.fileno(), far.fileno()], [], [], 60)
            if not ready:
                continue
            for one, other in ((near, far), (far, near)):
                if one.fileno() in ready:
                    data = one.recv(CHUNK_BYTES)
                    if not data:
                        return
                    other.sendall(data)


def _serve(listener: socket.socket, transport: paramiko.Transport, port: int) -> None:
    while True:
        try:
            near, origin = listener.accept()
        except OSError:
            return  # closed: the tunnel is no longer wanted
        try:
            far = transport.open_channel("direct-tcpip", ("127.0.0.1", port), origin, timeout=10)
        except (paramiko.SSHException, OSError, EOFError):
            near.close()  # nothing listens there, or the link died: the client sees it closed
            continue
        threading.Thread(target=_pump, args=(near, far), daemon=True).start()


@contextlib.contextmanager
def tunnel(transport: paramiko.Transport, port: int) -> Iterator[str]:
    """Base URL on this machine that leads to 127.0.0.1:port on the host, while the block runs."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(listener, transport, port), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # a close alone does not wake the waiting accept
        listener.close()
