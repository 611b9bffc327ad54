"""Models in folders of a user, who puts a link to the system in their place at the worst moment."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.services.hub import Hub
from tests.unit.on_host import just_before, module

aside, detached, fetch, journal, place, proofs = map(
    module,
    ("model.aside", "run.detached", "model.fetch", "run.journal", "model.place", "model.proofs"),
)
Failed = module("run.command").Failed
pytestmark = pytest.mark.skipif(bool(os.getuid()), reason="only root writes for somebody else")
OWNER = (65534, 65533)
REPOSITORY, REVISION = "lab/tiny", "1" * 40
SNAPSHOT = f"models--lab--tiny/snapshots/{REVISION}"
FILES = {"w.safetensors": b"w" * 9000, "deep/chat.jinja": b"{{ messages }}", "empty.txt": b""}
SHA256 = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
SECRET = b"of the system"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as made:
        made.publish(REPOSITORY, FILES)
        yield made


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between tries
    for name in ("fsync", "fdatasync"):  # hundreds of runs, and no power cut
        monkeypatch.setattr(os, name, lambda _: None)


def written(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def folders_in(top: Path) -> Path:
    """A home with models in it; beside it a folder of the system with the same names below."""
    models, system = top / "home" / "models", top / "system"
    written(models / "lab" / "w.safetensors", b"not the pinned ones")
    written(models / "lab" / "deep" / "chat.jinja", b"mine")
    written(models / "lab" / "stray.safetensors", b"mine")
    (models / SNAPSHOT).mkdir(parents=True)
    for name, data in FILES.items():
        blob = models / SNAPSHOT / "../../blobs" / SHA256[name]
        written(blob, data)
        for where in (
            *("lab/" + name, "lab/" + name + place.PART, f"{SNAPSHOT}/{name}"),
            f"models--lab--tiny/blobs/{SHA256[name]}",
        ):
            written(system / where, SECRET)
    written(system / "lab" / "stray.safetensors", SECRET)
    written(system / "lab" / aside.FOLDER / "stray.safetensors", SECRET)
    for path in (top / "home", *(top / "home").rglob("*")):
        os.chown(path, *OWNER)
    return models


def turn(models: Path) -> None:
    models.rename(models.parent / "moved")
    models.symlink_to(models.parent.parent / "system")


def bring(models: Path, hub: Hub, where: str, extra: tuple[str, ...] = ()) -> dict[str, Any]:
    revision = hub.repositories[REPOSITORY].main
    urls = {name: f"{hub.url}/{REPOSITORY}/resolve/{revision}/{name}" for name in FILES}
    request = {
        "directory": str(models / where),
        "lock": "a" * 64,
        "entries": [{"name": n, "size": len(d), "sha256": SHA256[n]} for n, d in FILES.items()],
        "extra": extra,
        "root": str(models),
        "repository": REPOSITORY,
        "revision": REVISION,
        "source": {"said": "the Hub", "urls": urls, "token": None},
    }
    answer: dict[str, Any] = fetch.fetch(request, detached.Count("brought"))
    return answer


def from_the_hub(models: Path, hub: Hub) -> None:
    for blob in (models / "models--lab--tiny" / "blobs").iterdir():
        blob.write_bytes(b"other bytes")
    assert len(bring(models, hub, "lab", ("stray.safetensors",))["brought"]) == len(FILES)


def linked(models: Path, hub: Hub) -> None:
    ways = bring(models, hub, "lab")["local"]
    assert set(ways) == set(FILES)
    assert set(ways.values()) <= {"hard link", "reflink"}


def copied(models: Path, hub: Hub) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "shared", lambda *_: None)
        assert set(bring(models, hub, "lab")["local"].values()) == {"copy"}


def cache_mended(models: Path, hub: Hub) -> None:
    (models / "models--lab--tiny" / "blobs" / SHA256["w.safetensors"]).write_bytes(b"wrong")
    answer = bring(models, hub, SNAPSHOT)
    assert (list(answer["brought"]), len(answer["local"])) == (["w.safetensors"], 2)


def given_back(models: Path, hub: Hub) -> None:
    del hub
    aside.keep(str(models / "lab"), "stray.safetensors", "")
    for entry in journal.entries():
        aside.give({**entry, "name": entry["name"]})


ACTS = [from_the_hub, linked, copied, cache_mended, given_back]


def seen(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """{path: (mode, owner, bytes)} of all below."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (info.st_mode, info.st_uid, data)
    return found


