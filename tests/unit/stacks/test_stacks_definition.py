"""Stack definitions and locks: the shipped ones, and what is said of wrong ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.stacks import locks
from lab.stacks.model import FileEntry
from lab.stacks.oci import ImageDigests
from stacks import definition
from stacks.definition import StackError

SHIPPED = definition.FOLDER
HEX = "0123456789abcdef" * 4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stacks of its own, with the lab's two definitions in it."""
    for name in ("lab", "dsf-lab"):
        text = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8")
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(definition, "FOLDER", tmp_path)
    return tmp_path


def change(folder: Path, **keys: Any) -> None:
    """Put `keys` into the definition of lab; None takes a key out."""
    path = folder / "lab.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8")) | keys
    data = {key: value for key, value in data.items() if value is not None}
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")


def lock(name: str, *, index: str | None = f"sha256:{HEX}", sha256: str | None = HEX) -> str:
    return yaml.safe_dump(
        {
            "stack": name,
            "image": {"index": index, "platforms": {}},
            "model": {
                "repository": "lab/tiny",
                "revision": HEX[:40],
                "files": [
                    {"name": "config.json", "size": 2, "sha256": HEX},
                    {"name": "model-00001-of-00001.safetensors", "size": 9, "sha256": sha256},
                ],
            },
        }
    )


def mistakes(folder: Path, name: str, lock_dir: Path | None = None) -> list[str]:
    with pytest.raises(StackError) as caught:
        definition.load(name, lock_dir)
    return [line.replace(f"{folder}/", "") for line in caught.value.lines]


def test_the_shipped_stacks_load() -> None:
    assert definition.names() == ["dsf-0731", "dsf-lab", "glm53-sglang-nvfp4", "lab"]
    for name in definition.names():
        assert definition.load(name).name == name


def test_the_default_stack_is_unlocked_because_no_hash_of_a_shard_is_published() -> None:
    stack = definition.load("glm53-sglang-nvfp4")
    assert stack.unlocked == [
        "model LibertAIDAI/GLM-5.3-Flash-NVFP4: 120 of 127 files have no SHA-256 "
        "(model-00001-of-00120.safetensors and 119 more)"
    ]
    assert stack.lock is not None
    shards = [f for f in stack.lock.model.files if f.name.endswith(".safetensors")]
    assert [shard.name for shard in shards] == [
        f"model-{number:05d}-of-00120.safetensors" for number in range(1, 121)
    ]
    assert {(shard.size, shard.sha256) for shard in shards} == {(None, None)}
    assert stack.image_reference.endswith(
        "@sha256:f9ac60ba4071f8acd64f0f3c074aca308f6d659405fee46fc8031489a1e8b19b"
    )


def test_without_a_lock_a_stack_says_so_and_names_no_digest(folder: Path) -> None:
    stack = definition.load("lab")
    assert stack.unlocked == [
        "stack lab has no lock file (lab.lock.yaml): "
        "the image digest and the hashes of the model files are unknown"
    ]
    assert stack.image_reference == "10.0.2.100:5000/lab-engine"


def test_a_full_lock_locks_and_pins_the_image(folder: Path) -> None:
    (folder / "lab.lock.yaml").write_text(lock("lab"), encoding="utf-8")
    stack = definition.load("lab")
    assert stack.unlocked == []
    assert stack.image_reference == f"10.0.2.100:5000/lab-engine@sha256:{HEX}"


def test_each_gap_of_a_lock_is_a_sentence(folder: Path) -> None:
    (folder / "lab.lock.yaml").write_text(lock("lab", index=None, sha256=None), encoding="utf-8")
    assert definition.load("lab").unlocked == [
        "image 10.0.2.100:5000/lab-engine has no digest",
        "model lab/tiny: 1 of 2 files have no SHA-256 (model-00001-of-00001.safetensors)",
    ]


def test_the_lock_folder_goes_before_the_shipped_lock(folder: Path, tmp_path: Path) -> None:
    lock_dir = tmp_path / "locks"
    lock_dir.mkdir()
    (folder / "lab.lock.yaml").write_text(lock("lab", index=None), encoding="utf-8")
    (lock_dir / "lab.lock.yaml").write_text(lock("lab"), encoding="utf-8")
    assert definition.load("lab").unlocked != []
    assert definition.load("lab", lock_dir).unlocked == []


def test_the_lab_writes_locks_that_lock(folder: Path, tmp_path: Path) -> None:
    files = [FileEntry("config.json", 2, HEX)]
    digests = ImageDigests(f"sha256:{HEX}", {"linux/amd64": f"sha256:{HEX[::-1]}"})
    for name in ("lab", "dsf-lab"):
        locks.write(tmp_path / "locks" / f"{name}.lock.yaml", name, digests, files)
        assert definition.load(name, tmp_path / "locks").unlocked == []


@pytest.mark.parametrize("name", definition.names())
def test_a_progress_pattern_has_the_one_group_that_counts(name: str) -> None:
    log = definition.load(name).log
    assert [re.compile(pattern).groups for pattern in log.progress] == [1] * len(log.progress)


@pytest.mark.parametrize("name", ["lab", "dsf-lab"])
def test_the_lab_engines_lines_are_progress(name: str) -> None:
    line = "2026-01-01 00:00:00 [rank 0] loading shard 17/120 model-00017-of-00120.safetensors"
    (pattern,) = definition.load(name).log.progress
    found = re.search(pattern, line)
    assert found is not None
    assert found[1] == "17"


