"""The lock file of a lab stack: which image and which bytes of the model are meant."""

from __future__ import annotations

import hashlib
from pathlib import Path

import yaml

from lab.stacks.model import REPOSITORIES, FileEntry
from lab.stacks.oci import ImageDigests


def revision(files: list[FileEntry]) -> str:
    """A revision id (40 hex) that changes with any byte of the model.

    The lab's models have no git history, so it is the SHA-1 of the manifest in the form of
    ``sha256sum``, sorted by name.
    """
    manifest = "".join(f"{f.sha256}  {f.name}\n" for f in sorted(files, key=lambda f: f.name))
    return hashlib.sha1(manifest.encode(), usedforsecurity=False).hexdigest()


def write(path: Path, stack: str, image: ImageDigests, files: list[FileEntry]) -> None:
    """Write the lock of `stack` (``lab`` or ``dsf-lab``) to `path`, replacing it at once."""
    lock = {
        "stack": stack,
        "image": {"index": image.index, "platforms": dict(sorted(image.platforms.items()))},
        "model": {
            "repository": REPOSITORIES[stack],
            "revision": revision(files),
            "files": [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in files],
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.write_text(yaml.safe_dump(lock, sort_keys=False, width=200))
    draft.replace(path)
