"""One file over HTTP into a part file, taken up again where it stopped, hashed as it arrives."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ipaddress
import os
import re
import ssl
import stat
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from model import place, reading

TIMEOUT_S = 60
# Attempts in a row that bring nothing before a source counts as gone.
TRIES = 5
REDIRECTS = 5
# Of one wait that a source asks for; the control machine takes five minutes of silence for a hang.
WAIT_LIMIT_S = 60
BLOCK_BYTES = 1 << 20
SYNC_BYTES = 32 << 20  # so much may wait for the disk before its pages are dropped
AGENT = "spark-converge"
NOWHERE = "the source sends to {!r}, which is no address"
REASONS = {
    401: "the source wants a login, or not this one: set a good HF_TOKEN on the control machine",
    403: "access is not granted: accept the model's terms, or set another HF_TOKEN",
    404: "the source does not have it at this revision",
}


class Refused(Exception):
    """The source will not give this file, however often it is asked."""


class Dropped(Exception):
    """The transfer ended early; the next one goes on from there, after wait_s if the source says
    so."""

    def __init__(self, said: str, wait_s: float = 0) -> None:
        super().__init__(said)
        self.wait_s = wait_s


class Wrong(Exception):
    """All bytes came and they are not the wanted ones."""


class Unwritable(Exception):
    """The disk does not take what came; asking the source again would not help."""


class Part:
    """A file on its way: its bytes so far are hashed, and go on where they stopped.

    It is root's alone until they are proven. path: pinned, see homes.py.
    """

    def __init__(self, path: str, count: Callable[[int], None]) -> None:
        self.path, self.count = path, count
        self.fd = opened(path)
        self.size, self.digest, self._unsynced = 0, hashlib.sha256(), 0
        self._proven = False
        for block in reading.blocks(place.by(self.fd)):
            self.digest.update(block)
            self.size += len(block)
            count(len(block))

    def add(self, data: memoryview) -> None:
        at = 0
        while at < len(data):
            try:
                at += os.pwrite(self.fd, data[at:], self.size + at)
            except OSError as error:
                raise Unwritable(error.strerror) from None
        self.digest.update(data)
        self.size += len(data)
        self.count(len(data))
        self._unsynced += len(data)
        if self._unsynced >= SYNC_BYTES:
            self.sync()

    def sync(self) -> None:
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise Unwritable(error.strerror) from None
        reading.drop(self.fd)
        self._unsynced = 0

    def start_over(self) -> None:
        os.ftruncate(self.fd, 0)
        self.count(-self.size)
        self.size, self.digest = 0, hashlib.sha256()

    def settle(self) -> None:
        """Its bytes are proven: nobody else's file gets this owner and mode."""
        place.settle(self.fd, self.path)
        self._proven = True

    def close(self) -> None:
        """A part without a byte is no part, but a model may have empty files."""
        try:
            self.sync()
        finally:
            os.close(self.fd)
            if not self.size and not self._proven:
                os.unlink(self.path)


