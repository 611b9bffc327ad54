"""The engine's image, built here from this machine's own Python, and the lab's registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.services import registry
from lab.stacks import model, oci

HOST_ROOT = Path("/")  # a root tree like any other, as far as the package python3 is Debian's
DEADLINE_S = 20.0

pytestmark = pytest.mark.skipif(
    not list(Path("/usr/bin").glob("python3.[0-9]*[0-9]")),
    reason="the distribution's own python3 is not installed",
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("images")
    return {version: oci.build(HOST_ROOT, version, folder) for version in ("new", "old")}


class Archive:
    """Index, manifest, config and layer of an archive, each fetched by its digest."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.members = {m.name: m for m in tar.getmembers()}
            self._blobs = {name: self._read(tar, name) for name in self.members if "." in name}
            self._blobs |= {
                name: self._read(tar, name)
                for name, member in self.members.items()
                if name.startswith("blobs/sha256/") and member.isfile()
            }
        self.top = json.loads(self._blobs["index.json"])
        self.index = json.loads(self.blob(self.top["manifests"][0]))
        self.manifest = json.loads(self.blob(self.index["manifests"][0]))
        self.config = json.loads(self.blob(self.manifest["config"]))
        self.layer = gzip.decompress(self.blob(self.manifest["layers"][0]))

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        content = self._blobs["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        assert len(content) == descriptor["size"]
        assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"]
        return content

    @staticmethod
    def _read(tar: tarfile.TarFile, name: str) -> bytes:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def test_archive_is_whole_and_small(archives: dict[str, Path]) -> None:
    archive = Archive(archives["new"])
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    assert archive.index["manifests"][0]["platform"] == {"os": "linux", "architecture": machine}
    assert archive.config["architecture"] == machine
    assert archive.config["rootfs"]["diff_ids"] == [
        "sha256:" + hashlib.sha256(archive.layer).hexdigest()
    ]
    assert archives["new"].stat().st_size < 25_000_000


def test_layer_says_nothing_of_this_machine(archives: dict[str, Path]) -> None:
    with tarfile.open(fileobj=io.BytesIO(Archive(archives["new"]).layer)) as layer:
        members = layer.getmembers()
    assert {(m.uid, m.gid, m.mtime, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {oct(m.mode) for m in members if m.isfile()} == {"0o644", "0o755"}


def test_an_engine_that_exits_in_a_thread_finds_its_library(archives: dict[str, Path]) -> None:
    """glibc loads libgcc_s by name for that; without it exit status 1 became an abort (134)."""
    with tarfile.open(fileobj=io.BytesIO(Archive(archives["new"]).layer)) as layer:
        assert any(name.endswith("/libgcc_s.so.1") for name in layer.getnames())


def test_a_build_gives_the_same_bytes_again(archives: dict[str, Path], tmp_path: Path) -> None:
    again = oci.build(HOST_ROOT, "new", tmp_path)
    assert again.read_bytes() == archives["new"].read_bytes()


def test_versions_differ_in_every_digest(archives: dict[str, Path]) -> None:
    new, old = Archive(archives["new"]), Archive(archives["old"])
    assert new.top["manifests"][0]["digest"] != old.top["manifests"][0]["digest"]
    assert new.index["manifests"][0]["digest"] != old.index["manifests"][0]["digest"]
    assert new.manifest["layers"][0]["digest"] != old.manifest["layers"][0]["digest"]


def test_a_pair_runs_from_the_files_of_the_image_alone(
    archives: dict[str, Path], tmp_path: Path
) -> None:
    archive = Archive(archives["old"])
    root = tmp_path / "root"
    with tarfile.open(fileobj=io.BytesIO(archive.layer)) as layer:
        layer.extractall(root, filter="fully_trusted")  # noqa: S202 - made by this repository
    model.write(tmp_path / "model", "dsf-lab")
    (tmp_path / "shm").mkdir()
    loader = next(path for path in root.rglob("ld-linux-*.so.*") if path.is_file())
    libraries = ":".join(str(p) for p in (root / "usr/lib").glob("*-linux-gnu"))
    api_port, master_port = _free_port(), _free_port()
    arguments = [
        *("--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={master_port}"),
        *("--host=127.0.0.1", f"--port={api_port}", f"--model-path={tmp_path}/model"),
        *("--load-seconds=0", f"--faults-file={tmp_path}/none"),
    ]
    processes = [
        subprocess.Popen(
            [
                *(loader, "--library-path", libraries, root / "usr/bin/python3"),
                *("-S", "-B", "-m", "engine"),
                *(f"--rank={rank}", f"--bind-ip=127.0.0.{rank + 1}", *arguments),
            ],
            env={
                "PYTHONHOME": str(root / "usr"),
                "PYTHONPATH": str(root / "opt/lab-engine"),
                "LAB_ENGINE_SHM_DIR": str(tmp_path / "shm"),
            },
        )
        for rank in (0, 1)
    ]
    url = f"http://127.0.0.1:{api_port}"
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not _answers(url):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        answer = httpx.post(
            f"{url}/v1/chat/completions",
            json={"model": "dsf-lab", "messages": [{"role": "user", "content": "17*23"}]},
            timeout=DEADLINE_S,
            trust_env=False,
        )
        version = httpx.get(f"{url}/version", trust_env=False).json()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert answer.json()["choices"][0]["message"]["content"] == "391"
    assert version == {
        "version": archive.config["config"]["Labels"]["org.opencontainers.image.version"]
    }


def test_byte_code_is_in_the_image_and_unchecked(archives: dict[str, Path]) -> None:
    with tarfile.open(fileobj=io.BytesIO(Archive(archives["new"]).layer)) as layer:
        compiled = [m for m in layer.getmembers() if m.name.endswith(".pyc")]
        sources = [m for m in layer.getmembers() if m.name.endswith(".py")]
        assert len(compiled) == len(sources) > 100
        # Bytes 4 to 8 of a .pyc: 1 = belongs to a hash, which is not to be checked.
        flags = {layer.extractfile(m).read(8)[4:] for m in compiled}  # type: ignore[union-attr]
    assert flags == {b"\x01\0\0\0"}


def test_a_tree_without_python_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(oci.ImageError, match="package python3 expected"):
        oci.build(tmp_path, "new", tmp_path)


# --- the registry -----------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A lab home of its own, with the registry's port moved away from the running lab's."""
    if shutil.which("docker-registry") is None or shutil.which("skopeo") is None:
        pytest.skip("docker-registry or skopeo is not installed")
    port = _free_port()
    monkeypatch.setattr(registry, "PORT", port)
    for module in (registry, oci):
        monkeypatch.setattr(module, "ADDRESS", f"127.0.0.1:{port}")
    yield tmp_path
    registry.stop(tmp_path)


def test_push_keeps_the_digests(home: Path, archives: dict[str, Path]) -> None:
    registry.start(home)
    digests = oci.push(archives["new"], "lab-engine")
    archive = Archive(archives["new"])
    entry = archive.index["manifests"][0]
    assert digests.index == archive.top["manifests"][0]["digest"]
    assert digests.platforms == {
        f"linux/{entry['platform']['architecture']}": entry["digest"],
    }
    url = f"http://{registry.ADDRESS}/v2/lab-engine/manifests/{digests.index}"
    accept = {"Accept": "application/vnd.oci.image.index.v1+json"}
    assert httpx.get(url, headers=accept, trust_env=False).status_code == 200
    assert oci.push(archives["new"], "lab-engine") == digests
    assert oci.push(archives["old"], "lab-engine-old").index != digests.index


def test_push_without_a_registry_is_one_sentence(home: Path, archives: dict[str, Path]) -> None:
    with pytest.raises(oci.ImageError, match="skopeo could not copy"):
        oci.push(archives["new"], "lab-engine")


def test_registry_starts_once_and_stops(home: Path) -> None:
    assert not registry.running(home)
    registry.start(home)
    pid = (home / "registry.pid").read_text()
    registry.start(home)
    assert (home / "registry.pid").read_text() == pid
    assert registry.running(home)
    registry.stop(home)
    assert not registry.running(home)
    registry.stop(home)


def test_registry_that_was_killed_is_started_again(home: Path) -> None:
    registry.start(home)
    os.kill(int((home / "registry.pid").read_text()), 9)
    registry.start(home)
    assert registry.running(home)


def test_a_pid_of_another_program_is_not_ours(home: Path) -> None:
    (home / "registry.pid").write_text(f"{os.getpid()}\n")
    assert not registry.running(home)
    registry.stop(home)  # must not end this test
    assert not (home / "registry.pid").exists()


def test_taken_port_is_one_sentence_and_left_alone(home: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", registry.PORT))
        taken.listen()
        with pytest.raises(registry.RegistryError, match=f"port {registry.PORT} .* is taken"):
            registry.start(home)
        assert not registry.running(home)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
