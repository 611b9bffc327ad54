"""spark-host ranks: what is kept of containers that are about to be taken down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.on_host import module

ranks = module("launch.ranks")
DOCKER = """#!/bin/sh
case "$1" in
inspect) cat "$(dirname "$0")/$4.json" ;;
logs) echo "log of $4"; echo "and its errors" >&2 ;;
esac
"""


def test_every_compose_file_of_every_container_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stacks, one of two files, all of one name."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(ranks, "STATE", str(tmp_path / "state"))
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    files = {"vllm": ["a/compose.yaml", "b/compose.yaml"], "proxy": ["c/compose.yaml"]}
    odd = [tmp_path / "gone.yaml", tmp_path]  # a folder refuses to be read
    for name, paths in files.items():
        for path in paths:
            (tmp_path / path).parent.mkdir()
            (tmp_path / path).write_text(path)
        listed = ",".join(f"{tmp_path / path}" for path in [*map(Path, paths), *odd])
        labels = {"com.docker.compose.project.config_files": listed}
        (tmp_path / f"{name}.json").write_text(json.dumps([{"Config": {"Labels": labels}}]))

    answer = ranks.save("20261130", [*files])

    folder = Path(answer["folder"])
    assert answer["unread"] == [f"{tmp_path}: Is a directory"] * 2
    kept = {one.name: one.read_text() for one in folder.iterdir() if "compose" in one.name}
    assert sorted(kept.values()) == ["a/compose.yaml", "b/compose.yaml", "c/compose.yaml"]
    assert (folder / "vllm.log").read_text() == "log of vllm\nand its errors\n"
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o600}
