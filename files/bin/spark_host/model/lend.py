"""This host's proven model files, lent to the other hosts over the fabric for as long as they take.

run SECONDS < request   start a server of its own unit; its port stands in "progress"
stop                    end it
here                    the server itself, in the unit

request: {"directory", "entries": [{"name", "size", "sha256"}], "address", "token", "silence_s"}

It gives exactly the files of the lock, by their SHA-256, to whoever has the token of this run, on
the fabric's address alone, and ends by itself after `silence_s` in which nobody took a byte.
"""

from __future__ import annotations

import hmac
import http.server
import json
import re
import sys
import threading
import time
from typing import Any

from run import detached

from model import names, reading

NAME = "lend"
LOOK_S = 0.5


class Lender(http.server.ThreadingHTTPServer):
    """files: SHA-256 -> path; token: of this run."""

    daemon_threads = True

    def __init__(self, address: str, files: dict[str, str], token: str) -> None:
        super().__init__((address, 0), Handler)
        self.files, self.token = files, token
        self.heard = time.monotonic()
        self.sent = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A host that hung up asks again by itself."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Lender
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *words: Any) -> None:  # noqa: A002 - the base's name
        """Nothing is logged: the journal of the unit is read by others."""

    def do_GET(self) -> None:
        self.server.heard = time.monotonic()
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self.send_error(401)
            return
        path = self.server.files.get(self.path[1:])
        if path is None:
            self.send_error(404)
            return
        try:
            self.give(path)
        except FileNotFoundError:
            self.send_error(404)

    def give(self, path: str) -> None:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked else 0
        if asked and first >= size:
            self.send_error(416)
            return
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{size - 1}/{size}")
        self.send_header("Content-Length", str(size - first))
        self.end_headers()
        self.close_connection = True
        for block in reading.blocks(path, first):
            self.wfile.write(block)
            self.server.sent += len(block)
            self.server.heard = time.monotonic()


def here(request: dict[str, Any]) -> dict[str, Any]:
    names.checked(request["entries"], [])
    files = {e["sha256"]: f"{request['directory']}/{e['name']}" for e in request["entries"]}
    try:
        lender = Lender(request["address"], files, request["token"])
    except OSError as error:
        return {"ok": False, "message": f"{request['address']}: {error.strerror}"}
    with lender:
        threading.Thread(target=lender.serve_forever, args=(LOOK_S,), daemon=True).start()
        detached.write(NAME, "progress", {"port": lender.server_address[1]})
        while time.monotonic() - lender.heard < request["silence_s"]:
            time.sleep(LOOK_S)
        lender.shutdown()
    return {"ok": True, "sent": lender.sent}


def start(request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One of an earlier run that was cut off has a token that nobody knows any more."""
    detached.stop(NAME)
    detached.start(NAME, f"lending of {request['directory']}", request)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = detached.load(NAME, "progress")
        if found:
            return {"port": found["port"]}
        answer = detached.load(NAME, "answer")
        if answer:
            return dict(answer)
        time.sleep(0.1)
    return {"ok": False, "message": f"the server did not start in {seconds:.0f} s"}


def main(argv: list[str]) -> dict[str, Any]:
    action, *rest = argv
    if action == "here":
        return detached.here(NAME, here)
    if action == "run":
        return start(json.load(sys.stdin), float(rest[0]))
    if action == "stop":
        detached.stop(NAME)
        return {}
    raise ValueError(f"unknown action {action}")
