"""The part of the image build that needs root, as a program of its own for sudo's sake."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lab.image.basetree import BaseSpec, build_base, customize_hook, setup_hook
from lab.image.disk import DiskSpec, build_disk
from lab.image.tree import remove_tree


def main(arguments: list[str]) -> None:
    """``base SPEC``, ``disk SPEC``, ``remove TREE``; from mmdebstrap ``hook SPEC WHEN TREE``."""
    job, target, *rest = arguments
    if job == "remove":
        remove_tree(Path(target))
        return
    spec = json.loads(Path(target).read_text())
    if job == "base":
        build_base(BaseSpec(**spec))
    elif job == "disk":
        build_disk(DiskSpec(**spec))
    elif rest[0] == "setup":
        setup_hook(Path(rest[1]))
    else:
        customize_hook(Path(rest[1]), spec["headers"])


if __name__ == "__main__":
    main(sys.argv[1:])
