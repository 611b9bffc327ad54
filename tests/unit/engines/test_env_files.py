"""Files with secrets: there, root's alone, and nothing of them in a command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from operations.engines import env_files
from stacks.render import rank_spec
from tests.plan.made_pair import cluster, locked
from tests.unit.stacks.test_stacks_render import FABRIC

TEXT = "HF_TOKEN=hf_Zx123"


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of root's is made")
@pytest.mark.parametrize(
    ("mode", "said"),
    [(0o600, None), (0o400, None), (0o640, "chmod 600"), (0o644, "only root may read secrets"),
     (0o666, "mode 666 found"), (None, "is not there; `sudo install -m 600")],
)  # fmt: skip
def test_a_file_that_others_may_read_is_refused_unread(
    tmp_path: Path, mode: int | None, said: str | None
) -> None:
    path = tmp_path / "it's secret.env"
    if mode is not None:
        path.write_text(TEXT)
        path.chmod(mode)
    ran = subprocess.run(
        ["/bin/sh", "-c", env_files.command([str(path)])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert TEXT not in ran.stdout
    found = list(env_files.complaints([str(path)], ran.stdout))
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


@pytest.mark.parametrize("thing", ["folder", "pipe", "another's"])
@pytest.mark.skipif(os.geteuid() != 0, reason="a file of root's is made")
def test_what_is_no_file_of_roots_is_refused(tmp_path: Path, thing: str) -> None:
    path = tmp_path / "secrets.env"
    if thing == "folder":
        path.mkdir(mode=0o600)
    elif thing == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.touch(0o600)
        os.chown(path, 1000, 1000)
    said = subprocess.check_output(["/bin/sh", "-c", env_files.command([str(path)])], text=True)
    (line,) = env_files.complaints([str(path)], said)
    assert str(path) in line


def test_docker_reads_the_file_itself_and_the_command_line_has_only_its_name(
    tmp_path: Path,
) -> None:
    stack = locked("lab", tmp_path)
    assert stack.container is not None
    with_file = stack.container.model_copy(update={"env_files": ("/etc/spark/secrets.env",)})
    spec = rank_spec(stack.model_copy(update={"container": with_file}), cluster(), 0, FABRIC)
    at = spec.create_argv.index("--env-file")
    assert spec.create_argv[at + 1] == "/etc/spark/secrets.env"
    assert at < spec.create_argv.index(spec.image)
    assert spec.spec != rank_spec(stack, cluster(), 0, FABRIC).spec
