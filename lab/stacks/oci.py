"""The engine's image, made from files of a guest root tree, without a docker build.

One OCI archive holds index -> manifest -> config and one gzip layer: the tree's own Python with
the part of its standard library that the engine imports, the shared libraries both need, and
the engine. The same tree and engine give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from lab.services.registry import ADDRESS
from lab.stacks import oci_layer
from lab.stacks.oci_layer import ImageError

__all__ = ["ImageDigests", "ImageError", "build", "push"]

# What the two images call themselves; they differ in content, so their digests differ.
RELEASES = {
    "new": ("0.2.0", "lab-model"),
    "old": ("0.1.0", "dsf-lab"),
}

_ENTRYPOINT = ["/usr/bin/python3", "-S", "-B", "-m", "engine"]
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": f"/{oci_layer.ENGINE_DIR}",
    "PYTHONUNBUFFERED": "1",
    "LANG": "C.UTF-8",
}
_GZIP_LEVEL = 6
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_REFERENCE = "org.opencontainers.image.ref.name"
_EPOCH = "1970-01-01T00:00:00Z"
# Part of the bytes: with another text every image would have another digest.
_CREATED_BY = "spark-converge lab/oci.py"


@dataclass(frozen=True)
class ImageDigests:
    """Digests of a pushed image (``sha256:<hex>``): the index, and each platform's manifest."""

    index: str
    platforms: dict[str, str]


def build(root_tree: Path, version: str, out_dir: Path) -> Path:
    """Write ``lab-engine-<version>.oci.tar`` into `out_dir` and return its path.

    + root_tree: an unpacked Debian or Ubuntu root with python3, of this machine's architecture
    + version: ``new`` or ``old``

    Raises ImageError when the tree has no Python that runs here. About 8 MB, 3 s.
    """
    release, model_name = RELEASES[version]
    with tempfile.TemporaryDirectory() as folder:
        oci_layer.stage(root_tree, Path(folder), release, model_name)
        layer = _tar(Path(folder))
    packed = gzip.compress(layer, _GZIP_LEVEL, mtime=0)
    platform = {"os": "linux", "architecture": oci_layer.architecture(root_tree)}
    config = _json(
        {
            "created": _EPOCH,
            **platform,
            "config": {
                "Entrypoint": _ENTRYPOINT,
                "Env": [f"{name}={value}" for name, value in _ENVIRONMENT.items()],
                "WorkingDir": "/",
                "Labels": {"org.opencontainers.image.version": release},
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created": _EPOCH, "created_by": _CREATED_BY}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": _descriptor(_CONFIG_TYPE, config),
            "layers": [_descriptor(_LAYER_TYPE, packed)],
        }
    )
    index = _json(
        {
            "schemaVersion": 2,
            "mediaType": _INDEX_TYPE,
            "manifests": [{**_descriptor(_MANIFEST_TYPE, manifest), "platform": platform}],
        }
    )
    out_dir.mkdir(parents=True, exist_ok=True)
    archive = out_dir / f"lab-engine-{version}.oci.tar"
    with tempfile.TemporaryDirectory() as folder:
        _write_layout(Path(folder), release, index, [packed, config, manifest])
        archive.write_bytes(_tar(Path(folder)))
    return archive


def push(path: Path, name: str) -> ImageDigests:
    """Copy an archive of `build` to the lab's registry as `name`; the digests found there.

    + name: repository, with or without a tag: ``lab-engine`` is ``lab-engine:latest``

    Raises ImageError when the copy fails or the registry holds another digest than the archive.
    """
    repository, _, tag = name.partition(":")
    tag = tag or "latest"
    copy = subprocess.run(
        [
            *("skopeo", "copy", "--quiet", "--all", "--preserve-digests"),
            "--dest-tls-verify=false",
            f"oci-archive:{path}",
            f"docker://{ADDRESS}/{repository}:{tag}",
        ],
        capture_output=True,
        text=True,
        check=False,
        env=_without_proxy(os.environ),
    )
    if copy.returncode != 0:
        raise ImageError(f"skopeo could not copy {path} to {ADDRESS}: {copy.stderr.strip()}")
    digests = _registered(repository, tag)
    expected = _archived_index(path)
    if digests.index != expected:
        raise ImageError(f"{ADDRESS}/{name} has {digests.index}, {path} has {expected}")
    return digests


def _registered(repository: str, tag: str) -> ImageDigests:
    # trust_env off: a proxy of the machine must never see loopback traffic.
    answer = httpx.get(
        f"http://{ADDRESS}/v2/{repository}/manifests/{tag}",
        headers={"Accept": _INDEX_TYPE},
        trust_env=False,
    )
    if answer.status_code != httpx.codes.OK:
        raise ImageError(f"{ADDRESS} answers {answer.status_code} for {repository}:{tag}")
    platforms = {
        f"{entry['platform']['os']}/{entry['platform']['architecture']}": entry["digest"]
        for entry in answer.json()["manifests"]
    }
    return ImageDigests(_digest(answer.content), platforms)


def _archived_index(path: Path) -> str:
    with tarfile.open(path) as archive:
        top = archive.extractfile("index.json")
        if top is None:
            raise ImageError(f"{path}: index.json is no file; build the image again")
        return str(json.load(top)["manifests"][0]["digest"])


def _without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if not name.lower().endswith("_proxy")
    }


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _write_layout(folder: Path, reference: str, index: bytes, blobs: list[bytes]) -> None:
    """An OCI image layout whose only entry is the index of this image."""
    store = folder / "blobs/sha256"
    store.mkdir(parents=True)
    for blob in [*blobs, index]:
        (store / _digest(blob).removeprefix("sha256:")).write_bytes(blob)
    entry = {**_descriptor(_INDEX_TYPE, index), "annotations": {_REFERENCE: reference}}
    (folder / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    (folder / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [entry]}))


def _tar(folder: Path) -> bytes:
    """The folder as a tar without anything that differs between two runs or two machines."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            member = tar.gettarinfo(path, str(path.relative_to(folder)))
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            if member.isfile():
                with path.open("rb") as content:
                    tar.addfile(member, content)
            else:
                tar.addfile(member)
    return buffer.getvalue()
