"""The lab engine's two images: built, in the registry, and locked."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from lab.common.errors import LabError
from lab.common.paths import LAB, LabHome
from lab.common.progress import say
from lab.services import registry
from lab.stacks import locks, model, oci

# stack -> (version of the engine, name in the registry)
IMAGES = {"lab": ("new", "lab-engine"), "dsf-lab": ("old", "lab-engine-old")}


def ensure(home: LabHome, tree: Path) -> dict[str, oci.ImageDigests]:
    """Start the registry and see to both images in it and both lock files; digests by stack.

    + tree: the guests' package tree, where the images' python comes from
    """
    start_registry(home)
    memory = home.root / "engines.json"
    key = _inputs_digest(tree)
    if memory.exists():
        known = json.loads(memory.read_text())
        if known["key"] == key:
            return {stack: oci.ImageDigests(**d) for stack, d in known["digests"].items()}
    say("engine: images into the registry, lock files")
    digests = {stack: _push(home, tree, *image) for stack, image in IMAGES.items()}
    with tempfile.TemporaryDirectory() as folder:
        for stack, image in digests.items():
            files = model.write(Path(folder) / stack, stack)
            locks.write(home.locks / f"{stack}.lock.yaml", stack, image, files)
    content = {"key": key, "digests": {stack: asdict(image) for stack, image in digests.items()}}
    memory.write_text(json.dumps(content, indent=1))
    return digests


def start_registry(home: LabHome) -> None:
    """Start the registry where it does not run. Raises LabError when it cannot."""
    try:
        registry.start(home.root)
    except registry.RegistryError as error:
        raise LabError(str(error)) from error


def reference(stack: str, digests: dict[str, oci.ImageDigests]) -> str:
    """The image of a stack as a guest pulls it, by digest."""
    return f"{registry.GUEST_ADDRESS}/{IMAGES[stack][1]}@{digests[stack].index}"


def _push(home: LabHome, tree: Path, version: str, name: str) -> oci.ImageDigests:
    with tempfile.TemporaryDirectory(dir=home.root) as folder:
        try:
            return oci.push(oci.build(tree, version, Path(folder)), name)
        except oci.ImageError as error:
            raise LabError(str(error)) from error


def _inputs_digest(tree: Path) -> str:
    total = hashlib.sha256(tree.name.encode())
    names = ("oci.py", "oci_layer.py", "model.py", "locks.py")
    sources = [*(LAB / "stacks" / name for name in names), *(LAB / "engine").rglob("*")]
    for path in sorted(sources):
        if path.is_file() and path.suffix != ".pyc":
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()
