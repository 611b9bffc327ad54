"""The lab's Hub, asked by the Hub's own client."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from lab.services.hub import Hub

REPO = "lab/tiny"
SHARD = bytes(range(256)) * 4096  # 1 MiB: several writes of the server
FILES = {"config.json": b"{}\n", "model-00001-of-00001.safetensors": SHARD}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as running:
        yield running


def fetched(hub: Hub, name: str, folder: Path, revision: str = "main") -> bytes:
    path = hf_hub_download(REPO, name, revision=revision, endpoint=hub.url, local_dir=folder)
    return Path(path).read_bytes()


def test_a_revision_is_listed_with_sizes_and_hashes(hub: Hub) -> None:
    revision = hub.publish(REPO, FILES)
    info = HfApi(hub.url).model_info(REPO, files_metadata=True)
    assert info.sha == revision
    config, shard = info.siblings or []
    assert (config.rfilename, config.size, config.lfs) == ("config.json", 3, None)
    assert shard.lfs is not None
    assert shard.lfs.sha256 == hashlib.sha256(SHARD).hexdigest()
    tree = list(HfApi(hub.url).list_repo_tree(REPO, revision=revision, recursive=True))
    assert [one.path for one in tree] == sorted(FILES)


def test_both_kinds_of_file_arrive_whole(hub: Hub, tmp_path: Path) -> None:
    hub.publish(REPO, FILES)
    for name, content in FILES.items():
        assert fetched(hub, name, tmp_path) == content


def test_a_file_may_lie_on_disk(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(SHARD)
    hub.publish(REPO, {"x.safetensors": tmp_path / "shard"})
    assert fetched(hub, "x.safetensors", tmp_path / "here") == SHARD


def test_older_revisions_stay_until_a_force_push(hub: Hub, tmp_path: Path) -> None:
    first = hub.publish(REPO, FILES)
    second = hub.publish(REPO, {**FILES, "config.json": b"{1}\n"})
    assert fetched(hub, "config.json", tmp_path, first) == b"{}\n"
    assert fetched(hub, "config.json", tmp_path, second) == b"{1}\n"
    hub.force_push(REPO, FILES)
    with pytest.raises(RevisionNotFoundError):
        HfApi(hub.url).model_info(REPO, revision=first)


def test_what_is_not_there_or_not_allowed_is_told_apart(hub: Hub, tmp_path: Path) -> None:
    hub.publish(REPO, FILES)
    with pytest.raises(EntryNotFoundError):
        fetched(hub, "other.json", tmp_path)
    with pytest.raises(RepositoryNotFoundError):
        HfApi(hub.url).model_info("lab/none")
    right = "hf_right"
    hub.repositories[REPO].token = right
    for token in (False, "hf_wrong"):
        with pytest.raises(GatedRepoError):
            HfApi(hub.url, token=token).model_info(REPO)
    assert HfApi(hub.url, token=right).model_info(REPO).sha


def test_ranges_and_what_was_sent(hub: Hub) -> None:
    revision = hub.publish(REPO, FILES)
    name = "model-00001-of-00001.safetensors"
    url = f"{hub.url}/{REPO}/resolve/{revision}/{name}"
    ask = {"follow_redirects": True, "trust_env": False}
    middle = httpx.get(url, headers={"Range": "bytes=1000-1999"}, **ask)  # type: ignore[arg-type]
    assert (middle.status_code, middle.content) == (206, SHARD[1000:2000])
    assert middle.headers["Content-Range"] == f"bytes 1000-1999/{len(SHARD)}"
    rest = httpx.get(url, headers={"Range": "bytes=1048000-"}, **ask)  # type: ignore[arg-type]
    assert rest.content == SHARD[1048000:]
    over = httpx.get(url, headers={"Range": f"bytes={len(SHARD)}-"}, **ask)  # type: ignore[arg-type]
    assert over.status_code == 416
    assert hub.sent() == {name: 1000 + len(SHARD) - 1048000}


def test_a_cut_transfer_is_short_and_a_wrong_one_is_whole(hub: Hub) -> None:
    hub.publish(REPO, FILES)
    url = f"{hub.url}/{REPO}/resolve/main/config.json"
    hub.faults.cut["config.json"] = 2
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(url, trust_env=False)
    hub.faults.cut.clear()
    hub.faults.wrong["config.json"] = 1
    assert httpx.get(url, trust_env=False).content[1:] == b"}\n"
    assert httpx.get(url, trust_env=False).content == b"{}\n"
    hub.faults.down = True
    assert httpx.get(url, trust_env=False).status_code == 503
