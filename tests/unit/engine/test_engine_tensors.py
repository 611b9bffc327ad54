"""Reading of shards: what a rank keeps, and what it refuses."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.engine import tensors
from lab.stacks import model


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    model.write(tmp_path, "dsf-lab")
    return tmp_path


def _load(directory: Path, rank: int, world: int) -> tensors.Held:
    held = tensors.Held()
    for shard in tensors.shards(directory):
        tensors.load_shard(shard, rank, world, held)
    return held


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_hold_all_values_once(directory: Path, world: int) -> None:
    whole = _load(directory, 0, 1)
    parts = [_load(directory, rank, world) for rank in range(world)]
    assert len(whole.values) == 24
    for name, values in whole.values.items():
        joined = [value for part in parts for value in part.values[name]]
        assert joined == list(values)


def test_a_part_depends_on_prompt_and_rank(directory: Path) -> None:
    first, second = (_load(directory, rank, 2) for rank in (0, 1))
    assert first.partial("one") == first.partial("one")
    assert first.partial("one") != first.partial("another")
    assert first.partial("one") != second.partial("one")


def test_shards_come_in_order(directory: Path) -> None:
    names = [path.name for path in tensors.shards(directory)]
    assert names == [f"model-{n:05d}-of-00012.safetensors" for n in range(1, 13)]


def test_absent_shard_is_named(directory: Path) -> None:
    (directory / "model-00007-of-00012.safetensors").unlink()
    with pytest.raises(tensors.ModelError, match=r"1 of 12 shards absent.*00007"):
        tensors.shards(directory)


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {}}'])
def test_broken_index_is_one_sentence(directory: Path, index: str) -> None:
    (directory / "model.safetensors.index.json").write_text(index)
    with pytest.raises(tensors.ModelError, match=str(directory)):
        tensors.shards(directory)


def _shard(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _tensor(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


BROKEN: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "header of 0 bytes"),
    "header longer than file": (lambda: struct.pack("<Q", 99) + b"{}", "header of 99 bytes"),
    "header not JSON": (lambda: struct.pack("<Q", 2) + b"{x", "not JSON"),
    "entry without shape": (lambda: _shard({"a": {"dtype": "F32"}}, b""), "broken header entry"),
    "cut off": (lambda: _shard({"a": _tensor(0, 16, [4])}, bytes(15)), "ends at 16, file has 15"),
    "too long": (lambda: _shard({"a": _tensor(0, 16, [4])}, bytes(17)), "1 bytes after"),
    "shape of other size": (lambda: _shard({"a": _tensor(0, 16, [3])}, bytes(16)), "expected"),
    "other type": (lambda: _shard({"a": _tensor(0, 16, [8], "BF16")}, bytes(16)), "BF16"),
    "gap": (
        lambda: _shard({"a": _tensor(0, 8, [2]), "b": _tensor(12, 16, [1])}, bytes(16)),
        "from 8 expected",
    ),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_shard_is_one_sentence(
    tmp_path: Path, content: Callable[[], bytes], message: str
) -> None:
    path = tmp_path / "model-00001-of-00001.safetensors"
    path.write_bytes(content())
    with pytest.raises(tensors.ModelError, match=message) as caught:
        tensors.load_shard(path, 0, 2, tensors.Held())
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_revision_changes_with_the_index(directory: Path) -> None:
    before = tensors.revision(directory)
    index = directory / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("total_size", "total_bytes"))
    assert tensors.revision(directory) != before
