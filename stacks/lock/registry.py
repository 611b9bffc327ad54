"""An image as its registry has it: digest of the index, of each platform's manifest, sizes.

The registry's own API (OCI distribution), with the anonymous token that public registries give.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import httpx

from stacks.lock.errors import LockError
from stacks.schema import LockedImage

ASK_TIMEOUT_S = 30.0
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS))


def place(repository: str) -> tuple[str, str]:
    """(address of the registry, name of the repository there), by docker's rules."""
    host, _, name = repository.partition("/")
    if host == "docker.io" or not ("." in host or ":" in host or host == "localhost"):
        name = name if host == "docker.io" else repository
        return "https://registry-1.docker.io", name if "/" in name else f"library/{name}"
    return f"{'http' if _loopback(host) else 'https'}://{host}", name


def read(repository: str, reference: str) -> LockedImage:
    """The image behind a tag, or behind a digest (sha256:...), with all its platforms.

    Raises LockError with one sentence when the registry does not give it.
    """
    with _Session(repository) as session:
        content, kind = session.manifest(reference)
        index = _digest(content)
        if reference.startswith("sha256:") and index != reference:
            raise LockError(f"{session.base} gives {index} where {reference} was asked for")
        platforms: dict[str, str] = {}
        sizes: dict[str, int] = {}
        try:
            for platform, digest, manifest in _platforms(session, index, content, kind):
                platforms[platform] = digest
                sizes[platform] = sum(int(layer["size"]) for layer in manifest["layers"])
            return LockedImage(index=index, platforms=platforms, download_bytes=sizes)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise LockError(
                f"{session.base} gives an odd document for {reference} ({error!r})"
            ) from error


def digest_of(repository: str, tag: str, timeout_s: float = ASK_TIMEOUT_S) -> str:
    """Where a tag points now. Raises LockError when the registry does not say."""
    with _Session(repository, timeout_s) as session:
        return _digest(session.manifest(tag)[0])


def _platforms(
    session: _Session, index: str, content: Any, kind: str
) -> Iterator[tuple[str, str, Any]]:
    """(platform, digest, manifest); attestations, which have no platform, are passed over."""
    document = session.parsed(content)
    if kind in _MANIFESTS:
        config = session.parsed(session.blob(document["config"]["digest"]))
        yield _platform(config), index, document
        return
    for entry in document["manifests"]:
        platform = _platform(entry.get("platform") or {})
        if entry["mediaType"] in _MANIFESTS and "unknown" not in platform:
            found, _kind = session.manifest(entry["digest"])
            if _digest(found) != entry["digest"]:
                raise LockError(
                    f"{session.base} gives {_digest(found)} where {entry['digest']} was asked for"
                )
            yield platform, entry["digest"], session.parsed(found)


def _platform(said: dict[str, Any]) -> str:
    """linux/arm64; the variant only where it tells two platforms apart (arm/v6, arm/v7)."""
    parts = [said.get("os", "unknown"), said.get("architecture", "unknown")]
    if parts[1] == "arm" and said.get("variant"):
        parts.append(said["variant"])
    return "/".join(parts)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _loopback(host: str) -> bool:
    return bool(re.fullmatch(r"(localhost|127(\.\d+){3})(:\d+)?", host))


class _Session:
    """One conversation about one repository; its token is kept for the time of it."""

    def __init__(self, repository: str, timeout_s: float = ASK_TIMEOUT_S) -> None:
        self.repository = repository
        self.base, self.name = place(repository)
        # A proxy of the machine must never see loopback traffic.
        proxied = not self.base.startswith("http://")
        self._client = httpx.Client(timeout=timeout_s, follow_redirects=True, trust_env=proxied)

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def manifest(self, reference: str) -> tuple[bytes, str]:
        """(bytes, media type) of an index or a manifest."""
        answer = self._get(f"manifests/{reference}", reference, {"Accept": _ACCEPT})
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        if kind not in (*_INDEXES, *_MANIFESTS):
            raise LockError(f"{self.base} gives {kind or 'nothing'} for {reference}; an image index"
                            " or manifest expected")  # fmt: skip
        return answer.content, kind

    def blob(self, digest: str) -> bytes:
        content = self._get(f"blobs/{digest}", digest, {}).content
        if _digest(content) != digest:
            raise LockError(f"{self.base} gives other bytes than {digest}")
        return content

    def parsed(self, content: bytes) -> Any:
        try:
            return httpx.Response(200, content=content).json()
        except (ValueError, RecursionError):
            raise LockError(f"{self.base} gives no JSON for {self.repository}") from None

    def _get(self, path: str, what: str, headers: dict[str, str]) -> httpx.Response:
        url = f"{self.base}/v2/{self.name}/{path}"
        try:
            answer = self._client.get(url, headers=headers)
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                self._log_in(answer.headers.get("WWW-Authenticate", ""))
                answer = self._client.get(url, headers=headers)
        except httpx.HTTPError as error:
            raise LockError(
                f"{self.base} cannot be reached ({type(error).__name__}: {error})"
            ) from None
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise LockError(
                f"{self.repository} has no {what} any more, or never had; "
                "the lock stays as it is; --tag NAME reads what a tag points to now"
            )
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise LockError(
                f"{self.repository} cannot be read without a login ({answer.status_code}); "
                "only images that anybody may pull can be locked from here"
            )
        if answer.status_code != httpx.codes.OK:
            raise LockError(f"{self.base} answers {answer.status_code} for {what}")
        return answer

    def _log_in(self, challenge: str) -> None:
        """Ask for the anonymous token that the registry's answer points to."""
        said = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not challenge.lower().startswith("bearer ") or "realm" not in said:
            return
        asked = {"service": said.get("service", ""), "scope": f"repository:{self.name}:pull"}
        answer = self._client.get(said["realm"], params=asked)
        if answer.status_code == httpx.codes.OK:
            found = self.parsed(answer.content)
            token = found.get("token") or found.get("access_token")
            self._client.headers["Authorization"] = f"Bearer {token}"
