"""Model directories of the two lab stacks: small, real safetensors, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# 120 is the shard count of GLM-5.3-Flash-NVFP4, the model of the write-ups; the old stack has
# fewer so that both fit a small guest and a start of it is quick.
SHARDS = {"lab": 120, "dsf-lab": 12}
REPOSITORIES = {"lab": "lab/tiny", "dsf-lab": "lab/tiny-old"}
MAX_MODEL_LEN = 4096

# Two F32 tensors of 32 KiB make a shard of about 64 KiB.
_SHAPES = {"self_attn.weight": (64, 128), "mlp.weight": (128, 64)}

# Multiples of 1/128 add up exactly in double precision, so a sum over ranks does not depend on
# the order of its terms.
_LEVELS = [(byte - 128) / 128 for byte in range(256)]

_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True)
class FileEntry:
    """One file of a model directory: name below it, size in bytes, SHA-256 in hex."""

    name: str
    size: int
    sha256: str


def write(directory: Path, stack: str) -> list[FileEntry]:
    """Write the model of a lab stack into `directory`; return an entry per file, by name.

    The bytes depend on the stack's name only. About 8 MiB for ``lab`` and 0.8 MiB for
    ``dsf-lab``. Raises ValueError when the stack is neither.
    """
    if stack not in SHARDS:
        raise ValueError(f"stack {stack!r} found; one of {', '.join(sorted(SHARDS))} expected")
    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, content in _files(stack):
        path = directory / name
        path.write_bytes(content)
        path.chmod(0o644)
        entries.append(FileEntry(name, len(content), hashlib.sha256(content).hexdigest()))
    return sorted(entries, key=lambda entry: entry.name)


def _files(stack: str) -> Iterator[tuple[str, bytes]]:
    count = SHARDS[stack]
    weight_map = {}
    tensor_bytes = 0
    for index in range(1, count + 1):
        name = f"model-{index:05d}-of-{count:05d}.safetensors"
        tensors = {
            f"model.layers.{index - 1}.{part}": (shape, _values(f"{stack}/{index}/{part}", shape))
            for part, shape in _SHAPES.items()
        }
        weight_map.update(dict.fromkeys(tensors, name))
        tensor_bytes += sum(len(data) for _, data in tensors.values())
        yield name, _safetensors(tensors)
    yield (
        "model.safetensors.index.json",
        _json({"metadata": {"total_size": tensor_bytes}, "weight_map": weight_map}),
    )
    yield "config.json", _json(_config(stack))
    yield "generation_config.json", _json({"do_sample": False, "eos_token_id": 0})
    yield "chat_template.jinja", _CHAT_TEMPLATE.encode()
    yield "tokenizer.json", _json(_tokenizer())


def _values(seed: str, shape: tuple[int, int]) -> bytes:
    raw = hashlib.shake_256(seed.encode()).digest(shape[0] * shape[1])
    return array("f", [_LEVELS[byte] for byte in raw]).tobytes()


def _safetensors(tensors: dict[str, tuple[tuple[int, int], bytes]]) -> bytes:
    """One safetensors file: u64 header length, JSON header padded to 8, tensor data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (shape, data) in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values())


def _config(stack: str) -> dict[str, object]:
    return {
        "architectures": ["LabForCausalLM"],
        "model_type": "lab",
        "name": stack,
        "max_position_embeddings": MAX_MODEL_LEN,
        "num_hidden_layers": SHARDS[stack],
        "torch_dtype": "float32",
    }


def _tokenizer() -> dict[str, object]:
    return {
        "version": "1.0",
        "added_tokens": [],
        "model": {
            "type": "WordLevel",
            "vocab": {"<eos>": 0, "<unk>": 1},
            "unk_token": "<unk>",
        },
    }


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
