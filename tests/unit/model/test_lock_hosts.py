"""A lock from full reads on the hosts: only when they and the revision agree in everything."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops
from pyinfra.connectors.fake import FakeConnector

from facts.run.program import END
from lab.services.hub import Hub
from operations.model import lock
from operations.run.job import Here, Job, milestone
from stacks.lock import hosts
from stacks.lock import hub as source
from stacks.schema import Lock, LockedModel
from tests.plan.made_job import made_job
from tests.plan.made_pair import cluster, dirty, locked
from tests.unit.on_host import module

detached, proofs, run, survey = map(
    module, ("run.detached", "model.proofs", "run.command", "model.survey")
)
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
    ],
)
def test_whatever_speaks_against_the_revision_is_one_sentence(
    second: dict[str, Any], sentence: str
) -> None:
    assert told(read(), read(**second)) == [sentence]


def test_the_same_wrong_bytes_on_both_hosts_are_still_wrong() -> None:
    wrong = read(config__json={"size": 3, "sha256": GOOD})
    assert len(told(wrong, wrong)) == 2


def test_a_file_that_one_host_lacks_keeps_the_hubs_hash() -> None:
    """fetch brings it afterwards; without a lock there would be nothing that it may bring."""
    assert told(read(config__json=None), read()) == []
    made = hosts.locked({"spark1": read(config__json=None), "spark2": read()}, published())
    assert [file.sha256 for file in made.files] == [OTHER, GOOD]
    lacks = read(config__json=None)
    made = hosts.locked({"spark1": lacks, "spark2": lacks}, published())
    assert [(file.size, file.sha256) for file in made.files] == [(3, OTHER), (9, GOOD)]


def test_what_was_read_of_this_revision_stays_known() -> None:
    """`make lock` for a new image must not forget the hashes that only the hosts could give."""
    made = hosts.locked({"spark1": read(), "spark2": read()}, published())
    assert hosts.kept(made, published()) == made
    later = published().model_copy(update={"revision": "2" * 40})
    assert hosts.kept(made, later) == later
    grown = [FILES[0], FILES[1] | {"size": 10}]
    other = LockedModel.model_validate(published().model_dump() | {"files": grown})
    assert hosts.kept(made, other) == other


def settled(
    tmp_path: Path, hub: Hub, surveys: dict[str, Any], yes: bool = True
) -> tuple[Job, Path]:
    """Ask the Hub, then compare what both hosts read with it, and write the lock of `lab`."""
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    wanted = cluster(lock_dir=str(tmp_path))
    job = made_job(wanted, [dirty(wanted, n, lab, dsf) for n in range(2)], lab, (lab, dsf))
    job.notes.survey |= surveys
    words = {"here": Here(job, 0)}
    model = ("lab/tiny", "main")
    add_op(job.state, lock.asked, host=job.hosts[0], model=model, **words)
    add_op(job.state, lock.settled, host=job.hosts[0], yes=yes, **words)
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


def surveyed(folder: Path, **hashes: str) -> dict[str, Any]:
    """A survey of one.safetensors and what else the revision has; hashes: that the Hub gives."""
    names = (".gitattributes", "config.json", "one.safetensors", "sub/more.json")
    entries = [
        {"name": name, "size": 1000 * len(name), "sha256": hashes.get(name.partition(".")[0])}
        for name in names
    ]
    request = {"directory": str(folder), "revision": REVISION, "entries": entries}
    found: dict[str, Any] = survey.survey(request, detached.Count("read"))
    return found


def test_a_survey_reads_all_that_is_the_revisions(model: Path) -> None:
    (model / "notes.txt").write_text("nobody's business")
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
    assert (found["faults"], found["missing"]) == ([], [])


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def pointer(path: Path) -> None:
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{GOOD}\nsize 15000\n")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (Path.unlink, "missing"),
        (dangling, "a dangling link"),
        (pipe, "not a regular file"),
        (pointer, "a git-lfs pointer of "),
    ],
)
def test_what_is_no_shard_is_said_before_anything_is_read(
    model: Path, harm: Callable[[Path], None], why: str
) -> None:
    harm(model / "one.safetensors")
    found = surveyed(model)
    (fault,) = found["faults"]
    assert fault.startswith("one.safetensors: ")
    assert why in fault
    assert (found["files"], found["bytes"]) == ({}, 0)


def test_weights_of_another_revision_are_named_before_anything_is_read(model: Path) -> None:
    (model / "two\udcff.safetensors").write_bytes(b"x")
    found = surveyed(model)
    assert found["faults"] == [f"two\\udcff.safetensors: not in revision {REVISION}"]
    assert found["bytes"] == 0


def test_a_survey_that_ends_early_forgets_no_earlier_proof(model: Path) -> None:
    surveyed(model)
    entries = [{"name": "config.json", "size": 11000, "sha256": None}]
    for path in model.glob("*.safetensors"):
        path.rename(model / f"{path.stem}.bin")
    request = {"directory": str(model), "revision": REVISION, "entries": entries}
    assert survey.survey(request, detached.Count("read"))["faults"] == []
    assert "sub/more.json" in proofs.load(str(model))


def test_a_file_that_the_hub_has_a_hash_for_may_be_brought_later(model: Path) -> None:
    (model / "config.json").unlink()
    found = surveyed(model, config=OTHER)
    assert (found["missing"], found["faults"]) == (["config.json"], [])
    assert "config.json" not in found["files"]
    (model / "config.json").symlink_to("nowhere")
    assert len(surveyed(model, config=OTHER)["faults"]) == 1


def test_a_survey_does_not_believe_earlier_reads(model: Path) -> None:
    first = surveyed(model)
    assert surveyed(model)["bytes"] == first["bytes"] > 0


def test_no_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(run.Failed, match="no such directory"):
        surveyed(tmp_path / "none")


def surveys_of(
    tmp_path: Path, hub: Hub, revision: str, answer: dict[str, Any], reads: bool = True
) -> tuple[Job, list[str]]:
    """Ask the Hub, then both hosts, which answer `answer`; the run and the surveys asked for."""
    hub.publish("lab/tiny", {"config.json": b"{}\n", "one.safetensors": b"x" * 2000})
    hub.repositories["lab/tiny"].hashes = False
    lab, dsf = locked("lab", tmp_path), locked("dsf-lab", tmp_path)
    model = lab.files.model_copy(update={"directory": "models--lab--tiny"})
    cached = lab.model_copy(update={"model": model, "lock": None})
    wanted = cluster()
    ended = {"active": False, "subject": "", "progress": None, "answer": answer}
    told = {rank: {" survey run ": [json.dumps(ended), END]} for rank in range(2)}
    made = [dirty(wanted, n, lab, dsf) for n in range(2)]
    job = made_job(wanted, made, cached, (lab, dsf), "lock", told)
    requests: list[str] = []
    add_op(
        job.state, lock.asked, host=job.hosts[0], here=Here(job, 0),
        model=("lab/tiny", revision),
    )  # fmt: skip
    add_op(
        job.state, milestone, host=job.hosts[1], here=Here(job, 0), title="Hub"
    )  # the same step there
    for rank, host in enumerate(job.hosts):
        if not reads:
            break
        add_op(job.state, lock.surveyed, host=host, here=Here(job, rank))
    job.state.is_executing = True
    given = FakeConnector.run_shell_command

    def noted(self: FakeConnector, *words: Any, **more: Any) -> Any:
        if "survey" in str(words):
            requests.append(str(more.get("_stdin")))
        return given(self, *words, **more)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(PyinfraError):
        patch.setattr(FakeConnector, "run_shell_command", noted)
        run_ops(job.state)
    return job, requests


def test_a_cache_is_read_in_the_snapshot_of_the_wanted_revision(tmp_path: Path, hub: Hub) -> None:
    answer = {"ok": True, "files": {}, "missing": [], "faults": [], "bytes": 0, "seconds": 0}
    job, requests = surveys_of(tmp_path, hub, "main", answer)
    assert job.problem is None
    commit = hub.repositories["lab/tiny"].main
    asked = json.loads(requests[-1])
    assert asked["directory"] == f"/srv/models/models--lab--tiny/snapshots/{commit}"
    assert [(e["name"], e["size"], e["sha256"] is None) for e in asked["entries"]] == [
        ("config.json", 3, False),
        ("one.safetensors", 2000, True),
    ]


def test_what_a_host_has_instead_is_said_with_the_way_out(tmp_path: Path, hub: Hub) -> None:
    faults = [f"{n}.safetensors: missing" for n in range(30)]
    answer = {"ok": True, "files": {}, "missing": [], "faults": faults, "bytes": 0, "seconds": 0}
    job, _ = surveys_of(tmp_path, hub, "main", answer)
    assert job.problem is not None
    assert f"hf download lab/tiny --revision {hub.repositories['lab/tiny'].main}" in job.problem
    assert job.problem.endswith("- and 10 more")


def test_a_hub_that_says_no_ends_the_run_with_its_sentence(tmp_path: Path, hub: Hub) -> None:
    job, _ = surveys_of(tmp_path, hub, "gone", {}, reads=False)
    assert job.problem is not None
    assert "revision gone of lab/tiny is gone" in job.problem
    assert job.notes.published is None
