"""Model files hashed on the host: a long act, after which every host is read anew."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops

from facts.run.program import END
from operations.model.shards import out_of_sight, verified
from operations.run.detached import told, volume
from operations.run.job import Here
from tests.plan.made_job import commands, made_job
from tests.plan.made_pair import cluster, dirty, locked


@pytest.mark.parametrize(("before", "reads"), [("unverified", 2), ("verified", 1)])
def test_after_a_full_read_no_host_is_taken_for_what_it_was_before(
    tmp_path: Path, before: str, reads: int
) -> None:
    stacks = locked("lab", tmp_path / "locks"), locked("dsf-lab", tmp_path / "locks")
    snapshots = [dirty(cluster(), rank, *stacks) for rank in range(2)]
    snapshots[0]["shards"]["/srv/models/lab"] = before
    answer = {"ok": True, "faults": [], "files": 120, "bytes": 7876800, "seconds": 0.1}
    answer |= {"remembered_bytes": 0, "left": [], "beside": [], "wrong": [], "extra": []}
    found = {"active": False, "subject": "a read", "progress": None, "answer": answer}
    responses = {0: {"shards run": [json.dumps(found), END]}}
    job = made_job(cluster(), snapshots, stacks[0], stacks, responses=responses)
    add_op(job.state, verified, here=Here(job, 0), host=job.hosts[0])
    job.state.is_executing = True
    other = job.hosts[1]
    job.read(other)
    with contextlib.suppress(PyinfraError):
        run_ops(job.state)
    job.read(other)
    assert job.problem is None
    assert len([c for c in commands(other) if " snapshot " in c]) == reads


def test_a_volume_is_told_in_a_unit_that_shows_it() -> None:
    assert volume(181 * 2**30 + 2**29) == "181.50 GiB"
    assert volume(7 * 2**20 + 2**19) == "7.5 MiB"


def test_no_time_is_promised_for_files_of_unknown_size() -> None:
    known = {"what": "brought", "done": 2**30, "total": 3 * 2**30, "seconds": 2.0}
    assert told(known) == "1.00 GiB of 3.00 GiB brought, 512.0 MiB/s, about 4 s left"
    assert told(known | {"total": 0}) == "1.00 GiB brought"


@pytest.mark.parametrize(
    ("directory", "volume", "helps"),
    [
        ("hub/models--lab--tiny", "{{ model_dir }}/{{ model.directory }}:/models", False),
        ("hub/models--lab--tiny", "{{ model_dir }}/hub/models--lab--tiny/snapshots:/m:ro", False),
        ("hub/models--lab--tiny", "{{ model_dir }}:/models:ro", True),
        ("hub/models--lab--tiny", "{{ model_dir }}/hub/models--lab--tiny:/models:ro", True),
        ("lab", "{{ model_dir }}/{{ model.directory }}:/models", True),
    ],
)
def test_where_a_fetch_keeps_the_links_the_mount_is_named_instead(
    tmp_path: Path, directory: str, volume: str, helps: bool
) -> None:
    stack = locked("lab", tmp_path / "locks")
    assert stack.container is not None
    stack = stack.model_copy(
        update={
            "container": stack.container.model_copy(update={"volumes": (volume,)}),
            "model": stack.files.model_copy(update={"directory": directory}),
        }
    )
    said = out_of_sight(stack, "/srv/models")
    assert (said is None) is helps
    if said:
        assert "mount /srv/models/hub/models--lab--tiny in container.volumes of lab" in said
