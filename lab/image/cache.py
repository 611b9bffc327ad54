"""The guests' image, cached by the hash of what it is made from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.common.arch import Arch
from lab.common.errors import LabError
from lab.common.paths import LAB, REPOSITORY, LabHome
from lab.common.progress import say
from lab.image import basetree, disk, hostfiles, tree
from lab.image.basetree import BaseSpec
from lab.image.disk import DiskSpec
from lab.image.distro import guest_distro
from lab.image.tree import GUEST
from lab.stacks import model


@dataclass(frozen=True)
class Image:
    """A built image: its id (hash of its inputs), folder, and the package tree it came from."""

    id: str
    folder: Path
    tree: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk.raw"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"


def ensure(home: LabHome, arch: Arch) -> Image:
    """Return the image for the present inputs; build what is missing.

    Needs root for the build, through sudo where this program is not root. Raises LabError when
    a build step fails; its output is in ``build.log`` of the home.
    """
    tree = _ensure_tree(home, arch)
    image = wanted(home, arch)
    if image.disk.exists():
        return image
    say("image: disk from the package tree")
    draft = home.images / f"{image.id}.new"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    staging = home.root / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    hostfiles.write(home, staging / "hosts")
    for stack in model.SHARDS:
        model.write(staging / "models" / stack, stack)
    spec = DiskSpec(
        tree=str(tree),
        out=str(draft),
        hosts=str(staging / "hosts"),
        models=str(staging / "models"),
        public_key=hostfiles.public_key(home),
        owner_uid=os.getuid(),
        owner_gid=os.getgid(),
    )
    _as_root(home, "disk", asdict(spec))
    shutil.rmtree(staging)
    draft.rename(image.folder)
    return image


def wanted(home: LabHome, arch: Arch) -> Image:
    """The image for the present inputs, built or not."""
    base = _base_spec(home, arch)
    inputs = [
        Path(base.tree).name,
        hostfiles.public_key(home),
        hostfiles.digest(home),
        _files_digest([Path(disk.__file__), Path(model.__file__), *(GUEST / "root").rglob("*")]),
    ]
    name = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    return Image(name, home.images / name, Path(base.tree))


def _ensure_tree(home: LabHome, arch: Arch) -> Path:
    spec = _base_spec(home, arch)
    tree = Path(spec.tree)
    if not tree.exists():
        say(f"image: {spec.suite} packages with mmdebstrap (about 75 s on two cores)")
        _as_root(home, "base", asdict(spec))
    return tree


def _base_spec(home: LabHome, arch: Arch) -> BaseSpec:
    distro = guest_distro(arch.deb)
    code = _files_digest(
        [Path(basetree.__file__), Path(tree.__file__), *(GUEST / "kernel").iterdir()]
    )
    inputs = json.dumps([asdict(distro), arch.deb, code], sort_keys=True)
    name = "base-" + hashlib.sha256(inputs.encode()).hexdigest()[:16]
    return BaseSpec(
        suite=distro.suite,
        sources=list(distro.sources),
        packages=list(distro.packages),
        headers=distro.headers,
        aptopts=list(distro.aptopts),
        tree=str(home.images / name),
    )


def prune(home: LabHome, keep: Image | None) -> None:
    """Remove cached images and package trees, all but the given one; each takes over 1 GiB."""
    kept = {keep.folder.name, keep.tree.name, f"{keep.tree.name}.json"} if keep else set()
    for entry in home.images.iterdir():
        if entry.name in kept:
            continue
        if not entry.is_dir():
            entry.unlink()
        elif entry.name.startswith("base-"):
            _run_build(home, "remove", str(entry))
        else:
            shutil.rmtree(entry)


def _as_root(home: LabHome, job: str, spec: dict[str, object]) -> None:
    name = str(spec["tree"]) if job == "base" else str(home.root / job)
    path = Path(f"{name}.json")
    path.write_text(json.dumps(spec, indent=1))
    _run_build(home, job, str(path))


def _run_build(home: LabHome, *arguments: str) -> None:
    log = home.root / "build.log"
    command = [sys.executable, "-m", "lab.image.build", *arguments]
    if os.getuid() != 0:
        if shutil.which("sudo") is None:
            raise LabError("building the guests' image needs root; run `python -m lab up` as root")
        say("image: this step needs root and runs through sudo")
        command = ["sudo", *command]
    with log.open("ab") as output:
        done = subprocess.run(
            command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode != 0:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise LabError(
            f"building the guests' image ({arguments[0]}) failed with status {done.returncode}; "
            f"the whole output is in {log}, its end is:\n{last}"
        )


def _files_digest(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file():
            total.update(f"{path.relative_to(LAB)} {path.stat().st_mode & 0o111:o}\n".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
