"""Model files proven by a full read, and what that proof is worth later (field cases G)."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import Cut, module

shards, proofs, reading, detached = map(
    module, ("model.shards", "model.proofs", "model.reading", "run.detached")
)
LOCK = "a" * 64

Entry = dict[str, Any]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of twelve shards and a tokenizer; the records lie beside it."""
    monkeypatch.setattr(proofs, "RECORDS", str(tmp_path / "records"))
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


def request(folder: Path, entries: list[Entry], **changes: Any) -> dict[str, Any]:
    return {
        "directory": str(folder),
        "lock": LOCK,
        "entries": entries,
        "full": False,
        "links": "follow",
        "mount": None,
    } | changes


def verify(folder: Path, entries: list[Entry], **changes: Any) -> dict[str, Any]:
    asked = request(folder, entries, **changes)
    answer: dict[str, Any] = shards.verify(asked, detached.Count("read"))
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
    monkeypatch.setattr(reading, "sha256", None)  # a read would fail now
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
    real: Callable[..., str] = reading.sha256
    first = model / "model-00000.safetensors"

    def slow(path: str, count: Any) -> str:
        digest = real(path, count)
        if path.endswith("tokenizer.json"):
            flip(first)
        return digest

    monkeypatch.setattr(reading, "sha256", slow)
    monkeypatch.setattr(reading, "workers", lambda: 1)  # one after the other, tokenizer last
    verify(model, entries)
    assert state(model) == "changed"


