"""What several unit tests begin from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from hypothesis import settings

from lab.services.hub import Hub
from tests.unit.on_host import module

# A busy machine is no reason to fail: nothing here is about time.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the host's files; the journal lies beside it."""
    monkeypatch.setattr(module("run.journal"), "ROOT", str(tmp_path / "lib" / "journal"))
    monkeypatch.setattr(module("systemd.links"), "FOLDERS", ())
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


def point_client_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As HF_ENDPOINT does, which the client reads when it is imported."""
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as running:
        point_client_at(running.url, monkeypatch)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running
