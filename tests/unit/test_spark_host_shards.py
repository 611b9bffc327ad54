"""Model files proven by a full read, and what that proof is worth later (field cases G)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import module

shards = module("shards")
LOCK = "a" * 64

Entry = dict[str, Any]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of twelve shards and a tokenizer; the records lie beside it."""
    monkeypatch.setattr(shards, "RECORDS", str(tmp_path / "records"))
    folder = tmp_path / "model"
    folder.mkdir()
    for number in range(12):
        (folder / f"model-{number:05d}.safetensors").write_bytes(bytes([number]) * 4096)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def manifest(folder: Path) -> list[Entry]:
    return [
        {
            "name": path.name,
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.iterdir())
    ]


def verify(folder: Path, entries: list[Entry], lock: str = LOCK) -> dict[str, Any]:
    answer: dict[str, Any] = shards.verify(str(folder), lock, entries, lambda *_: None)
    return answer


def state(folder: Path, lock: str = LOCK) -> str:
    (found,) = shards.section({"shards": [[str(folder), lock]]}).values()
    return str(found)


def flip(path: Path) -> None:
    """One other byte; size and modification time stay as they were."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_a_right_model_is_proven_and_stays_proven_without_another_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = manifest(model)
    assert state(model) == "unverified"
    answer = verify(model, entries)
    assert (answer["ok"], answer["faults"], answer["files"]) == (True, [], 13)
    assert answer["bytes"] == 12 * 4096 + 2
    monkeypatch.setattr(shards, "sha256", None)  # a read would fail now
    assert state(model) == "verified"


def test_g03_one_flipped_byte_with_size_and_time_kept_is_found_by_name(model: Path) -> None:
    entries = manifest(model)
    flip(model / "model-00007.safetensors")
    answer = verify(model, entries)
    assert answer["ok"] is False
    (fault,) = answer["faults"]
    assert fault.startswith("model-00007.safetensors: SHA-256 ")
    assert entries[7]["sha256"] in fault
    assert state(model) == "unverified"


def test_g09_a_byte_flipped_after_the_proof_voids_it(model: Path) -> None:
    entries = manifest(model)
    verify(model, entries)
    flip(model / "model-00003.safetensors")
    assert state(model) == "changed"
    assert verify(model, entries)["ok"] is False
    assert state(model) == "changed"


def test_a_file_that_changes_while_the_others_are_read_is_not_proven(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash was right at its turn; the record must hold what was read, not what is there now."""
    entries = manifest(model)
    real: Callable[[str], str] = shards.sha256
    first = model / "model-00000.safetensors"

    def slow(path: str) -> str:
        digest = real(path)
        if path.endswith("tokenizer.json"):
            flip(first)
        return digest

    monkeypatch.setattr(shards, "sha256", slow)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # one after the other, tokenizer last
    verify(model, entries)
    assert state(model) == "changed"


def test_a_file_that_changes_while_it_is_read_is_a_fault(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = manifest(model)
    real: Callable[[str], str] = shards.sha256

    def raced(path: str) -> str:
        digest = real(path)
        if path.endswith("00005.safetensors"):
            flip(Path(path))
        return digest

    monkeypatch.setattr(shards, "sha256", raced)
    assert verify(model, entries)["faults"] == [
        "model-00005.safetensors: changed while it was read"
    ]


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4000])


def missing(path: Path) -> None:
    path.unlink()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("../blobs/gone")


def folder_of_that_name(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (truncated, "4000 bytes found, 4096 expected"),
        (missing, "missing"),
        (dangling, "a dangling link"),
        (folder_of_that_name, "not a regular file"),
        (pipe, "not a regular file"),
        (loop, "cannot be read (Too many levels of symbolic links)"),
    ],
)
def test_each_way_of_not_being_the_file_is_named(
    model: Path, harm: Callable[[Path], None], said: str
) -> None:
    entries = manifest(model)
    verify(model, entries)
    harm(model / "model-00004.safetensors")
    assert state(model) == "changed"
    assert verify(model, entries)["faults"] == [f"model-00004.safetensors: {said}"]


