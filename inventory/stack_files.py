"""Which stacks there are, by the names of their files. What stands in them is read by `stacks`."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "files" / "stacks"
LOCK_SUFFIX = ".lock.yaml"


def names(folder: Path = FOLDER) -> list[str]:
    """The stacks of a folder, sorted."""
    files = (path.name for path in folder.glob("*.yaml"))
    return sorted(name.removesuffix(".yaml") for name in files if not name.endswith(LOCK_SUFFIX))
