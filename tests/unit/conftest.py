"""What several unit tests of the on-host program begin from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.on_host import module


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the host's files; the journal lies beside it."""
    monkeypatch.setattr(module("journal"), "ROOT", str(tmp_path / "lib" / "journal"))
    monkeypatch.setattr(module("links"), "FOLDERS", ())
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder
