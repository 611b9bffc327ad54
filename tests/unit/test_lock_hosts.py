"""A lock from full reads on the hosts: only when they and the revision agree in everything."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from stacks.lock import hosts
from stacks.schema import LockedModel
from tests.unit.on_host import module

detached, proofs, run, survey = map(module, ("detached", "proofs", "run", "survey"))
GOOD, OTHER = "a" * 64, "b" * 64
REVISION = "1" * 40
FILES = [
    {"name": "config.json", "size": 3, "sha256": OTHER},
    {"name": "one.safetensors", "size": 9, "sha256": None},
]


def published() -> LockedModel:
    return LockedModel.model_validate(
        {"repository": "lab/tiny", "revision": REVISION, "source": "hub", "files": FILES}
    )


def read(**changes: dict[str, Any] | None) -> dict[str, Any]:
    """What one host has read; None takes a file away."""
    found = {
        "config.json": {"size": 3, "sha256": OTHER},
        "one.safetensors": {"size": 9, "sha256": GOOD},
    } | {name.replace("__", "."): change for name, change in changes.items()}
    return {name: one for name, one in found.items() if one}


def told(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    return hosts.disagreements({"spark1": first, "spark2": second}, published())


def test_hosts_that_agree_give_what_the_hub_does_not() -> None:
    assert told(read(), read()) == []
    made = hosts.locked({"spark1": read(), "spark2": read()}, published())
    assert (made.source, made.revision) == ("hosts", REVISION)
    assert [file.sha256 for file in made.files] == [OTHER, GOOD]


def test_two_hashes_of_a_file_are_named_with_their_hosts() -> None:
    assert told(read(), read(one__safetensors={"size": 9, "sha256": OTHER})) == [
        f"one.safetensors: {GOOD} on spark1, {OTHER} on spark2; the same on all hosts expected"
    ]


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"one__safetensors": None}, "spark2: one.safetensors: missing"),
        (
            {"one__safetensors": {"size": 8, "sha256": GOOD}},
            "spark2: one.safetensors: 8 bytes found, 9 in the revision",
        ),
        (
            {"config__json": {"size": 3, "sha256": GOOD}},
            f"spark2: config.json: {GOOD} found, {OTHER} in the revision",
        ),
        (
            {"stray__safetensors": {"size": 1, "sha256": GOOD}},
            f"spark2: stray.safetensors: not in revision {REVISION}",
        ),
    ],
)
def test_whatever_speaks_against_the_revision_is_one_sentence(
    second: dict[str, Any], sentence: str
) -> None:
    assert told(read(), read(**second)) == [sentence]


def test_the_same_wrong_bytes_on_both_hosts_are_still_wrong() -> None:
    wrong = read(config__json={"size": 3, "sha256": GOOD})
    assert len(told(wrong, wrong)) == 2


def test_a_readme_beside_the_model_is_nobodys_business() -> None:
    assert told(read(), read(README__md={"size": 1, "sha256": GOOD})) == []


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(proofs, "RECORDS", str(tmp_path / "records"))
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / ".cache").mkdir()
    for name in (".gitattributes", "config.json", "one.safetensors", "sub/more.json", ".cache/x"):
        (folder / name).write_bytes(name.encode() * 1000)
    return folder


def surveyed(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = survey.survey({"directory": str(folder)}, detached.Count("read"))
    return found


def test_a_survey_reads_all_that_is_the_models(model: Path) -> None:
    found = surveyed(model)
    assert sorted(found["files"]) == [
        ".gitattributes",
        "config.json",
        "one.safetensors",
        "sub/more.json",
    ]
    one = (model / "one.safetensors").read_bytes()
    assert found["files"]["one.safetensors"] == {
        "size": len(one),
        "sha256": hashlib.sha256(one).hexdigest(),
    }
    assert found["faults"] == []


def test_a_dangling_link_is_a_fault_by_name(model: Path) -> None:
    (model / "two.safetensors").symlink_to("nowhere")
    (fault,) = surveyed(model)["faults"]
    assert fault.startswith("two.safetensors: ")


def test_a_survey_does_not_believe_earlier_reads(model: Path) -> None:
    first = surveyed(model)
    assert surveyed(model)["bytes"] == first["bytes"] > 0


def test_no_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(run.Failed, match="no such directory"):
        surveyed(tmp_path / "none")
