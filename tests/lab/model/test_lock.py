"""A lock from what the hosts have, where the Hub says names and sizes and no hash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.services import hub
from lab.services.hub import Blob, Hub, Repository
from lab.stacks import model
from tests.running_lab import HOSTS, Run, job, lab, on, ssh_config

pytestmark = pytest.mark.long

FOLDER = "/srv/models/lab"
SHARD = "model-00077-of-00120.safetensors"
CONTAINERS = "docker ps --all --no-trunc --format '{{.ID}} {{.State}}'"


@pytest.fixture
def path() -> Iterator[Path]:
    """The lab's lock of its stack; whatever a test makes of it, the lab has its own again."""
    found = Path(ssh_config()).parent / "locks" / "lab.lock.yaml"
    text = found.read_text()
    yield found
    found.write_text(text)


def model_of(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text())["model"])


def hashes(path: Path) -> dict[str, str]:
    return {one["name"]: one["sha256"] for one in model_of(path)["files"]}


@pytest.fixture
def silent_hub(tmp_path: Path, path: Path) -> Iterator[Hub]:
    """The lab's model at its locked revision, by a Hub that has no hash of a weight."""
    model.write(tmp_path / "published", "lab")
    files = {one.name: Blob(one) for one in (tmp_path / "published").iterdir()}
    found = model_of(path)
    with Hub(hub.PORT) as made:
        repository = Repository({found["revision"]: files}, found["revision"], hashes=False)
        made.repositories[found["repository"]] = repository
        yield made


def test_hosts_that_agree_make_a_lock_and_one_that_differs_is_named(
    tmp_path: Path, path: Path, silent_hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", silent_hub.url)
    lab("restore", "fresh")
    before = [on(host, CONTAINERS) for host in HOSTS]
    known, wanted_hashes = model_of(path), hashes(path)
    path.unlink()
    wanted = (f"model={known['repository']}", f"revision={known['revision']}")

    def locks(*words: str) -> Run:
        return job("lock", tmp_path / "state", *(w for word in words for w in ("--data", word)))

    unasked = locks(*wanted)  # nobody at a terminal, and no yes=yes
    assert unasked.status == 1
    assert "yes=yes" in unasked.text
    assert not path.exists()

    first = locks(*wanted, "yes=yes")
    assert first.status == 0, first.text
    assert hashes(path) == wanted_hashes
    assert model_of(path)["source"] == "hosts"
    text = path.read_text()
    assert locks("yes=yes").status == 0
    assert path.read_text() == text

    on("spark2", f"printf x | dd of={FOLDER}/{SHARD} bs=1 seek=99 conv=notrunc status=none")
    differs = locks("yes=yes")
    assert differs.status == 1
    assert SHARD in differs.text
    assert "Traceback" not in differs.text
    assert path.read_text() == text
    assert [on(host, CONTAINERS) for host in HOSTS] == before
