"""The lab's home: what `destroy` may remove is what the lab made, wherever the user put it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.common.paths import LabHome
from lab.pair import verbs


def test_destroy_leaves_and_names_what_the_lab_did_not_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = LabHome(tmp_path)
    home.make()
    (home.images / "an-image").mkdir()
    for name in ("state.json", "registry.log", "lock", "thesis.tex"):
        (tmp_path / name).write_text("{}")
    home.state_file.unlink()
    (tmp_path / "photos").mkdir()
    (tmp_path / "registry").mkdir()
    verbs.destroy(home, images=False)
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert left == ["images", "lock", "photos", "thesis.tex"]
    assert (home.images / "an-image").is_dir()
    told = capsys.readouterr()
    assert "not made by the lab: photos, thesis.tex" in told.out + told.err


def test_every_path_of_the_home_counts_as_made(tmp_path: Path) -> None:
    home = LabHome(tmp_path)
    home.make()
    assert {entry.name for entry in tmp_path.iterdir()} <= home.made