def test_a_file_that_changes_while_it_is_read_is_a_fault(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = manifest(model)
    real: Callable[..., str] = reading.sha256

    def raced(path: str, count: Any) -> str:
        digest = real(path, count)
        if path.endswith("00005.safetensors"):
            flip(Path(path))
        return digest

    monkeypatch.setattr(reading, "sha256", raced)
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
    (record,) = Path(proofs.RECORDS).glob("*.json")
    record.write_text(text)
    assert state(model) == "unverified"


@pytest.mark.parametrize("stop", [0, 1, 7, 12])
def test_a_read_that_was_cut_off_goes_on_where_it_stopped(
    model: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    entries, real = manifest(model), reading.sha256
    reads: list[str] = []

    def cut(path: str, count: Any) -> str:
        if len(reads) == stop:
            raise Cut
        reads.append(path)
        return str(real(path, count))

    monkeypatch.setattr(reading, "workers", lambda: 1)
    monkeypatch.setattr(reading, "sha256", cut)
    with pytest.raises(Cut):
        verify(model, entries)
    monkeypatch.setattr(reading, "sha256", real)
    answer = verify(model, entries)
    assert answer["ok"] is True
    assert answer["remembered_bytes"] == 4096 * stop
    assert answer["bytes"] == 12 * 4096 + 2 - 4096 * stop
    assert state(model) == "verified"


def test_what_was_found_wrong_is_not_read_again_to_say_so(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = manifest(model)
    flip(model / "model-00007.safetensors")
    first = verify(model, entries)
    monkeypatch.setattr(reading, "sha256", None)
    again = verify(model, entries)
    assert again["faults"] == first["faults"]
    assert (again["wrong"], again["bytes"]) == (["model-00007.safetensors"], 0)


def test_g09_full_reads_everything_whatever_was_proven(model: Path) -> None:
    entries = manifest(model)
    verify(model, entries)
    path = model / "model-00003.safetensors"
    flip(path)
    # A disk that returns other bytes leaves no trace in the inode: so the proof is made to fit.
    (record,) = Path(proofs.RECORDS).glob("*.proofs")
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    for line in lines:
        if line["name"] == path.name:
            line["identity"] = proofs.identity(str(path))
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert verify(model, entries)["ok"] is True
    answer = verify(model, entries, full=True)
    assert (answer["wrong"], answer["remembered_bytes"]) == ([path.name], 0)


def test_a_line_of_a_proof_that_was_cut_off_proves_nothing(model: Path) -> None:
    entries = manifest(model)
    verify(model, entries)
    (record,) = Path(proofs.RECORDS).glob("*.proofs")
    record.write_bytes(record.read_bytes()[:-9])
    assert verify(model, entries)["bytes"] in (2, 4096)


INDEX = "model.safetensors.index.json"


def test_g07_an_index_that_names_what_the_manifest_has_not_is_a_fault(model: Path) -> None:
    entries = manifest(model)
    names = {f"layer.{n}": f"model-{n:05d}.safetensors" for n in range(15)}
    (model / INDEX).write_text(json.dumps({"weight_map": names}))
    answer = verify(model, entries)
    assert answer["faults"] == [
        f"{INDEX}: not in the manifest, and names what the manifest has not: "
        "model-00012.safetensors, model-00013.safetensors, model-00014.safetensors"
    ]
    assert (answer["wrong"], answer["extra"]) == ([], [INDEX])


def test_a_misleading_index_that_comes_after_the_proof_voids_it(model: Path) -> None:
    entries = manifest(model)
    verify(model, entries)
    stray = model / "other.safetensors.index.json"
    stray.write_text(json.dumps({"weight_map": {"a": "model-00001.safetensors"}}))
    assert state(model) == "verified"  # it says nothing that the manifest does not
    stray.write_text(json.dumps({"weight_map": {"a": "elsewhere.safetensors"}}))
    assert state(model) == "changed"
    assert verify(model, entries)["extra"] == [stray.name]
    stray.unlink()
    os.mkfifo(stray)
    assert state(model) == "changed"
    assert verify(model, entries)["extra"] == [stray.name]


def test_an_index_of_the_lock_that_contradicts_the_lock_is_said_and_not_fetched(
    model: Path,
) -> None:
    (model / INDEX).write_text(json.dumps({"weight_map": {"a": "model-00099.safetensors"}}))
    answer = verify(model, manifest(model))
    assert answer["faults"] == [
        f"{INDEX}: names what the manifest has not: model-00099.safetensors"
    ]
    assert (answer["wrong"], answer["extra"]) == ([], [])


def test_a_link_is_a_fault_where_the_stack_needs_a_file_of_its_own(
    model: Path, tmp_path: Path
) -> None:
    entries, path = manifest(model), model / "model-00005.safetensors"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert verify(model, entries)["ok"] is True
    assert verify(model, entries, links="materialise")["faults"] == [
        "model-00005.safetensors: a link; the stack needs a file of its own"
    ]


def test_a_link_turned_to_the_same_bytes_elsewhere_voids_the_proof(
    model: Path, tmp_path: Path
) -> None:
    entries, path = manifest(model), model / "model-00005.safetensors"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to("../elsewhere")
    verify(model, entries)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")  # absolute: dangles in a container
    assert state(model) == "changed"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../blobs/x", None),
        ("/models/blobs/x", None),
        ("{top}/blobs/x", "it leads to {top}/blobs/x, which the container does not have"),
        ("../../outside", "it leads out of {top}, which is all that the container sees"),
    ],
)
def test_a_link_that_dangles_inside_the_container_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str | None
) -> None:
    monkeypatch.setattr(proofs, "RECORDS", str(tmp_path / "records"))
    top = tmp_path / "models"
    (top / "blobs").mkdir(parents=True)
    (top / "lab").mkdir()
    for path in (top / "blobs" / "x", tmp_path / "outside"):
        path.write_text("bytes")
    (top / "lab" / "a.json").symlink_to(target.format(top=top))
    if target.startswith("/models"):
        entry = {"name": "a.json", "size": 5, "sha256": hashlib.sha256(b"bytes").hexdigest()}
    else:
        (entry,) = manifest(top / "lab")
    mount = {"outside": str(top), "inside": "/models"}
    answer = verify(top / "lab", [entry], mount=mount)
    if target.startswith("/models"):  # right in the container, dangling out here
        said = "a dangling link"
        assert answer["faults"] == [f"a.json: {said}"]
    elif said is None:
        assert answer["ok"] is True
    else:
        assert answer["faults"] == [
            f"a.json: the container does not find it: {said.format(top=top)}"
        ]


def cache(model: Path, top: Path, revision: str) -> Path:
    """The model as `hf download` leaves it in a cache; returns the snapshot."""
    repository = top / "models--lab--tiny"
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir(exist_ok=True)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(revision)
    for path in model.iterdir():
        blob = repository / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copy(path, blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob.name}")
    return snapshot


def test_g01_only_the_pinned_snapshot_counts_and_the_rest_is_listed_with_its_size(
    model: Path, tmp_path: Path
) -> None:
    entries = manifest(model)
    old = cache(model, tmp_path, "0" * 40)
    flip(model / "model-00001.safetensors")
    entries = manifest(model)
    new = cache(model, tmp_path, "1" * 40)
    (new.parents[1] / "blobs" / "abc.incomplete").write_bytes(b"x" * 77)
    assert verify(new, entries)["ok"] is True
    (new / "model-00004.safetensors").unlink()
    (new / "model-00004.safetensors").symlink_to("../../blobs/gone")
    answer = verify(new, entries)
    assert answer["faults"] == ["model-00004.safetensors: a dangling link"]
    told = {Path(one["path"]).name: (one["what"], one["bytes"]) for one in answer["left"]}
    assert told == {
        "abc.incomplete": ("unfinished download", 77),
        # What only the other revision has: the shard of before the flip, and the unlinked one.
        "0" * 40: ("other revision", 2 * 4096),
        "main": (f"ref to {'1' * 12}", 0),
    }
    assert old.is_dir()


@pytest.mark.parametrize("size", [4096, None])
def test_a_git_lfs_pointer_is_called_one(model: Path, size: int | None) -> None:
    """Of a clone without git-lfs; the shipped lock has no sizes to tell it by."""
    entries = manifest(model)
    entries[3]["size"] = size
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{LOCK}\nsize 4096\n"
    (model / entries[3]["name"]).write_text(text)
    answer = verify(model, entries)
    assert answer["faults"] == [
        f"{entries[3]['name']}: a git-lfs pointer of {len(text)} bytes found, "
        "the file itself expected"
    ]
    assert answer["wrong"] == [entries[3]["name"]]


def test_unfinished_downloads_in_folders_below_are_listed(model: Path) -> None:
    for name in (
        ".cache/huggingface/download/original/x.abc.incomplete",
        "original/y.spark-converge-part",
    ):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_bytes(b"12345")
    found = module("model.place").leftovers(str(model))
    assert [(Path(one["path"]).name, one["bytes"]) for one in found] == [
        ("y.spark-converge-part", 5),
        ("x.abc.incomplete", 5),
    ]


def test_links_beside_a_model_are_not_searched(model: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "y.spark-converge-part").write_bytes(b"somebody's")
    (model / "data").symlink_to(tmp_path / "disk")
    assert module("model.place").leftovers(str(model)) == []


def test_a_name_that_no_terminal_shows_is_written_out(model: Path) -> None:
    """Else printing it ends the run; what is asked for later still has its own bytes."""
    entries = manifest(model)
    for name in (b"\xff.safetensors", b"note\n\xfe.txt"):
        Path(os.fsdecode(bytes(model) + b"/" + name)).write_bytes(b"x")
    answer = verify(model, entries)
    assert answer["faults"] == [r"\udcff.safetensors: not in the manifest"]
    assert answer["beside"] == [r"note\n\udcfe.txt"]
    assert answer["extra"] == ["\udcff.safetensors"]


def test_other_files_beside_the_model_are_told_and_no_fault(model: Path) -> None:
    entries = manifest(model)
    (model / "README.md").write_text("notes")
    answer = verify(model, entries)
    assert (answer["ok"], answer["beside"]) == (True, ["README.md"])


def test_no_more_is_read_at_a_time_than_free_memory_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(20)))
    for free, expected in ((1 << 40, 40), (reading.FLOOR_BYTES + (40 << 20), 10), (0, 1)):
        monkeypatch.setattr(reading, "free_bytes", lambda free=free: free)
        assert reading.workers() == expected


@pytest.mark.parametrize("first", [0, 1, 4095, 4096, 5000, (4 << 20) + 7, (9 << 20) + 12])
def test_a_file_is_read_from_any_byte_on(tmp_path: Path, first: int) -> None:
    path = tmp_path / "file"
    data = os.urandom((9 << 20) + 13)
    path.write_bytes(data)
    found = b"".join(bytes(block) for block in reading.blocks(str(path), first))
    assert found == data[first:]


@pytest.mark.parametrize("left", [0, 4096, (4 << 20) + 5000, (5 << 20) + 1])
def test_a_file_that_is_cut_while_it_is_read_comes_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    path, reads, real = tmp_path / "file", itertools.count(), reading.fill
    path.write_bytes(os.urandom(9 << 20))

    def counted(*words: Any) -> int:
        assert next(reads) < 10, "it is read again and again"
        filled: int = real(*words)
        return filled

    monkeypatch.setattr(reading, "fill", counted)
    blocks = reading.blocks(str(path))
    got = len(next(blocks))
    os.truncate(path, left)
    assert got + sum(map(len, blocks)) == max(got, left)


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
    assert reading.sha256(str(path)) == hashlib.sha256(data).hexdigest()
    counted = subprocess.run(
        [fincore, "--noheadings", "--bytes", "--output", "RES", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(counted.stdout) < 1 << 20