@pytest.mark.parametrize("act", ACTS)
def test_models_that_turn_into_a_link_under_way_lead_root_nowhere(
    disk: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub, act: Callable[[Path, Hub], None]
) -> None:
    """Before each single call that could follow it."""
    for number in itertools.count():
        models = folders_in(disk / str(number))
        system = disk / str(number) / "system"
        monkeypatch.setattr(proofs, "RECORDS", str(disk / str(number) / "records"))
        monkeypatch.setattr(journal, "ROOT", str(disk / str(number) / "lib" / "journal"))
        before = seen(system)
        with monkeypatch.context() as patch:
            just_before(patch, number, functools.partial(turn, models))
            with contextlib.suppress(Failed, OSError, AssertionError):
                act(models, hub)
        if not models.is_symlink():
            break
        assert seen(system) == before, f"at call {number}"
        got = seen(models.parent / "moved")
        assert not [path for path, one in got.items() if SECRET in one[2]], f"at call {number}"
    assert number > 3
    monkeypatch.undo()


def test_a_link_of_roots_own_to_a_users_folder_makes_it_no_folder_of_root(
    disk: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub
) -> None:
    """/models, which root made, in a home that can be turned under it; `sudo mkdir` in there."""
    for number in itertools.count():
        models = folders_in(disk / str(number))
        for path in (models, *models.rglob("*")):
            os.chown(path, 0, 0)
        system = disk / str(number) / "system"
        (disk / str(number) / "models").symlink_to(models)
        monkeypatch.setattr(proofs, "RECORDS", str(disk / str(number) / "records"))
        monkeypatch.setattr(journal, "ROOT", str(disk / str(number) / "lib" / "journal"))
        before = seen(system)
        with monkeypatch.context() as patch:
            just_before(patch, number, functools.partial(turn, models))
            with contextlib.suppress(Failed, OSError, AssertionError):
                linked(disk / str(number) / "models", hub)
        if not models.is_symlink():
            break
        assert seen(system) == before, f"at call {number}"
    assert number > 3


@pytest.mark.parametrize("act", ACTS)
def test_what_root_brings_into_a_users_models_is_that_users(
    disk: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub, act: Callable[[Path, Hub], None]
) -> None:
    monkeypatch.setattr(proofs, "RECORDS", str(disk / "records"))
    models = folders_in(disk)
    act(models, hub)
    owners = {str(p): (p.lstat().st_uid, p.lstat().st_gid) for p in models.rglob("*")}
    assert {path: owner for path, owner in owners.items() if owner != OWNER} == {}
    assert not list(models.rglob(f"*{place.PART}"))


@pytest.mark.parametrize("kind", ["hard link", "link", "folder", "pipe"])
def test_a_part_that_is_none_is_not_written_through(
    disk: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub, kind: str
) -> None:
    """A hard link is what a run leaves that ends between the link and its move into place."""
    monkeypatch.setattr(proofs, "RECORDS", str(disk / "records"))
    models, other = folders_in(disk), disk / "other"
    other.write_bytes(SECRET)
    part = models / "lab" / f"w.safetensors{place.PART}"
    make: dict[str, Callable[[], object]] = {
        "hard link": lambda: part.hardlink_to(other),
        "link": lambda: part.symlink_to(other),
        "folder": part.mkdir,
        "pipe": lambda: os.mkfifo(part),
    }
    make[kind]()
    for blob in (models / "models--lab--tiny" / "blobs").iterdir():
        blob.write_bytes(b"other bytes")
    answer = bring(models, hub, "lab")
    assert other.read_bytes() == SECRET
    if kind == "folder":
        (said,) = answer["failed"]
        assert said.endswith(f": {models}/lab/w.safetensors")
    else:
        assert answer["ok"] is True
        assert (models / "lab" / "w.safetensors").read_bytes() == FILES["w.safetensors"]


def test_a_file_that_turned_into_another_after_its_proof_is_not_brought(
    disk: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub
) -> None:
    """A link to a file of the system, put where the proven one was."""
    monkeypatch.setattr(proofs, "RECORDS", str(disk / "records"))
    models = folders_in(disk)
    real = fetch.Fetch.sha256_of

    def proven(self: Any, fd: int, source: str, name: str) -> Any:
        found = real(self, fd, source, name)
        Path(source).rename(f"{source}.was")
        Path(source).symlink_to(disk / "system" / "lab" / name)
        return found

    monkeypatch.setattr(fetch.Fetch, "sha256_of", proven)
    assert set(bring(models, hub, "lab")["local"]) == set(FILES)
    for name, data in FILES.items():
        assert (models / "lab" / name).read_bytes() == data
