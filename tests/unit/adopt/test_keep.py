"""spark-host adopt and needs: kept readable by root only, checked, and made again."""

from __future__ import annotations

import copy
import io
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.adopt.daemon import Daemon, serving
from tests.unit.adopt.inspected import IMAGE_ID, REQUESTS, inspect
from tests.unit.on_host import module

adopt, files, look = module("adopt.adopt"), module("adopt.files"), module("adopt.look")
containers, recipe = module("engines.containers"), module("engines.recipe")
needs, journal = module("launch.needs"), module("run.journal")
names = module("engines.names")
WORKER = "vllm-worker"
COMPOSE = "com.docker.compose.project"


@pytest.fixture
def daemon(
    tmp_path: Path,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Daemon]:
    """A host with a worker that `docker run` started from an image that no registry has."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "docker").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
    (bin_folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    monkeypatch.setattr(adopt, "KEPT", str(tmp_path / "adopted"))
    monkeypatch.setattr(needs, "STATE", str(tmp_path))
    for name in ("NET", "RDMA"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(needs, name, str(tmp_path / name))
    monkeypatch.setattr(needs, "CDI", (str(bin_folder),))
    with serving(tmp_path) as (made, path):
        monkeypatch.setattr(containers, "SOCKET", path)
        image = {"Id": IMAGE_ID, "RepoDigests": [], "RepoTags": ["dspark-vllm-gx10:aug26"]}
        made.images = {IMAGE_ID: image, "dspark-vllm-gx10:aug26": image}
        made.documents[WORKER] = inspect(WORKER, REQUESTS[WORKER])
        yield made


def total(*documents: dict[str, Any]) -> str:
    return str(recipe.total(recipe.recipe(one) for one in documents))


def keep(daemon: Daemon, *names: str) -> tuple[str, dict[str, Any]]:
    digest = total(*(daemon.documents[name] for name in names))
    return digest, adopt.main(["keep", digest, *names])


def lacking(monkeypatch: pytest.MonkeyPatch, digest: str) -> dict[str, list[str]]:
    asked: dict[str, Any] = {"kept": digest, "compose": None, "devices": [], "gpus": False}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
    found: dict[str, list[str]] = needs.main([])
    return found


def project(daemon: Daemon, home: Path) -> dict[str, Any]:
    """The head of a compose project of two files and a profile, with its env file and a script."""
    for name in ("compose.yaml", "compose.big.yaml", ".env.dspark", "start-worker.sh"):
        (home / name).write_text(f"secret of {name}\n")
    body = copy.deepcopy(REQUESTS[WORKER])
    body["Labels"] = {
        COMPOSE: "ds4",
        f"{COMPOSE}.working_dir": str(home),
        f"{COMPOSE}.config_files": f"{home}/compose.yaml,{home}/compose.big.yaml",
        f"{COMPOSE}.environment_file": f"{home}/.env.dspark",
    }
    body["HostConfig"] |= {"Binds": [f"{home}:/opt"], "Devices": []}
    body["Env"] = ["NODE_RANK=0"]
    daemon.documents["ds4-vllm-1"] = inspect("ds4-vllm-1", body)
    return daemon.documents["ds4-vllm-1"]


def test_the_environment_is_kept_in_a_file_of_roots_alone_and_said_to_nobody(
    daemon: Daemon, tmp_path: Path
) -> None:
    digest, answer = keep(daemon, WORKER)
    kept = Path(answer["folder"]) / "kept.json"
    assert "VLLM_API_KEY=sk-secret" in kept.read_text()
    one = daemon.documents[WORKER]
    assert "sk-secret" not in json.dumps([answer, look.look(one, [one], [], [])])
    for path in (tmp_path / "adopted").rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    assert digest in answer["folder"]


def test_a_rank_comes_back_as_it_was_after_it_was_removed(daemon: Daemon) -> None:
    digest, _ = keep(daemon, WORKER)
    was = daemon.documents.pop(WORKER)
    assert adopt.main(["start", digest]) == {}
    now = daemon.documents[WORKER]
    assert (now["Id"] != was["Id"], daemon.started) == (True, [WORKER])
    assert now["Config"] == was["Config"]
    assert now["HostConfig"] == was["HostConfig"]
    assert total(now) == digest


def test_all_of_a_compose_project_is_kept_and_given_back_when_its_folder_is_gone(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "ds4"
    home.mkdir()
    project(daemon, home)
    digest, answer = keep(daemon, "ds4-vllm-1")
    assert answer["files"] == 4
    assert lacking(monkeypatch, digest) == {"lacking": [], "different": []}

    for path in home.iterdir():
        path.unlink()
    (home / "compose.yaml").write_text("edited\n")
    found = lacking(monkeypatch, digest)
    assert found["lacking"] == []
    copies = f"{answer['folder']}/files{home}"
    assert sorted(found["different"]) == [
        f"{home}/.env.dspark is gone since it was kept; as it was: {copies}/.env.dspark",
        f"{home}/compose.big.yaml is gone since it was kept; as it was: {copies}/compose.big.yaml",
        f"{home}/compose.yaml was edited since it was kept; as it was: {copies}/compose.yaml",
        f"{home}/start-worker.sh is gone since it was kept; as it was: {copies}/start-worker.sh",
    ]
    assert Path(f"{copies}/start-worker.sh").read_text() == "secret of start-worker.sh\n"
    del daemon.documents["ds4-vllm-1"]
    adopt.main(["start", digest])
    assert total(daemon.documents["ds4-vllm-1"]) == digest


def test_kept_again_without_its_files_the_earlier_copies_stay(
    daemon: Daemon, tmp_path: Path
) -> None:
    home = tmp_path / "ds4"
    home.mkdir()
    project(daemon, home)
    _, first = keep(daemon, "ds4-vllm-1")
    for path in home.iterdir():
        path.unlink()
    _, second = keep(daemon, "ds4-vllm-1")
    assert (second["files"], second["folder"]) == (first["files"], first["folder"])


def test_what_a_rank_needs_and_does_not_find_is_said_all_at_once(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = copy.deepcopy(REQUESTS["other"])
    body["Env"] = ["NCCL_SOCKET_IFNAME=enp1s0f0np0", "GLOO_SOCKET_IFNAME=bond7"]
    body["Env"] += ["NCCL_IB_HCA=rocep1s0f0,roceP9"]
    body["HostConfig"]["Devices"] = [{"PathOnHost": "/dev/no-such-device"}]
    body["HostConfig"]["Mounts"][1]["Source"] = str(tmp_path / "models")
    body["HostConfig"]["DeviceRequests"] = [{"Capabilities": [["gpu"]]}]
    monkeypatch.setattr(needs, "CDI", ())
    (tmp_path / "NET" / "enp1s0f0np0").mkdir()
    (tmp_path / "NET" / "enp1s0f0np0" / "master").symlink_to("../bond0")
    (tmp_path / "RDMA" / "rocep1s0f0").mkdir()
    daemon.documents["other"] = inspect("other", body)
    digest, _ = keep(daemon, "other")
    del daemon.images[IMAGE_ID]
    image = f"{body['Image']} ({IMAGE_ID[:19]})"
    assert lacking(monkeypatch, digest)["lacking"] == [
        f"other: its image {image} is gone; build or load the same again",
        "other: docker has no volume cache any more",
        f"other: {tmp_path}/models, which it mounts, is gone",
        "other: no device /dev/no-such-device",
        "other: docker has no runtime nvidia any more",
        "other: docker cannot give a container the GPU: the NVIDIA container toolkit is not there",
        "other: docker has no network lane any more",
        "other: NCCL_SOCKET_IFNAME names enp1s0f0np0, which is a member of bond0 now and has no "
        "address; deploys/stop.py and deploys/undo.py give the fabric back as it was",
        "other: GLOO_SOCKET_IFNAME names bond7, and there is no such interface",
        "other: NCCL_IB_HCA names roceP9, and there is no such device",
    ]


def test_a_tag_that_leads_elsewhere_by_now_is_started_by_its_id(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = REQUESTS[WORKER] | {"HostConfig": REQUESTS[WORKER]["HostConfig"] | {"Binds": []}}
    body["HostConfig"] |= {"Devices": []}
    daemon.documents[WORKER] = inspect(WORKER, body)
    digest, _ = keep(daemon, WORKER)
    daemon.images["dspark-vllm-gx10:aug26"] = {"Id": "sha256:" + "9" * 64}
    del daemon.documents[WORKER]
    found = lacking(monkeypatch, digest)
    assert found == {
        "lacking": [],
        "different": [
            f"dspark-vllm-gx10:aug26 is another image by now; started by id {IMAGE_ID[:19]}"
        ],
    }
    adopt.main(["start", digest])
    assert daemon.documents[WORKER]["Config"]["Image"] == IMAGE_ID
    assert total(daemon.documents[WORKER]) == digest


def test_an_image_that_no_registry_has_gets_a_name_of_ours_which_undo_takes_back(
    daemon: Daemon, tmp_path: Path
) -> None:
    _, answer = keep(daemon, WORKER)
    (tag,) = answer["tags"]
    assert tag == f"spark-converge/kept:{'5' * 12}"
    assert (tmp_path / "said").read_text() == f"tag {IMAGE_ID} {tag}\n"
    (entry,) = journal.entries()
    image = daemon.images[IMAGE_ID]
    assert names.look(entry)["verdict"] == "same", "not there (yet)"

    daemon.images[tag] = image
    image["RepoTags"].append(tag)
    assert keep(daemon, WORKER)[1]["tags"] == []
    assert names.look(entry)["verdict"] == "restore"
    names.give(entry)
    assert (tmp_path / "said").read_text().endswith(f"image rm --no-prune {tag}\n")

    image["RepoTags"] = [tag]
    said = names.look(entry)
    assert (said["verdict"], "would go with it" in said["why"]) == ("gone", True)


def test_an_image_of_a_registry_needs_no_name_of_ours(daemon: Daemon) -> None:
    daemon.images[IMAGE_ID]["RepoDigests"] = [f"ghcr.io/o/i@{IMAGE_ID}"]
    assert keep(daemon, WORKER)[1]["tags"] == []


def test_containers_that_changed_since_the_look_are_not_kept(daemon: Daemon) -> None:
    with pytest.raises(adopt.Failed, match="changed since it was looked at"):
        adopt.main(["keep", "0" * 64, WORKER])


@pytest.mark.parametrize("harm", [lambda p: p.write_text("{"), lambda p: p.write_text("{}")])
def test_a_damaged_copy_is_not_launched(daemon: Daemon, harm: Any) -> None:
    digest, answer = keep(daemon, WORKER)
    harm(Path(answer["folder"]) / "kept.json")
    with pytest.raises(adopt.Failed, match="is damaged"):
        adopt.main(["start", digest])


def test_what_no_copy_brings_back_is_said_line_by_line(daemon: Daemon) -> None:
    one = daemon.documents[WORKER]
    one["HostConfig"] |= {"AutoRemove": True, "NetworkMode": "container:abc"}
    one["Mounts"] = [{"Type": "volume", "Name": "f" * 64, "Destination": "/data"}]
    assert look.look(one, [one], [], [])["cannot"] == [
        "vllm-worker was started with --rm: docker deletes it, log and all, as soon as it stops",
        "vllm-worker lives in the network of another container, whose id no later one has",
        "vllm-worker keeps /data in a volume without a name",
    ]


def test_a_checkout_is_known_by_its_commit_without_running_git_as_root(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert files.commit(str(git)) is None
    (git / "packed-refs").write_text(f"# pack-refs\n{'a' * 40} refs/heads/main\n")
    assert files.commit(str(git)) == "a" * 40
    (git / "refs" / "heads" / "main").write_text("b" * 40 + "\n")
    assert files.commit(str(git)) == "b" * 40
    (git / "HEAD").write_text("c" * 40 + "\n")
    assert files.commit(str(git)) == "c" * 40


@pytest.mark.parametrize(
    ("port", "published", "listening", "asked"),
    [
        (8888, [], [8888, 25000, 41000], [8888]),
        (8000, [8888], [], [8888]),
        (None, [], [25000, 30000, 41000], [30000]),
        (None, [], [25000], []),
    ],
)
def test_no_port_is_asked_that_may_be_where_the_ranks_meet(
    port: int | None, published: list[int], listening: list[int], asked: list[int]
) -> None:
    assert look.offered(port, published, listening) == asked


def test_the_patterns_of_a_log_are_those_that_it_has() -> None:
    lines = [f"Loading safetensors checkpoint shards:  {n * 50}% Completed | {n}/2" for n in (1, 2)]
    lines += ["INFO:     Application startup complete.", "INFO: Uvicorn running on ..."]
    logs = module("adopt.logs")
    progress, ready = logs.patterns(lines)
    assert progress == [logs.PROGRESS[0]]
    assert ready == "Application startup complete"
    assert logs.patterns(["nothing of the kind"]) == ([], None)


def test_of_a_log_that_does_not_end_only_its_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexec yes 'a line'\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    logs = module("adopt.logs")
    assert len(logs.of_start("any", "0")) <= logs.LIMIT_BYTES // len("a line\n") + 1
