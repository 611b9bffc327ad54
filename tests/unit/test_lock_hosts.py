"""A lock from full reads on the hosts: only when they and the revision agree in everything."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from lab.hub import Hub
from operations.job import Job
from operations.lock import settled as settle
from stacks.lock import hosts
from stacks.lock import hub as source
from stacks.schema import Lock, LockedModel
from tests.plan.made_job import made_job
from tests.plan.made_pair import cluster, dirty, locked
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


def settled(
    tmp_path: Path, hub: Hub, surveys: dict[str, Any], yes: bool = True
) -> tuple[Job, Path]:
    """Run the operation that compares what both hosts read and writes the lock of `lab`."""
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    wanted = cluster(lock_dir=str(tmp_path))
    job = made_job(wanted, [dirty(wanted, n, lab, dsf) for n in range(2)], lab, (lab, dsf))
    job.figures["survey"] = surveys
    words = {"job": job, "stack": lab, "model": ("lab/tiny", hub.repositories["lab/tiny"].main)}
    add_op(job.state, settle, host=job.hosts[0], yes=yes, **words)
    job.state.is_executing = True
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    return job, tmp_path / "lab.lock.yaml"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large to be downloaded for its hash begins at 1000 bytes here, not at 64 MiB."""
    monkeypatch.setattr(source, "SMALL_BYTES", 1000)


def test_the_lock_is_written_when_all_agree(tmp_path: Path, hub: Hub) -> None:
    """A mirror that publishes no SHA-256 of the weights: the hosts are the only source."""
    hub.publish("lab/tiny", {"config.json": b"{}\n", "one.safetensors": b"x" * 2000})
    hub.repositories["lab/tiny"].hashes = False
    config = {"size": 3, "sha256": hashlib.sha256(b"{}\n").hexdigest()}
    one = {"size": 2000, "sha256": GOOD}
    read = {"config.json": config, "one.safetensors": one}
    job, path = settled(tmp_path, hub, {"spark1": read, "spark2": read})
    assert job.problem is None
    made = Lock.model_validate(yaml.safe_load(path.read_text()))
    assert made.model.source == "hosts"
    assert {f.name: f.sha256 for f in made.model.files}["one.safetensors"] == GOOD
    assert job.stack is not None
    assert made.image == (job.stack.lock and job.stack.lock.image)


def test_one_host_that_differs_leaves_the_lock_as_it_is(tmp_path: Path, hub: Hub) -> None:
    hub.publish("lab/tiny", {"one.safetensors": b"x" * 2000})
    hub.repositories["lab/tiny"].hashes = False
    reads = {
        host: {"one.safetensors": {"size": 2000, "sha256": sha256}}
        for host, sha256 in (("spark1", GOOD), ("spark2", OTHER))
    }
    job, path = settled(tmp_path, hub, reads)
    assert job.problem is not None
    assert f"one.safetensors: {GOOD} on spark1, {OTHER} on spark2" in job.problem
    assert GOOD not in path.read_text()


def test_without_a_yes_and_a_terminal_nothing_is_written(tmp_path: Path, hub: Hub) -> None:
    hub.publish("lab/tiny", {"one.safetensors": b"x"})
    read = {"one.safetensors": {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}}
    job, path = settled(tmp_path, hub, {"spark1": read, "spark2": read}, yes=False)
    assert job.problem == "the lock of lab was not changed"
    assert "source" not in path.read_text()


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