def test_all_faults_of_a_model_come_in_one_pass(model: Path) -> None:
    entries = manifest(model)
    missing(model / "model-00001.safetensors")
    truncated(model / "model-00002.safetensors")
    flip(model / "model-00003.safetensors")
    (model / "model.safetensors").write_bytes(b"stray")
    names = [fault.split(":")[0] for fault in verify(model, entries)["faults"]]
    assert names == [
        "model-00001.safetensors",
        "model-00002.safetensors",
        "model-00003.safetensors",
        "model.safetensors",
    ]


def test_g07_a_stray_shard_or_a_folder_of_such_a_name_is_a_fault_and_voids_the_proof(
    model: Path,
) -> None:
    entries = manifest(model)
    verify(model, entries)
    (model / "x.safetensors").mkdir()
    assert state(model) == "changed"
    assert verify(model, entries)["faults"] == ["x.safetensors: not in the manifest"]
    (model / "x.safetensors").rmdir()
    assert state(model) == "verified"


def test_files_that_no_engine_loads_may_lie_beside_them(model: Path) -> None:
    entries = manifest(model)
    verify(model, entries)
    (model / "README.md").write_text("notes")
    assert state(model) == "verified"
    assert verify(model, entries)["ok"] is True


def test_g01_valid_links_into_a_cache_are_followed(model: Path, tmp_path: Path) -> None:
    entries = manifest(model)
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for path in list(model.iterdir()):
        shutil.move(path, blobs / path.name)
        path.symlink_to(blobs / path.name)
    assert verify(model, entries)["ok"] is True
    assert state(model) == "verified"
    flip(blobs / "model-00006.safetensors")
    assert state(model) == "changed"


def test_a_copy_in_place_of_a_proven_file_must_be_proven_again(model: Path) -> None:
    entries = manifest(model)
    verify(model, entries)
    path = model / "model-00002.safetensors"
    shutil.copy2(path, model / "copy")
    (model / "copy").replace(path)
    assert state(model) == "changed"
    assert verify(model, entries)["ok"] is True
    assert state(model) == "verified"


def test_a_proof_for_one_lock_is_none_for_another(model: Path) -> None:
    verify(model, manifest(model))
    assert state(model, "b" * 64) == "unverified"


def test_a_size_that_no_source_gives_leaves_the_hash_to_decide(model: Path) -> None:
    entries = [entry | {"size": None} for entry in manifest(model)]
    assert verify(model, entries)["ok"] is True
    assert state(model) == "verified"
    flip(model / "model-00000.safetensors")
    assert len(verify(model, entries)["faults"]) == 1


def test_a_directory_that_is_not_there_is_absent(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert state(nowhere) == "absent"
    assert verify(nowhere, [])["faults"] == [f"{nowhere}: no such directory"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"files": 5}', '{"files": [1]}'])
def test_a_damaged_record_proves_nothing(model: Path, text: str) -> None:
    verify(model, manifest(model))
    (record,) = Path(shards.RECORDS).iterdir()
    record.write_text(text)
    assert state(model) == "unverified"


def test_the_program_as_it_is_called_says_how_far_it_is(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(manifest(model))))
    assert shards.main(["verify", str(model), LOCK])["ok"] is True
    assert state(model) == "verified"


def test_g11_hashing_leaves_no_pages_behind(tmp_path: Path) -> None:
    """1 MiB would be the trace of a plain read; what was cached before goes as well."""
    fincore = shutil.which("fincore")
    filesystem = subprocess.run(
        ["stat", "--file-system", "--format=%T", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if fincore is None or filesystem in ("tmpfs", "overlayfs", "zfs"):
        pytest.skip(
            f"fincore: {fincore}, file system: {filesystem}: cached pages cannot be counted"
        )
    path = tmp_path / "shard"
    data = os.urandom(24 << 20)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    assert shards.sha256(str(path)) == hashlib.sha256(data).hexdigest()
    counted = subprocess.run(
        [fincore, "--noheadings", "--bytes", "--output", "RES", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(counted.stdout) < 1 << 20
