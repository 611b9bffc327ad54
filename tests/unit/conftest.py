"""What several unit tests of the on-host program begin from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.unit.on_host import module

# A busy machine is no reason to fail: nothing here is about time.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the host's files; the journal lies beside it."""
    monkeypatch.setattr(module("journal"), "ROOT", str(tmp_path / "lib" / "journal"))
    monkeypatch.setattr(module("links"), "FOLDERS", ())
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder
