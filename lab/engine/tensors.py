"""Shards of a model: real safetensors, of which a rank keeps its slice of every tensor."""

from __future__ import annotations

import hashlib
import json
import operator
import os
import struct
from array import array
from dataclasses import dataclass, field
from pathlib import Path

_ITEM_BYTES = 4  # F32, the only type the lab's models use
_HEADER_LIMIT_BYTES = 100 * 1024 * 1024  # the format's own limit
_WINDOW = 8  # values of a tensor that one prompt looks at


class ModelError(Exception):
    """One sentence: which file, what was found, what was expected."""


@dataclass
class Held:
    """The values that this rank keeps, by tensor name."""

    values: dict[str, array[float]] = field(default_factory=dict)

    def partial(self, prompt: str) -> float:
        """This rank's part of the dot product that `prompt` asks for.

        The values are multiples of 1/128 and the keys small integers, so the sum over all ranks
        is exact and does not depend on how many ranks there are in between.
        """
        key = hashlib.sha256(prompt.encode()).digest()
        weights = [1 + byte % 16 for byte in key[:_WINDOW]]
        offset = int.from_bytes(key[_WINDOW : _WINDOW + 4], "big")
        total = 0.0
        for values in self.values.values():
            start = offset % max(1, len(values) - _WINDOW)
            total += sum(map(operator.mul, values[start : start + _WINDOW], weights))
        return total


def shards(model_path: Path) -> list[Path]:
    """The shard files that the model's index names, in order.

    Raises ModelError when the index cannot be read or a shard is absent.
    """
    index = model_path / "model.safetensors.index.json"
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        names = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: cannot be read as a safetensors index: {error}") from error
    absent = [name for name in names if not (model_path / name).is_file()]
    if absent or not names:
        raise ModelError(f"{model_path}: {len(absent)} of {len(names)} shards absent: {absent[:3]}")
    return [model_path / name for name in names]


def revision(model_path: Path) -> str:
    """What a rank tells the others about its model: a hash of its index and config."""
    found = hashlib.sha256()
    for name in ("model.safetensors.index.json", "config.json"):
        try:
            found.update((model_path / name).read_bytes())
        except OSError as error:
            raise ModelError(f"{model_path / name}: cannot be read: {error.strerror}") from error
    return found.hexdigest()[:40]


def max_model_len(model_path: Path) -> int:
    """Context length in tokens, from config.json."""
    try:
        return int(json.loads((model_path / "config.json").read_bytes())["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{model_path / 'config.json'}: no context length: {error}") from error


def load_shard(path: Path, rank: int, world: int, held: Held) -> None:
    """Read one shard and keep rank `rank`'s slice of each tensor in `held`.

    Raises ModelError for a file that is not whole: header outside it, offsets that do not fit
    the shapes or do not end where the file ends.
    """
    with path.open("rb") as shard:
        size = os.fstat(shard.fileno()).st_size
        header_bytes = _header_length(path, shard.read(8), size)
        try:
            header = json.loads(shard.read(header_bytes))
        except ValueError as error:
            raise ModelError(f"{path.name}: header is not JSON: {error}") from error
        data = shard.read()
    end = 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = _extent(path, name, tensor, end)
        if end > len(data):
            raise ModelError(f"{path.name}: {name} ends at {end}, file has {len(data)} bytes")
        items = (end - begin) // _ITEM_BYTES
        low, high = items * rank // world, items * (rank + 1) // world
        values = array("f")
        values.frombytes(data[begin + low * _ITEM_BYTES : begin + high * _ITEM_BYTES])
        held.values[name] = values
    if end != len(data):
        raise ModelError(f"{path.name}: {len(data) - end} bytes after the last tensor")


def _header_length(path: Path, prefix: bytes, size: int) -> int:
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
    if not 0 < length <= min(size - 8, _HEADER_LIMIT_BYTES):
        raise ModelError(f"{path.name}: header of {length} bytes in a file of {size} bytes")
    return int(length)


def _extent(path: Path, name: str, tensor: object, previous_end: int) -> tuple[int, int]:
    """Begin and end of a tensor in the data part, checked against its type and shape."""
    try:
        dtype, shape = tensor["dtype"], tensor["shape"]  # type: ignore[index]
        begin, end = tensor["data_offsets"]  # type: ignore[index]
        items = 1
        for dimension in shape:
            items *= dimension
        fits = dtype == "F32" and begin == previous_end and end - begin == items * _ITEM_BYTES
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path.name}: {name}: broken header entry: {error!r}") from error
    if not fits:
        raise ModelError(
            f"{path.name}: {name}: {dtype} {shape} at [{begin}, {end}] found, "
            f"F32 from {previous_end} expected"
        )
    return begin, end
