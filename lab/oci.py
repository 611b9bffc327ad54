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
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from lab.registry import ADDRESS

# What the two images call themselves; they differ in content, so their digests differ.
RELEASES = {
    "new": ("0.2.0", "lab-model"),
    "old": ("0.1.0", "dsf-lab"),
}

_ENGINE_DIR = "opt/lab-engine"
_ENTRYPOINT = ["/usr/bin/python3", "-S", "-B", "-m", "engine"]
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": f"/{_ENGINE_DIR}",
    "PYTHONUNBUFFERED": "1",
    "LANG": "C.UTF-8",
}
_USERS = "root:x:0:0:root:/root:/bin/sh\n"
_GROUPS = "root:x:0:\n"

# Imported by the interpreter itself, before the engine (-m) or late; the look at sys.modules that
# finds the rest would miss them.
_LATE_MODULES = ("runpy", "pkgutil", "encodings.idna", "encodings.ascii", "encodings.latin_1")
# Optional parts of the standard library that draw in OpenSSL and compressors (7 MB); every
# module that wants one of them does without it.
_LEFT_OUT = ("_ssl", "_hashlib", "_bz2", "_lzma")

_GZIP_LEVEL = 6
_MACHINES = {62: "amd64", 183: "arm64"}  # e_machine of ELF to GOARCH
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_REFERENCE = "org.opencontainers.image.ref.name"
_EPOCH = "1970-01-01T00:00:00Z"


class ImageError(Exception):
    """One sentence: what was found, what was expected, what to do next."""


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
    python = _python(root_tree)
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        _stage_interpreter(root_tree, python, stage)
        _stage_engine(stage, release, model_name)
        _compile(root_tree, python, stage)
        layer = _tar(stage)
    packed = gzip.compress(layer, _GZIP_LEVEL, mtime=0)
    platform = {"os": "linux", "architecture": _architecture(python)}
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
            "history": [{"created": _EPOCH, "created_by": "spark-converge lab/oci.py"}],
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


# --- what goes into the layer -----------------------------------------------------------------


def _python(root: Path) -> Path:
    """The tree's interpreter, with its version in its name."""
    found = sorted((root / "usr/bin").glob("python3.[0-9]*[0-9]"))
    if not found:
        raise ImageError(f"no usr/bin/python3.x in {root}; a tree with package python3 expected")
    return found[-1]


def _loader(root: Path) -> Path:
    """The tree's dynamic loader; it runs the tree's programs without a chroot, so without root."""
    for place in ("usr/lib64/ld-linux-*.so.*", "usr/lib/ld-linux-*.so.*"):
        found = sorted(root.glob(place))
        if found:
            return found[0]
    raise ImageError(f"no usr/lib*/ld-linux-*.so.* in {root}; an unpacked root tree expected")


def _architecture(program: Path) -> str:
    with program.open("rb") as file:
        header = file.read(20)
    machine = struct.unpack_from("<H", header, 18)[0] if header[:4] == b"\x7fELF" else None
    if machine not in _MACHINES:
        raise ImageError(f"{program}: ELF machine {machine} found, x86-64 or arm64 expected")
    return _MACHINES[machine]


def _stage_interpreter(root: Path, python: Path, stage: Path) -> None:
    """Copy the interpreter, what it imports and the libraries of both into `stage`."""
    modules = _modules(root, python)
    programs = [python]
    shell = root / "usr/bin/dash"  # for a look around with docker exec; it needs only libc
    if shell.exists():
        programs.append(shell)
    for file in [*programs, *modules]:
        _copy(root, file, stage)
    for needed in _libraries(root, [*programs, *(m for m in modules if m.suffix == ".so")]):
        _copy(root, needed, stage)
    (stage / "usr/bin/python3").symlink_to(python.name)
    if shell.exists():
        (stage / "usr/bin/sh").symlink_to(shell.name)
    for name in ("bin", "lib", "lib64"):
        if (root / "usr" / name).is_dir() and (root / name).is_symlink():
            (stage / name).symlink_to(f"usr/{name}")
    (stage / "tmp").mkdir()
    (stage / "tmp").chmod(0o1777)
    (stage / "etc").mkdir()
    for name, text in (("passwd", _USERS), ("group", _GROUPS)):
        (stage / "etc" / name).write_text(text)
        (stage / "etc" / name).chmod(0o644)


def _stage_engine(stage: Path, release: str, model_name: str) -> None:
    folder = stage / _ENGINE_DIR / "engine"
    folder.mkdir(parents=True)
    for module in sorted((Path(__file__).parent / "engine").glob("*.py")):
        shutil.copyfile(module, folder / module.name)
    (folder / "release.py").write_text(
        f'"""Written by lab/oci.py."""\n\n'
        f"VERSION = {release!r}\nDEFAULT_MODEL_NAME = {model_name!r}\n"
    )


def _copy(root: Path, file: Path, stage: Path) -> None:
    """Copy a file (what a link points to) to the same place, with a mode of two kinds only."""
    target = stage / file.relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
    target.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)


def _compile(root: Path, python: Path, stage: Path) -> None:
    """Byte code for all of it: a start under emulation takes seconds longer without.

    Unchecked, since the sources of a layer have no time worth comparing.
    """
    _run(
        root,
        python,
        *("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
        *("-s", str(stage), "-p", "/", str(stage)),
    )


def _modules(root: Path, python: Path) -> list[Path]:
    """Files of the standard library that the engine can need.

    Packages and extension modules as found loaded once the engine is imported; every module of
    a single file on top (1 MB packed), so that an import inside a function never fails.
    """
    script = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({_LEFT_OUT!r}))\n"
        f"sys.path.append({str(Path(__file__).parent)!r})\n"
        "import engine.__main__, engine.rank\n"
        f"import {', '.join(_LATE_MODULES)}\n"
        "files = {getattr(module, '__file__', None) for module in sys.modules.values()}\n"
        "print(*sorted(filter(None, files)), sep='\\n')\n"
    )
    library = root / "usr/lib" / python.name
    found = [Path(line) for line in _run(root, python, "-S", "-c", script).splitlines()]
    modules = [path for path in found if path.is_relative_to(library)]
    # Links lead out of the library: sitecustomize.py into /etc, settings of the distribution.
    single = [path for path in library.glob("*.py") if not path.is_symlink()]
    return sorted({*modules, *single})


def _libraries(root: Path, programs: Iterable[Path]) -> list[Path]:
    """The shared libraries that the programs need, and the loader."""
    found = {_loader(root)}
    for program in programs:
        for line in _load(root, "--list", str(program)).splitlines():
            place = line.partition("=>")[2].partition("(")[0].strip()
            if place.startswith(str(root)):
                found.add(Path(place))
    return sorted(found)


def _run(root: Path, python: Path, *arguments: str) -> str:
    """Run the tree's Python on this machine and return what it prints."""
    return _load(root, str(python), "-B", *arguments)


def _load(root: Path, *arguments: str) -> str:
    """Run a program of the tree through its own loader, with its own libraries."""
    loader = _loader(root)
    folders = [root / "usr/lib", *sorted((root / "usr/lib").glob("*-linux-gnu"))]
    try:
        done = subprocess.run(
            [str(loader), "--library-path", ":".join(map(str, folders)), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise ImageError(
            f"{loader} does not run here ({error.strerror}); "
            "a tree of this machine's architecture expected"
        ) from error
    if done.returncode != 0:
        raise ImageError(f"{arguments[0]} of {root} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