def opened(path: str) -> int:
    """Descriptor of a part file; what is no file, or has another name that writing would reach
    (a hard link that a cut-off run left), makes room for a new one."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except OSError:
        pass
    else:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_nlink == 1:
            return fd
        os.close(fd)
    if os.path.lexists(path):
        os.unlink(path)
    return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)


class Source:
    """Where files come from.

    token: sent to the first address only, never after a redirect away, and over plain HTTP to no
    other machine; lent: it is one of this run's own, for a host of this cluster.
    """

    def __init__(self, token: str | None, lent: bool | None = False) -> None:
        self.token, self.lent = token, bool(lent)
        self.moved = 0  # bytes that crossed the network, those that turned out wrong included

    def fetch(
        self, url: str, path: str, entry: dict[str, Any], count: Callable[[int], None]
    ) -> None:
        """Bring a file whole and right to `path`; raises Refused, Dropped, Wrong, Unwritable or
        OSError."""
        part = Part(path, count)
        try:
            self._complete(part, url, entry["size"])
            found = part.digest.hexdigest()
            if found != entry["sha256"]:
                part.start_over()
                raise Wrong(f"SHA-256 {found} arrived, {entry['sha256']} expected")
            part.settle()
        finally:
            part.close()

    def _complete(self, part: Part, url: str, size: int | None) -> None:
        tries = 0
        while True:
            before = part.size
            try:
                self._transfer(part, url, size)
                return
            except (Dropped, OSError, http.client.HTTPException) as error:
                tries = 1 if part.size > before else tries + 1
                if tries >= TRIES:
                    said = str(error) or type(error).__name__
                    raise Dropped(f"{said}, {TRIES} times in a row") from None
                time.sleep(max(min(2.0**tries, 30) / 2, getattr(error, "wait_s", 0)))

    def _transfer(self, part: Part, url: str, size: int | None) -> None:
        if size is not None and part.size > size:
            part.start_over()
        if size is not None and part.size == size:
            return
        link, answer = self._asked(url, part.size)
        with contextlib.closing(link):
            if answer.status == 416 or (part.size and answer.status == 200):
                part.start_over()  # it has fewer bytes than the part, or gives only all of them
                if answer.status == 416:
                    raise Dropped("the part was longer than the file")
            total = length_of(answer, part.size)
            if size is not None and total not in (None, size):
                raise Refused(f"{total} bytes there, {size} expected")
            wanted = size if total is None else total
            if wanted is None:
                raise Refused("the source does not say how large it is, nor does the lock")
            left = os.fstatvfs(part.fd)
            if wanted - part.size > left.f_bavail * left.f_frsize:
                raise Unwritable("no space for what is still to come")
            self._stream(part, answer, wanted)
            if total is not None and part.size < total:
                raise Dropped(f"cut off after {part.size} of {total} bytes")

    def _stream(self, part: Part, answer: http.client.HTTPResponse, most: int) -> None:
        """most: bytes of the whole file; a source that sends more is cut off."""
        buffer = memoryview(bytearray(BLOCK_BYTES))
        while True:
            count = answer.readinto(buffer)
            if not count:
                return
            self.moved += count
            if part.size + count > most:
                part.start_over()
                raise Refused(f"more than the {most} bytes that it has came: cut off")
            part.add(buffer[:count])

    def _asked(
        self, url: str, first: int
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        home = address(url)[:2]
        for _ in range(REDIRECTS):
            there = address(url)
            headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"}
            if first:
                headers["Range"] = f"bytes={first}-"
            if self.token and there[:2] == home and (self.lent or private(there)):
                headers["Authorization"] = f"Bearer {self.token}"
            link = connection(there)
            try:
                target = there.path + (f"?{there.query}" if there.query else "")
                link.request("GET", target, headers=headers)
                answer = link.getresponse()
                to = answer.getheader("Location")
                if answer.status in (301, 302, 303, 307, 308) and to:
                    url = joined(url, to)
                    link.close()
                    continue
                if answer.status in (200, 206, 416):
                    return link, answer
                raise refusal(answer)
            except BaseException:
                link.close()
                raise
        raise Refused(f"{REDIRECTS} redirects in a row")


def joined(url: str, to: str) -> str:
    """Where a redirect leads; raises Refused for one that leads nowhere."""
    try:
        return urllib.parse.urljoin(url, to)
    except ValueError:
        raise Refused(
            f"the source sends to {place.shown(to)[:80]!r}, which is no address"
        ) from None


def address(url: str) -> urllib.parse.SplitResult:
    """The parts of an address that can be asked; raises Refused."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise Refused(NOWHERE.format(place.shown(url)[:80]))
    return parts


def private(there: urllib.parse.SplitResult) -> bool:
    """Whether nobody on the way can read what is sent."""
    if there.scheme == "https" or there.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(there.hostname or "").is_loopback
    except ValueError:
        return False


def refusal(answer: http.client.HTTPResponse) -> Exception:
    said = answer.getheader("X-Error-Message") or answer.reason
    text = f"status {answer.status} ({place.shown(said)[:200]})"
    if answer.status == 429 or answer.status >= 500:
        return Dropped(text, wait_of(answer))
    why = REASONS.get(answer.status)
    return Refused(f"{text}; {why}" if why else text)


def wait_of(answer: http.client.HTTPResponse) -> float:
    """Seconds until a source that has too much to do wants to be asked again; the Hub says it as
    t=SECONDS of its rate limit."""
    limit = re.search(r"\bt=(\d+)", answer.getheader("RateLimit") or "")
    said = answer.getheader("Retry-After") or (limit[1] if limit else "")
    return min(int(said), WAIT_LIMIT_S) if re.fullmatch("[0-9]{1,9}", said) else 0


def connection(there: urllib.parse.SplitResult) -> http.client.HTTPConnection:
    host = there.hostname or ""
    if there.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, there.port, timeout=TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, there.port, timeout=TIMEOUT_S)


def length_of(answer: http.client.HTTPResponse, first: int) -> int | None:
    """Size of the whole file as the source says it; raises Dropped for a range nobody asked for."""
    if answer.status == 206:
        found = re.fullmatch(
            r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})",
            answer.getheader("Content-Range") or "",
        )
        if not found or int(found[1]) != first:
            raise Dropped("the source answered another range")
        return int(found[2])
    length = answer.getheader("Content-Length")
    return int(length) if length and re.fullmatch("[0-9]{1,18}", length) else None
