"""A server that speaks the Hub's API for model repositories, for tests: revisions, gates, faults.

As the real one: small files are answered at once, with the SHA-1 of their git blob as ETag; weights
(*.safetensors) carry a SHA-256 in the API and are redirected to a second address, which takes
Range. Revisions are 40 hexadecimal digits, `main` is the newest.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

HOST = "127.0.0.1"
PORT = 5080  # of the lab's own; tests without guests take 0, any free port
GUEST_ADDRESS = "10.0.2.100:5080"  # as a guest sees it, through QEMU's guestfwd

_CHUNK_BYTES = 1 << 18
_POINTER_BYTES = 134  # of a git-lfs pointer file, which nobody reads here


@dataclass(frozen=True)
class Blob:
    """One file's content: bytes, or a path for what is too large to be held."""

    content: bytes | Path

    @cached_property
    def size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    @cached_property
    def sha256(self) -> str:
        return self._digest("sha256", b"")

    @cached_property
    def git_sha1(self) -> str:
        return self._digest("sha1", f"blob {self.size}\0".encode())

    def read(self, first: int, count: int) -> bytes:
        if isinstance(self.content, bytes):
            return self.content[first : first + count]
        with self.content.open("rb") as file:
            file.seek(first)
            return file.read(count)

    def _digest(self, kind: str, before: bytes) -> str:
        total = hashlib.new(kind, before)
        for first in range(0, self.size, _CHUNK_BYTES):
            total.update(self.read(first, _CHUNK_BYTES))
        return total.hexdigest()


@dataclass
class Repository:
    """revisions: commit -> file name -> content; token: who may read (None: everybody); hashes:
    whether the API says the SHA-256 of weights."""

    revisions: dict[str, dict[str, Blob]] = field(default_factory=dict)
    main: str = ""
    token: str | None = None
    hashes: bool = True


@dataclass
class Transfer:
    """One answer to a GET of a file: which bytes of it left here."""

    name: str
    revision: str
    first: int
    sent: int


@dataclass
class Faults:
    """What goes wrong, by file name; switched on and off while the server runs.

    cut: bytes after which the connection is dropped, each time; wrong: how many transfers to come
    have their first byte flipped; rate_bytes_s: of each connection; down: nothing but status 503;
    busy: headers of answers to come that are status 429.
    """

    cut: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    rate_bytes_s: float | None = None
    down: bool = False
    busy: list[dict[str, str]] = field(default_factory=list)


