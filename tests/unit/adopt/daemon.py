"""A docker daemon of a few requests on a socket of its own, for the on-host program to talk to."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.unit.adopt.inspected import inspect


class Daemon:
    """documents: of containers by name; images: by every name that leads to them."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.networks: set[str] = set()
        self.volumes: set[str] = set()
        self.info: dict[str, Any] = {"Runtimes": {"runc": {}}, "DockerRootDir": "/"}
        self.started: list[str] = []

    def answer(self, method: str, target: str, body: str) -> tuple[int, Any]:
        parts = urlsplit(target)
        kind, *rest = unquote(parts.path).strip("/").split("/")
        name = "/".join(rest).removesuffix("/json")
        if method == "POST" and name == "create":
            asked = parse_qs(parts.query)["name"][0]
            request = json.loads(body)
            if request["Image"] not in self.images:
                return 404, {"message": f"No such image: {request['Image']}"}
            self.documents[asked] = inspect(asked, request, "second")
            self.documents[asked]["State"]["Running"] = False
            return 201, {"Id": self.documents[asked]["Id"]}
        if method == "POST":
            one = self.by_id(name.removesuffix("/start"))
            one["State"]["Running"] = True
            self.started.append(one["Name"].lstrip("/"))
            return 204, None
        if kind == "info":
            return 200, self.info
        if kind == "containers" and name == "json":
            return 200, [{"Id": one["Id"]} for one in self.documents.values()]
        found: Any = None
        if kind == "containers":
            found = self.documents.get(name) or self.by_id(name)
        elif kind == "images":
            found = self.images.get(name)
        elif name in (self.networks if kind == "networks" else self.volumes):
            found = {}
        return (404, {"message": f"no such {kind}"}) if found is None else (200, found)

    def by_id(self, container: str) -> Any:
        return next((one for one in self.documents.values() if one["Id"] == container), None)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Daemon, str]]:
    """(a daemon, the path of its socket) while the block runs."""
    daemon, path = Daemon(), str(folder / "docker.sock")

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            method, target, _ = self.rfile.readline().decode().split()
            headers = dict(iter(self._header, ("", "")))
            body = self.rfile.read(int(headers.get("content-length", "0"))).decode()
            status, said = daemon.answer(method, target, body)
            text = "" if said is None else json.dumps(said)
            self.wfile.write(f"HTTP/1.0 {status} said\r\n\r\n{text}".encode())

        def _header(self) -> tuple[str, str]:
            name, _, value = self.rfile.readline().decode().strip().partition(":")
            return name.lower(), value.strip()

    with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield daemon, path
        server.shutdown()
