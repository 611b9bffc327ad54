"""How the ranks meet and compute together: JSON lines over TCP on the fabric.

It hangs where the real engines hang. A rank that loses its peer waits for ever and says nothing;
a worker that outlived its head goes on knocking with its old generation, and a fresh head that
lets it in never completes its rendezvous.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from typing import Any, NoReturn

from . import faults, log, release
from .options import Options

_RETRY_S = 0.5
_CONNECT_S = 5.0
_BACKLOG = 16
_HELLO = {"rank", "world", "version", "revision", "generation"}
_STALE = -1  # the place of a rank from another generation


class RefusedError(Exception):
    """The ranks do not belong together; one sentence that says why."""


def hang() -> NoReturn:
    """Wait for ever, as a collective does whose peer is gone."""
    while True:
        threading.Event().wait()


class Channel:
    """One connection between two ranks. Any loss of it ends in `hang`, except in `receive`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = connection.makefile("rb")

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; a lost peer is noticed by the next `receive`, if at all."""
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def receive(self) -> dict[str, Any] | None:
        """The next message, or None when the peer is gone."""
        try:
            message = json.loads(self._reader.readline())
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None


class Head:
    """Rank 0's side: lets the workers in, waits for them, shares out each prompt."""

    def __init__(self, options: Options, revision: str) -> None:
        self._options = options
        self._revision = revision
        self._generation = secrets.token_hex(8)
        self._workers: dict[int, Channel] = {}
        self._kept: list[Channel] = []
        self._change = threading.Condition()
        self._refusal: str | None = None
        self._turn = threading.Lock()

    def listen(self) -> None:
        """Open the rendezvous at once. Raises OSError when the address cannot be had."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._options.master_addr, self._options.master_port))
        listener.listen(_BACKLOG)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def join(self) -> None:
        """Wait until every worker is in. Raises RefusedError when one does not fit."""
        expected = set(range(1, self._options.nnodes))
        log.line(
            f"rendezvous at {self._options.master_addr}:{self._options.master_port}, "
            f"waiting for {len(expected)} worker(s)"
        )
        with self._change:
            while set(self._workers) != expected and self._refusal is None:
                self._change.wait()
        if self._refusal is not None:
            raise RefusedError(self._refusal)
        for worker in self._workers.values():
            worker.send({"generation": self._generation})
        log.line(f"all {self._options.nnodes} ranks joined")

    def barrier(self) -> None:
        """Wait until every worker has loaded, then let them go."""
        for worker in self._workers.values():
            if worker.receive() is None:
                hang()
        for worker in self._workers.values():
            worker.send({"go": True})

    def partials(self, prompt: str) -> list[float]:
        """Each worker's part for `prompt`; never returns when one is gone."""
        with self._turn:
            for worker in self._workers.values():
                worker.send({"prompt": prompt})
            answers = [worker.receive() for worker in self._workers.values()]
            if None in answers:
                hang()
            return [float(answer["partial"]) for answer in answers if answer is not None]

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._greet, args=(Channel(connection),), daemon=True).start()

    def _greet(self, channel: Channel) -> None:
        hello = channel.receive()
        if hello is None or not hello.keys() >= _HELLO:
            return
        if "refuse-rendezvous" in faults.read(self._options.faults_file):
            channel.send({"refused": "rank 0 refuses every rank (fault refuse-rendezvous)"})
            return
        with self._change:
            # Kept open without an answer: the rank at the other end waits, as it would for a
            # group that is complete or broken already.
            self._kept.append(channel)
            if self._complete() or hello["rank"] in self._workers:
                return
            if hello["generation"] is not None:
                # It takes a place that a fresh rank will never get: this rendezvous is lost.
                self._workers[_STALE] = channel
                return
            reason = self._mismatch(hello)
            if reason is None:
                self._workers[hello["rank"]] = channel
                log.line(f"rank {hello['rank']} joined")
            else:
                channel.send({"refused": reason})
                self._refusal = reason
            self._change.notify_all()

    def _complete(self) -> bool:
        return len(self._workers) >= self._options.nnodes - 1

    def _mismatch(self, hello: dict[str, Any]) -> str | None:
        for key, name, own in (
            ("world", "world size", self._options.nnodes),
            ("version", "engine version", release.VERSION),
            ("revision", "model revision", self._revision),
        ):
            if hello[key] != own:
                return f"rank {hello['rank']} has {name} {hello[key]}, rank 0 has {own}"
        if not 0 < hello["rank"] < self._options.nnodes:
            return f"rank {hello['rank']} found, 1 to {self._options.nnodes - 1} expected"
        return None


class Worker:
    """A worker's side: joins, waits at the barrier, answers prompts with its part."""

    def __init__(self, options: Options, revision: str) -> None:
        self._options = options
        self._hello = {
            "rank": options.rank,
            "world": options.nnodes,
            "version": release.VERSION,
            "revision": revision,
            "generation": None,
        }

    def join(self) -> None:
        """Connect to the head, for as long as it takes. Raises RefusedError when it says no."""
        if "refuse-rendezvous" in faults.read(self._options.faults_file):
            raise RefusedError(
                f"rank {self._options.rank} refuses to join (fault refuse-rendezvous)"
            )
        log.line(
            f"connecting to rendezvous {self._options.master_addr}:{self._options.master_port} "
            f"from {self._options.bind_ip}"
        )
        self._channel = self._connect()
        self._channel.send(self._hello)
        answer = self._channel.receive()
        if answer is None:
            hang()
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        self._hello["generation"] = answer["generation"]
        log.line("joined")

    def barrier(self) -> None:
        """Tell the head that this rank has loaded; wait until all have."""
        self._channel.send({"ready": True})
        if self._channel.receive() is None:
            self._knock()

    def next_prompt(self) -> str:
        """The next prompt; never returns once the head is gone."""
        request = self._channel.receive()
        if request is None:
            self._knock()
        return str(request["prompt"])

    def answer(self, partial: float) -> None:
        """Send this rank's part for the last prompt."""
        self._channel.send({"partial": partial})

    def _knock(self) -> NoReturn:
        """Offer this rank, with the generation it had, to whoever is head now; say nothing."""
        while True:
            channel = self._connect()
            channel.send(self._hello)
            channel.receive()
            time.sleep(_RETRY_S)

    def _connect(self) -> Channel:
        while True:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.settimeout(_CONNECT_S)
            try:
                connection.bind((self._options.bind_ip, 0))
                connection.connect((self._options.master_addr, self._options.master_port))
            except OSError:
                # Not there yet, or this rank's own address is not: both come with time.
                connection.close()
                time.sleep(_RETRY_S)
                continue
            connection.settimeout(None)
            return Channel(connection)
