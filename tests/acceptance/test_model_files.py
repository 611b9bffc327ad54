"""The model's files: all there, with their sizes, none too many; the small ones by their hash.

The weights are not read here: hundreds of gigabytes on a real pair (deploys/prepare.py does that).
"""

from __future__ import annotations

import shlex

import pytest
from testinfra.host import Host

from inventory.schema import Cluster
from stacks.definition import Stack
from tests.acceptance.look import read

SMALL_BYTES = 1 << 20


def _folder(cluster: Cluster, stack: Stack) -> str:
    if stack.lock is None:
        pytest.skip("the stack has no lock, so it is not known what is right")
    return shlex.quote(f"{cluster.model_dir}/{stack.model_path}")


def test_every_model_file_is_there_with_its_size_and_no_weights_besides(
    host: Host, cluster: Cluster, stack: Stack
) -> None:
    folder = _folder(cluster, stack)
    assert stack.lock is not None
    lines = read(host, f"cd {folder} && find -L . -type f -printf '%P %s\\n'").splitlines()
    found = {name: int(size) for name, _, size in (line.rpartition(" ") for line in lines)}
    for file in stack.lock.model.files:
        assert file.name in found
        assert file.size in (None, found[file.name]), file.name
    names = {file.name for file in stack.lock.model.files}
    weights = {name for name in found if name.endswith(".safetensors") and name[0] != "."}
    assert weights <= names


def test_small_model_files_are_the_pinned_bytes(host: Host, cluster: Cluster, stack: Stack) -> None:
    folder = _folder(cluster, stack)
    assert stack.lock is not None
    wanted = {
        f.name: f.sha256
        for f in stack.lock.model.files
        if f.sha256 and not f.name.endswith(".safetensors") and (f.size or 0) < SMALL_BYTES
    }
    names = " ".join(map(shlex.quote, wanted))
    lines = read(host, f"cd {folder} && sha256sum -- {names}").splitlines() if wanted else []
    found = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert found == wanted