def test_an_unknown_stack_is_refused_with_the_known_ones(folder: Path) -> None:
    assert mistakes(folder, "../lab") == ["stack '../lab' found; dsf-lab, lab allowed"]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"launcher": "podman"}, "launcher: 'podman' found; run or compose allowed"),
        ({"container": None}, "container: missing; launcher run needs it"),
        ({"name": "lap"}, "name: 'lap' found; 'lab', as in the file's name, expected"),
        (
            {"compose": {"project": "a", "directory": "/a", "file": "b", "container": "c"}},
            "compose: found; it belongs to launcher compose, not run",
        ),
        (
            {"env": {"NCCL_NVLS_ENABLE": 0}},
            "env.NCCL_NVLS_ENABLE: 0 found; texts (numbers in quotes) allowed",
        ),
        (
            {"image": {"repository": "a/b:latest"}},
            "image.repository: 'a/b:latest' found; "
            "an image repository without tag or digest allowed",
        ),
        (
            {"model": {"directory": "-rf"}},
            "model.directory: '-rf' found; a path below model_dir allowed",
        ),
        (
            {"memory": {"floor_mb": 200}},
            "memory.floor_mb: unknown key; did you mean floor_mib?",
        ),
        (
            {"command": ["--rank={{ rank"]},
            "command[0]: '--rank={{ rank' found; placeholder syntax: "
            "unexpected end of template, expected 'end of print statement'.",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_in_a_definition_is_one_line(
    folder: Path, keys: dict[str, Any], line: str
) -> None:
    change(folder, **keys)
    (found,) = mistakes(folder, "lab")
    place, _, said = found.partition(": ")
    assert place.startswith("lab.yaml:")
    assert said == line


def test_definition_and_lock_are_complained_of_together(folder: Path) -> None:
    change(folder, launcher="podman")
    wrong = lock("dsf-lab").replace("revision: ", "revision: x")
    (folder / "lab.lock.yaml").write_text(wrong, encoding="utf-8")
    found = [line.partition(":")[0] for line in mistakes(folder, "lab")]
    assert found == ["lab.yaml", "lab.lock.yaml", "lab.lock.yaml"]


def with_name(name: str, text: str = "config.json") -> str:
    return lock("lab").replace(f"name: {text}", f"name: {json.dumps(name)}")


@pytest.mark.parametrize("name", ["sub/a b (1).png", "模型.md", "what's [this] = 'it'?.md", "~x"])
def test_a_file_of_a_model_may_be_named_as_its_repository_likes(folder: Path, name: str) -> None:
    (folder / "lab.lock.yaml").write_text(with_name(name), encoding="utf-8")
    found = definition.load("lab").lock
    assert found is not None
    assert found.model.files[0].name == name


@pytest.mark.parametrize(
    "name", ["../config.json", "a/../b", "/etc/passwd", "a//b", "a\nb", "", "a/"]
)
def test_a_name_that_leads_elsewhere_is_refused(folder: Path, name: str) -> None:
    (folder / "lab.lock.yaml").write_text(with_name(name), encoding="utf-8")
    (line,) = mistakes(folder, "lab")
    assert "model.files[0].name: " in line


@pytest.mark.parametrize(
    "name", ["a b", "../x", "a/b/c", "https://hub/a/b", "a--b/c", "", "a/b.git"]
)
def test_a_repository_that_the_hub_cannot_have_is_refused(folder: Path, name: str) -> None:
    """Before a run: the Hub's own client would end the fetch with a traceback."""
    text = lock("lab").replace("repository: lab/tiny", f"repository: {json.dumps(name)}")
    (folder / "lab.lock.yaml").write_text(text, encoding="utf-8")
    (line,) = mistakes(folder, "lab")
    assert "model.repository: " in line
    assert "a model of the Hub, such as ORG/NAME" in line


def test_a_file_that_is_in_the_lock_twice_is_named(folder: Path) -> None:
    """Two hashes for one name: each fetch would undo the one before."""
    twice = with_name("config.json", "model-00001-of-00001.safetensors")
    (folder / "lab.lock.yaml").write_text(twice, encoding="utf-8")
    (line,) = mistakes(folder, "lab")
    assert line.endswith("config.json is there twice; each file once expected")
    upper = lock("lab").replace(HEX, HEX[:-1] + "A", 2)
    (folder / "lab.lock.yaml").write_text(upper, encoding="utf-8")
    assert all("lower case" in said or "hex" in said for said in mistakes(folder, "lab"))


def test_restarting_ranks_are_refused(folder: Path) -> None:
    data = yaml.safe_load((folder / "lab.yaml").read_text(encoding="utf-8"))
    change(folder, container=data["container"] | {"restart": "unless-stopped"})
    (found,) = mistakes(folder, "lab")
    assert "container.restart: 'unless-stopped' found; no (" in found


CACHE = "hub/models--lab--tiny"


def test_a_model_in_a_cache_is_the_snapshot_of_the_locked_revision(folder: Path) -> None:
    change(folder, model={"directory": CACHE})
    assert definition.load("lab").model_path == CACHE
    (folder / "lab.lock.yaml").write_text(lock("lab"), encoding="utf-8")
    assert definition.load("lab").model_path == f"{CACHE}/snapshots/{HEX[:40]}"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            {"directory": "models--lab--other"},
            "model.directory: a cache of lab/other found; one of lab/tiny, as locked, expected",
        ),
        (
            {"directory": CACHE, "links": "materialise"},
            "model.links: materialise found; a cache consists of links: follow expected",
        ),
        (
            {"directory": "lab", "links": "copy"},
            "model.links: 'copy' found; follow or materialise allowed",
        ),
    ],
)
def test_a_cache_that_cannot_be_the_model_is_refused(
    folder: Path, model: dict[str, str], said: str
) -> None:
    change(folder, model=model)
    (folder / "lab.lock.yaml").write_text(lock("lab"), encoding="utf-8")
    (found,) = mistakes(folder, "lab")
    assert found.endswith(said)
