"""The pinned image on two hosts whose image stores differ: spark1 overlay2, spark2 containerd."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from lab.common.paths import lab_home
from lab.services import registry
from tests.running_lab import HOSTS, Run, completion, job, lab, on

pytestmark = pytest.mark.long

LOCK = "lab.lock.yaml"
REPOSITORY = f"{registry.GUEST_ADDRESS}/lab-engine"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@contextmanager
def registry_off() -> Iterator[None]:
    registry.stop(lab_home().root)
    try:
        yield
    finally:
        registry.start(lab_home().root)


@contextmanager
def locked_image(index: str, platforms: dict[str, str]) -> Iterator[None]:
    """The lab's lock names another image for the time of the block."""
    path = lab_home().locks / LOCK
    was = path.read_text()
    lock = yaml.safe_load(was)
    lock["image"] = {"index": index, "platforms": platforms}
    path.write_text(yaml.safe_dump(lock))
    try:
        yield
    finally:
        path.write_text(was)


def reference() -> str:
    lock = yaml.safe_load((lab_home().locks / LOCK).read_text())
    return f"{REPOSITORY}@{lock['image']['index']}"


def inspected(host: str) -> dict[str, Any]:
    return dict(json.loads(on(host, f"docker image inspect {reference()}"))[0])


def parity(run: Run, name: str) -> dict[str, Any]:
    """One line of what verify found to be alike, or not, on all hosts."""
    assert run.folder is not None, run.text
    page = json.loads((run.folder / "verify.json").read_text())
    return dict(next(line for line in page["parity"] if line["name"] == name))


@pytest.fixture(scope="module")
def without_image(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """serve on `fresh` while nobody answers at the registry."""
    lab("restore", "fresh")
    with registry_off():
        return job("serve", tmp_path_factory.mktemp("absent"))


@pytest.fixture(scope="module")
def prepared(without_image: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """prepare with the registry back: both hosts have pulled the image."""
    return job("prepare", tmp_path_factory.mktemp("prepared"))


def test_an_image_that_cannot_be_had_is_one_line_a_host_and_nothing_is_torn_down(
    without_image: Run,
) -> None:
    assert without_image.status == 1
    for host in HOSTS:
        lines = [
            line
            for line in without_image.text.splitlines()
            if f"cannot be had on {host}" in line and line.lstrip().startswith(f"[{host}]")
        ]
        assert len(lines) == 1, without_image.text
        assert reference() in lines[0]
        assert "dsf-lab-engine-1" in on(host, "docker ps --format '{{.Names}}'")
    assert "Traceback" not in without_image.text
    assert "391" in completion("dsf-lab")


def test_the_image_is_pulled_by_digest_into_both_stores(prepared: Run) -> None:
    assert prepared.status == 0, prepared.text
    for host in HOSTS:
        assert f"Image of lab by digest on {host}" in "\n".join(prepared.changed)
        assert reference() in inspected(host)["RepoDigests"]
    stores = [on(host, "docker info --format '{{.DriverStatus}}'") for host in HOSTS]
    assert ["containerd" in store for store in stores] == [False, True]
    assert "391" in completion("dsf-lab")


def test_e01_one_digest_in_two_stores_is_parity_though_the_ids_differ(
    prepared: Run, tmp_path: Path
) -> None:
    assert inspected("spark1")["Id"] != inspected("spark2")["Id"]
    line = parity(job("verify", tmp_path), "image by digest")
    assert line["verdict"] == "ok"
    assert len(set(line["found"].values())) == 1


def test_with_the_image_there_serve_needs_no_registry(prepared: Run, tmp_path: Path) -> None:
    with registry_off():
        run = job("serve", tmp_path)
    assert run.status == 0, run.text
    assert not [step for step in run.changed if "Image of lab" in step]
    assert "391" in completion("lab-model")


def pushed(content: bytes, kind: str, name: str | None = None) -> str:
    """A manifest or an index into the lab's registry; its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    answer = httpx.put(
        f"http://{registry.ADDRESS}/v2/lab-engine/manifests/{name or digest}",
        content=content,
        headers={"Content-Type": kind},
        trust_env=False,
    )
    assert answer.status_code == 201, answer.text
    return digest


def asked(path: str, kind: str = "*/*") -> Any:
    url = f"http://{registry.ADDRESS}/v2/lab-engine/{path}"
    answer = httpx.get(url, headers={"Accept": kind}, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def two_platforms() -> tuple[str, dict[str, str]]:
    """The engine's image with a twin for the other kind of machine: its index and platforms."""
    index = asked(f"manifests/{reference().partition('@')[2]}", INDEX)
    own = index["manifests"][0]
    manifest = asked(f"manifests/{own['digest']}", MANIFEST)
    config = asked(f"blobs/{manifest['config']['digest']}")
    other = {"amd64": "arm64", "arm64": "amd64"}[config["architecture"]]
    blob = json.dumps(config | {"architecture": other}).encode()
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    base = f"http://{registry.ADDRESS}/v2/lab-engine/blobs/uploads/"
    place = httpx.post(base, trust_env=False).headers["Location"]
    sent = httpx.put(f"{place}&digest={digest}", content=blob, trust_env=False)
    assert sent.status_code == 201, sent.text
    manifest["config"] |= {"digest": digest, "size": len(blob)}
    text = json.dumps(manifest).encode()
    twin = {
        **own,
        "digest": pushed(text, MANIFEST),
        "size": len(text),
        "platform": {"os": "linux", "architecture": other},
    }
    index["manifests"] = [own, twin]
    return pushed(json.dumps(index).encode(), INDEX, "two"), {
        f"linux/{config['architecture']}": own["digest"],
        f"linux/{other}": twin["digest"],
    }


def test_another_platforms_image_behind_the_tag_is_refused_with_both_digests(
    tmp_path: Path,
) -> None:
    lab("restore", "fresh")
    index, platforms = two_platforms()
    _own, other = platforms
    for host in HOSTS:
        on(host, f"docker pull --quiet --platform {other} {REPOSITORY}@{index}")
    with locked_image(index, platforms):
        run = job("serve", tmp_path)
    assert run.status == 1
    for host in HOSTS:
        said = f"{host}: image"
        (line,) = {ln.partition(said)[2] for ln in run.text.splitlines() if said in ln}
        assert all(digest in line for digest in platforms.values())
        assert "dsf-lab-engine-1" in on(host, "docker ps --format '{{.Names}}'")
    assert "391" in completion("dsf-lab")
