"""The pull on the host: what the daemon streams, as docker 26 writes it, and what is made of it."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import module

containers, images, run = map(module, ("engines.containers", "model.images", "run.command"))
REPOSITORY, DIGEST = "10.0.2.100:5000/lab-engine", f"sha256:{'a' * 64}"


class Daemon:
    """A socket that answers as dockerd does: what was asked, and a scripted stream."""

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        self.stream: list[dict[str, Any]] = []
        self.status = 200
        self.present = True
        self.containers: dict[str, int] = {}  # name, which is its id too -> status of its inspect
        self.info: dict[str, Any] = {"DockerRootDir": str(path.parent), "DriverStatus": []}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            with link:
                head = link.recv(65536).decode()
                self.asked.append(head)
                link.sendall(self._answer(head.split()[1]))

    def _answer(self, path: str) -> bytes:
        if path == "/info":
            return b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(self.info).encode()
        if path.startswith("/containers/json"):
            listed = [{"Id": name, "Names": [f"/{name}"]} for name in self.containers]
            return b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(listed).encode()
        if path.startswith("/containers/"):
            name = path.split("/")[2]
            one = json.dumps({"Id": name, "message": "it is broken"})
            return f"HTTP/1.0 {self.containers[name]} x\r\n\r\n{one}".encode()
        if path.startswith("/images/create"):
            lines = "".join(json.dumps(line) + "\r\n" for line in self.stream)
            return f"HTTP/1.0 {self.status} x\r\nA: b\r\n\r\n{lines}".encode()
        return f"HTTP/1.0 {200 if self.present else 404} x\r\n\r\n{{}}".encode()

    def close(self) -> None:
        """May be called again."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a close alone does not wake the accept
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setattr(containers, "SOCKET", str(tmp_path / "docker.sock"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    running = Daemon(tmp_path / "docker.sock")
    yield running
    running.close()


def pull(download_bytes: int | None = None) -> dict[str, Any]:
    request = {"repository": REPOSITORY, "digest": DIGEST, "download_bytes": download_bytes}
    found: dict[str, Any] = images.pull(request, images.Layers(download_bytes))
    return found


def layer(name: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    detail = {"current": current, "total": total} if total else {}
    return {"status": status, "progressDetail": detail, "id": name}


def test_the_daemon_is_asked_for_the_digest_and_its_bytes_are_counted(daemon: Daemon) -> None:
    daemon.stream = [
        {"status": "Pulling from lab-engine", "id": DIGEST},
        layer("one", "Already exists"),
        layer("two", "Pulling fs layer"),
        layer("two", "Downloading", 400, 1000),
        layer("two", "Download complete"),
        layer("two", "Extracting", 1000, 1000),
        layer("two", "Pull complete"),
        {"status": f"Digest: {DIGEST}"},
    ]
    assert pull()["bytes"] == 1000
    (create,) = [asked for asked in daemon.asked if asked.startswith("POST")]
    assert f"tag={DIGEST.replace(':', '%3A')}" in create
    assert "X-Registry-Auth" not in create


def test_a_container_that_vanished_is_gone_and_one_that_cannot_be_read_is_not(
    daemon: Daemon,
) -> None:
    daemon.containers = {"engine": 200, "gone": 404}
    assert [one["Id"] for one in containers.inspect_all()] == ["engine"]
    daemon.containers["old-engine"] = 500
    with pytest.raises(run.Failed, match="says 500 of the container old-engine"):
        containers.inspect_all()


def test_progress_is_of_the_size_that_the_lock_says() -> None:
    layers = images.Layers(5000)
    for line in (layer("one", "Downloading", 300, 1000), layer("two", "Pulling fs layer")):
        layers.feed(line)
    said = layers.progress()
    assert (said["done"], said["total"]) == (300, 5000)
    assert said["what"] == "pulled, 0 of 2 layers unpacked"
    layers.feed(layer("one", "Extracting"))  # the containerd store counts seconds there
    assert layers.progress()["alive"] > said["alive"]


def test_a_registry_that_is_off_is_the_daemons_own_sentence(daemon: Daemon) -> None:
    said = 'Get "http://10.0.2.100:5000/v2/": dial tcp 10.0.2.100:5000: connect: connection refused'
    daemon.status, daemon.stream = 500, [{"message": said}]
    with pytest.raises(run.Failed) as failed:
        pull()
    assert str(failed.value) == said


def test_an_error_in_the_middle_of_the_stream_ends_the_pull(daemon: Daemon) -> None:
    daemon.stream = [layer("one", "Downloading", 1, 9), {"error": "unexpected EOF"}]
    with pytest.raises(run.Failed, match="unexpected EOF"):
        pull()


def test_a_stream_that_just_ends_is_no_success(daemon: Daemon) -> None:
    daemon.stream, daemon.present = [layer("one", "Downloading", 1, 9)], False
    with pytest.raises(run.Failed, match="without the image"):
        pull()


def test_a_dead_daemon_is_an_error(daemon: Daemon) -> None:
    daemon.close()
    Path(containers.SOCKET).unlink()
    with pytest.raises(run.Failed, match="the docker daemon does not answer"):
        pull()


def test_a_disk_that_is_too_small_is_said_before_anything_is_pulled(daemon: Daemon) -> None:
    with pytest.raises(run.Failed, match=r"GiB free on .*, about 25000\.0 GiB needed"):
        pull(10_000 * 2**30)
    # The containerd store keeps the layers as they came, too.
    daemon.info["DriverStatus"] = [["driver-type", "io.containerd.snapshotter.v1"]]
    with pytest.raises(run.Failed, match=r"about 35000\.0 GiB needed"):
        pull(10_000 * 2**30)
    assert not [asked for asked in daemon.asked if asked.startswith("POST")]


def test_space_is_looked_for_where_containerd_keeps_its_layers(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, moved = tmp_path / "config.toml", tmp_path / "moved"
    moved.mkdir()
    settings.write_text(
        f"version = 2\n# root = '/old'\nroot = '{moved}'\n\n[plugins]\n  root = '/other'\n"
    )
    monkeypatch.setattr(images, "CONTAINERD_SETTINGS", str(settings))
    daemon.info["DriverStatus"] = [["driver-type", "io.containerd.snapshotter.v1"]]
    with pytest.raises(run.Failed, match=rf"GiB free on {moved}, "):
        pull(10_000 * 2**30)
    settings.write_text("version = 2\n[plugins]\n  root = '/other'\n")
    assert images.containerd_root() == images.CONTAINERD


def test_a_login_that_only_another_user_has_is_told_apart(daemon: Daemon) -> None:
    daemon.status = 500
    daemon.stream = [{"message": "Head https://10.0.2.100:5000/v2/x: denied: login required"}]
    with pytest.raises(run.Failed, match=r"denied: .*`sudo docker login 10\.0\.2\.100:5000`"):
        pull()


def test_a_login_of_roots_goes_to_its_own_registry_alone(daemon: Daemon, tmp_path: Path) -> None:
    secret = base64.b64encode(b"me:s3cret").decode()
    config = {"auths": {"10.0.2.100:5000": {"auth": secret}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    pull()
    (create,) = [asked for asked in daemon.asked if asked.startswith("POST")]
    sent = create.split("X-Registry-Auth: ")[1].split("\r\n")[0]
    assert json.loads(base64.urlsafe_b64decode(sent)) == {
        "username": "me",
        "password": "s3cret",
        "serveraddress": "10.0.2.100:5000",
    }
    assert images.credentials("ghcr.io/other/engine") == {}