class Hub:
    """The server; `with Hub() as hub:` answers at `hub.url` until the block ends."""

    def __init__(self, port: int = 0) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults = Faults()
        self.transfers: list[Transfer] = []
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = _Server((HOST, port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def publish(self, repository: str, files: Mapping[str, bytes | Path]) -> str:
        """Commit `files` as the whole of a new revision of `repository`; returns its hash."""
        blobs = {name: Blob(content) for name, content in sorted(files.items())}
        repo = self.repositories.setdefault(repository, Repository())
        text = json.dumps([repo.main, {name: blob.git_sha1 for name, blob in blobs.items()}])
        revision = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        repo.revisions[revision] = blobs
        repo.main = revision
        return revision

    def force_push(self, repository: str, files: Mapping[str, bytes | Path]) -> str:
        """As publish, and what was there before is gone."""
        revision = self.publish(repository, files)
        repo = self.repositories[repository]
        repo.revisions = {revision: repo.revisions[revision]}
        return revision

    def sent(self) -> dict[str, int]:
        """File name -> bytes that left here, over all transfers."""
        total: dict[str, int] = {}
        with self.lock:
            for one in self.transfers:
                total[one.name] = total.get(one.name, 0) + one.sent
        return total


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is its own affair."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass

    def _answer(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        try:
            if self.hub.faults.down:
                raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "", "down")
            if self.hub.faults.busy:
                headers = self.hub.faults.busy.pop()
                self._send(HTTPStatus.TOO_MANY_REQUESTS, b"", headers)
                return
            if found := re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/(.+))?", path):
                self._api(*found.groups())
            elif found := re.fullmatch(r"/(cdn/)?(.+?)/resolve/([^/]+)/(.+)", path):
                self._file(*found.groups())
            else:
                raise _Refused(HTTPStatus.NOT_FOUND, "RepoNotFound", "no such page")
        except _Refused as refused:
            headers = {"X-Error-Code": refused.code, "X-Error-Message": refused.message}
            text = json.dumps({"error": refused.message}).encode()
            self._send(refused.status, text, headers)

    def _api(self, repository: str, what: str | None, revision: str | None) -> None:
        commit, files = self._revision(repository, revision or "main")
        document = _tree(files) if what == "tree" else _info(repository, commit, files)
        if not self.hub.repositories[repository].hashes:
            for one in document["siblings"] if isinstance(document, dict) else document:
                one.pop("lfs", None)
        self._send(HTTPStatus.OK, json.dumps(document).encode(), {})

    def _revision(self, repository: str, revision: str) -> tuple[str, dict[str, Blob]]:
        repo = self.hub.repositories.get(repository)
        if repo is None:  # the real one says 401 as long as nobody has logged in
            raise _Refused(HTTPStatus.UNAUTHORIZED, "RepoNotFound", "Repository not found")
        if repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
            given = "Authorization" in self.headers
            status = HTTPStatus.FORBIDDEN if given else HTTPStatus.UNAUTHORIZED
            raise _Refused(status, "GatedRepo", f"Access to model {repository} is restricted")
        commit = repo.main if revision == "main" else revision
        if commit not in repo.revisions:
            raise _Refused(HTTPStatus.NOT_FOUND, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, repo.revisions[commit]

    def _file(self, cdn: str | None, repository: str, revision: str, name: str) -> None:
        commit, files = (
            (revision, self.hub.repositories[repository].revisions.get(revision, {}))
            if cdn  # whoever was sent there was let in before
            else self._revision(repository, revision)
        )
        blob = files.get(name)
        if blob is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "EntryNotFound", f"{name} is not in {commit}")
        headers = {"X-Repo-Commit": commit}
        if not _is_lfs(name):
            self._content(blob, name, commit, {**headers, "ETag": f'"{blob.git_sha1}"'})
            return
        # Both places say both: the client follows a redirect on the same host to its end.
        headers |= {"X-Linked-Size": str(blob.size), "X-Linked-Etag": f'"{blob.sha256}"'}
        if cdn:
            self._content(blob, name, commit, {**headers, "ETag": f'"{blob.sha256}"'})
        else:
            place = urllib.parse.quote(f"{repository}/resolve/{commit}/{name}")
            there = f"http://{self.headers['Host']}/cdn/{place}?Signature=made-here"
            self._send(HTTPStatus.FOUND, b"", {**headers, "Location": there})

    def _content(self, blob: Blob, name: str, commit: str, headers: dict[str, str]) -> None:
        first, end = 0, blob.size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked:
            first = int(asked[1])
            end = min(int(asked[2]) + 1, blob.size) if asked[2] else blob.size
            if first >= end:
                status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                self._send(status, b"", {"Content-Range": f"bytes */{blob.size}"})
                return
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{blob.size}"
        self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        headers |= {"Accept-Ranges": "bytes", "Content-Length": str(end - first)}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self._stream(blob, name, commit, first, end)

    def _stream(self, blob: Blob, name: str, commit: str, first: int, end: int) -> None:
        faults = self.hub.faults
        transfer = Transfer(name, commit, first, 0)
        with self.hub.lock:
            self.hub.transfers.append(transfer)
            wrong = faults.wrong.get(name, 0) > 0
            if wrong:
                faults.wrong[name] -= 1
        at, stop = first, min(end, first + faults.cut.get(name, end))
        while at < stop:
            part = blob.read(at, min(_CHUNK_BYTES, stop - at))
            if wrong and at == first:
                part = bytes([part[0] ^ 0xFF]) + part[1:]
            at += len(part)
            transfer.sent += len(part)  # before it leaves: whoever has all of it may ask at once
            self.wfile.write(part)
            if faults.rate_bytes_s:
                time.sleep(len(part) / faults.rate_bytes_s)
        if at < end:
            self.close_connection = True

    def _send(self, status: HTTPStatus, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _is_lfs(name: str) -> bool:
    return name.endswith(".safetensors")


def _info(repository: str, commit: str, files: dict[str, Blob]) -> dict[str, Any]:
    """As GET /api/models/REPO/revision/REV?blobs=true."""
    siblings = []
    for name, blob in files.items():
        one = {"rfilename": name, "size": blob.size, "blobId": blob.git_sha1}
        if _is_lfs(name):
            one["lfs"] = {
                "sha256": blob.sha256,
                "size": blob.size,
                "pointerSize": _POINTER_BYTES,
            }
        siblings.append(one)
    return {"id": repository, "modelId": repository, "sha": commit, "siblings": siblings}


def _tree(files: dict[str, Blob]) -> list[dict[str, Any]]:
    """As GET /api/models/REPO/tree/REV?recursive=true."""
    listed = []
    for name, blob in files.items():
        one = {"type": "file", "path": name, "size": blob.size, "oid": blob.git_sha1}
        if _is_lfs(name):
            one["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": _POINTER_BYTES}
        listed.append(one)
    return listed
