"""A tree of units and scripts that no manager speaks for: what its files say is what there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.on_host import module

holds, scopes, crontab = map(module, ("watchdogs.holds", "systemd.scopes", "watchdogs.crontab"))
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, text: str, mode: int = 0o644) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    return put


@pytest.fixture
def mentions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = module("watchdogs.mentions")
    monkeypatch.setattr(made, "OWN_FOLDERS", (str(tmp_path / "usr/local/bin"),))
    return made


@pytest.fixture
def starters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mentions: ModuleType) -> Any:
    made = module("watchdogs.starters")
    folders = (str(tmp_path / "etc"), str(tmp_path / "usr/lib"))
    monkeypatch.setattr(scopes, "UNIT_FOLDERS", folders)
    monkeypatch.setattr(made, "AT_FOLDERS", (str(tmp_path / "at"),))
    monkeypatch.setattr(holds, "RECORD", str(tmp_path / "held.json"))
    # No manager speaks for this tree: what the files say is what there is.
    monkeypatch.setattr(scopes, "manager", lambda *_: None)
    monkeypatch.setattr(scopes, "users", list)
    monkeypatch.setattr(holds.journal, "ROOT", str(tmp_path / "journal"))
    monkeypatch.setattr(crontab, "PLACES", crontab.places(str(tmp_path)))
    monkeypatch.setattr(made, "HOOKS", ())
    return made
