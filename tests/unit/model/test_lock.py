"""`make lock`: a lock from a real registry and a server that speaks the Hub's API."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner, Result

from lab.services import registry as lab_registry
from lab.services.hub import Hub
from operations.look.parity import tag_line
from operations.run.findings import Line
from stacks import definition
from stacks.lock import difference, registry
from stacks.lock import hub as source
from stacks.lock.__main__ import main
from stacks.lock.ask import settle
from stacks.lock.errors import LockError
from stacks.schema import Lock
from tests.unit.conftest import point_client_at

MODEL = "lab/tiny"
SHARD = b"shard" * 1000
FILES = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "config.json": b"{}\n",
    "model-00001-of-00001.safetensors": SHARD,
}
OCI = "application/vnd.oci.image."


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """A registry of Debian's on a port of its own; the value pushes an image of two platforms."""
    with pytest.MonkeyPatch.context() as patch:
        port = free_port()
        patch.setattr(lab_registry, "PORT", port)
        patch.setattr(lab_registry, "ADDRESS", f"127.0.0.1:{port}")
        home = tmp_path_factory.mktemp("registry")
        lab_registry.start(home)
        yield push
        lab_registry.stop(home)


def put(path: str, content: bytes, kind: str) -> str:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    base = f"http://{lab_registry.ADDRESS}/v2/engine"
    if path == "blobs":
        begun = httpx.post(f"{base}/blobs/uploads/", trust_env=False).headers["Location"]
        url, what = f"{begun}&digest={digest}", "application/octet-stream"
    else:
        url, what = f"{base}/manifests/{digest if path == 'digest' else path}", kind
    answer = httpx.put(url, content=content, headers={"Content-Type": what}, trust_env=False)
    assert answer.status_code == 201, answer.text
    return digest


def described(kind: str, content: bytes, **more: Any) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": OCI + kind, "digest": digest, "size": len(content), **more}


def push(tag: str, text: str, index: bool = True) -> str:
    """Push `engine:TAG` for amd64 and arm64 (or one of them alone, without an index)."""
    entries = []
    for machine in ("amd64", "arm64") if index else ("arm64",):
        layer = f"{text} {machine}".encode()
        config = json.dumps({"os": "linux", "architecture": machine, "rootfs": {}}).encode()
        put("blobs", layer, "")
        put("blobs", config, "")
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": OCI + "manifest.v1+json",
                "config": described("config.v1+json", config),
                "layers": [described("layer.v1.tar", layer)],
            }
        ).encode()
        put("digest" if index else tag, manifest, OCI + "manifest.v1+json")
        platform = {"os": "linux", "architecture": machine}
        entries.append(described("manifest.v1+json", manifest, platform=platform))
    if not index:
        return str(entries[0]["digest"])
    # What buildkit adds: an attestation, which is no platform.
    entries.append({**entries[0], "platform": {"os": "unknown", "architecture": "unknown"}})
    document = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": entries}
    return put(tag, json.dumps(document).encode(), OCI + "index.v1+json")


@pytest.fixture
def stack(tmp_path: Path, images: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one stack, `tiny`, whose image lies in the registry of this test."""
    data = yaml.safe_load((definition.FOLDER / "lab.yaml").read_text())
    data |= {"name": "tiny", "image": {"repository": f"{lab_registry.ADDRESS}/engine"}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.setattr(definition, "FOLDER", tmp_path)
    return tmp_path


def lock(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tiny", *arguments])


def written(folder: Path) -> Lock:
    found = definition.load("tiny").lock
    assert found is not None
    assert not definition.load("tiny").unlocked
    return found


def first_lock(hub: Hub, images: Callable[..., str]) -> tuple[str, str]:
    """A lock of engine:v1 and the model's first revision; both digests."""
    digest, revision = images("v1", "one"), hub.publish(MODEL, FILES)
    result = lock("--tag", "v1", "--model", MODEL, "--yes")
    assert result.exit_code == 0, result.output
    return digest, revision


def test_a_first_lock_names_every_file_and_platform(
    hub: Hub, images: Callable[..., str], stack: Path
) -> None:
    digest, revision = first_lock(hub, images)
    made = written(stack)
    assert made.image.index == digest
    assert set(made.image.platforms) == {"linux/amd64", "linux/arm64"}
    assert made.image.download_bytes["linux/arm64"] == len("one arm64")
    assert (made.model.revision, made.model.source) == (revision, "hub")
    assert {f.name: (f.size, f.sha256) for f in made.model.files} == {
        name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in FILES.items()
    }
    assert "model-00001-of-00001.safetensors" not in hub.sent()  # its hash is the API's


def test_nothing_new_is_said_and_not_asked(
    hub: Hub, images: Callable[..., str], stack: Path
) -> None:
    first_lock(hub, images)
    before = (stack / "tiny.lock.yaml").read_bytes()
    result = lock()
    assert (result.exit_code, result.output) == (0, "tiny.lock.yaml: nothing changed\n")
    assert (stack / "tiny.lock.yaml").read_bytes() == before


def test_a_change_is_shown_and_left_without_a_terminal(
    hub: Hub, images: Callable[..., str], stack: Path
) -> None:
    old_digest, old_revision = first_lock(hub, images)
    before = (stack / "tiny.lock.yaml").read_bytes()
    new_digest = images("v2", "two")
    new_revision = hub.publish(MODEL, {**FILES, "config.json": b"{1}\n", "more.json": b"m"})
    result = lock("--tag", "v2", "--revision", "main")
    assert result.exit_code == 1
    assert (stack / "tiny.lock.yaml").read_bytes() == before
    lines = {line.split()[0]: line for line in result.output.splitlines() if line.split()}
    assert old_digest in lines["image"]
    assert new_digest in lines["image"]
    assert old_revision in lines["revision"]
    assert new_revision in lines["revision"]
    assert hashlib.sha256(b"{1}\n").hexdigest() in lines["config.json"]
    assert "absent" in lines["more.json"]
    assert f"main is {new_revision}" in result.output
    assert "--yes writes it" in result.output
    assert lock("--tag", "v2", "--revision", "main", "--yes").exit_code == 0
    assert written(stack).image.index == new_digest


def test_a_tag_that_moved_is_told_and_not_followed(
    hub: Hub, images: Callable[..., str], stack: Path
) -> None:
    digest, _ = first_lock(hub, images)
    data = yaml.safe_load((stack / "tiny.yaml").read_text())
    data["image"]["tag"] = "v1"
    (stack / "tiny.yaml").write_text(yaml.safe_dump(data))
    moved = images("v1", "something else")
    result = lock()
    assert result.exit_code == 0
    assert f"points to {moved} now; the lock keeps {digest}" in result.output


def test_verify_tells_where_the_tag_points_and_keeps_the_lock(
    hub: Hub, images: Callable[..., str], stack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, _ = first_lock(hub, images)
    assert tag_line(definition.load("tiny"), 2) is None
    data = yaml.safe_load((stack / "tiny.yaml").read_text())
    data["image"]["tag"] = "v1"
    (stack / "tiny.yaml").write_text(yaml.safe_dump(data))
    tiny = definition.load("tiny")
    assert tag_line(tiny, 2) == Line("tag v1", (digest[:19],) * 2, "ok")
    moved = images("v1", "something newer")
    said = f"{moved[:19]}, moved: the lock keeps {digest[:19]}"
    assert tag_line(tiny, 2) == Line("tag v1", (said, said), "ok")
    assert tiny.image is not None
    gone = tiny.model_copy(
        update={"image": tiny.image.model_copy(update={"repository": "127.0.0.1:1/engine"})}
    )
    line = tag_line(gone, 2)
    assert line is not None
    assert (line.found, line.verdict) == ((None, None), "unknown")
    assert "cannot be reached" in line.note


def test_an_image_of_one_platform_has_no_index_of_its_own(
    images: Callable[..., str], stack: Path
) -> None:
    digest = images("single", "one", index=False)
    found = registry.read(f"{lab_registry.ADDRESS}/engine", "single")
    assert found.index == digest
    assert found.platforms == {"linux/arm64": digest}


def test_without_tag_and_digest_the_image_stays_null(hub: Hub, stack: Path) -> None:
    hub.publish(MODEL, FILES)
    result = lock("--model", MODEL, "--yes")
    assert result.exit_code == 0
    assert "it stays null" in result.output
    assert definition.load("tiny").unlocked == [
        f"image {lab_registry.ADDRESS}/engine has no digest"
    ]


def sentence(result: Result) -> str:
    """The one line that a failed run says."""
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.output.splitlines() if line]
    return line.removeprefix("Error: ")


def test_g05_a_revision_that_was_force_pushed_away_is_one_sentence(
    hub: Hub, images: Callable[..., str], stack: Path
) -> None:
    _, revision = first_lock(hub, images)
    before = (stack / "tiny.lock.yaml").read_bytes()
    hub.force_push(MODEL, {**FILES, "chat_template.jinja": b"new"})
    said = sentence(lock("--yes"))
    assert said.startswith(f"revision {revision} of {MODEL} is gone from {hub.url}")
    assert (stack / "tiny.lock.yaml").read_bytes() == before


def test_a_gated_model_asks_for_hf_token_and_never_prints_it(
    hub: Hub, images: Callable[..., str], stack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_lock(hub, images)
    right = "hf_right"
    hub.repositories[MODEL].token = right
    assert "HF_TOKEN" in sentence(lock())
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    said = sentence(lock())
    assert "is gated" in said
    assert "hf_wrong" not in said
    monkeypatch.setenv("HF_TOKEN", right)
    assert lock().exit_code == 0


def test_no_network_is_one_sentence(
    hub: Hub, images: Callable[..., str], stack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_lock(hub, images)
    hub.faults.down = True
    assert f"{hub.url} answers 503" in sentence(lock())
    point_client_at(f"http://127.0.0.1:{free_port()}", monkeypatch)
    assert "cannot be reached" in sentence(lock())


def test_a_registry_that_is_off_is_one_sentence() -> None:
    with pytest.raises(LockError, match="cannot be reached"):
        registry.read(f"127.0.0.1:{free_port()}/engine", "v1")


def test_a_digest_that_is_gone_is_one_sentence(images: Callable[..., str]) -> None:
    gone = f"sha256:{'0' * 64}"
    with pytest.raises(LockError, match=f"has no {gone} any more"):
        registry.read(f"{lab_registry.ADDRESS}/engine", gone)


def test_g03_wrong_bytes_of_a_small_file_are_not_locked(
    hub: Hub, images: Callable[..., str], stack: Path
) -> None:
    images("v1", "one")
    hub.publish(MODEL, FILES)
    hub.faults.wrong["config.json"] = 1
    said = sentence(lock("--tag", "v1", "--model", MODEL, "--yes"))
    assert "config.json" in said
    assert not (stack / "tiny.lock.yaml").exists()


def test_an_unknown_stack_and_a_missing_model_are_one_sentence_each(
    images: Callable[..., str], stack: Path
) -> None:
    images("v1", "one")
    assert "--model ORG/NAME" in sentence(lock("--tag", "v1"))
    assert "'other' found; tiny allowed" in sentence(CliRunner().invoke(main, ["other"]))


@pytest.mark.parametrize(
    ("repository", "address", "name"),
    [
        ("ghcr.io/0xsero/engine", "https://ghcr.io", "0xsero/engine"),
        ("lmsysorg/sglang", "https://registry-1.docker.io", "lmsysorg/sglang"),
        ("docker.io/python", "https://registry-1.docker.io", "library/python"),
        ("127.0.0.1:5000/engine", "http://127.0.0.1:5000", "engine"),
        ("10.0.2.100:5000/engine", "https://10.0.2.100:5000", "engine"),
    ],
)
def test_registries_are_found_by_dockers_rules(repository: str, address: str, name: str) -> None:
    assert registry.place(repository) == (address, name)


def made_lock(digest: str | None) -> Lock:
    files = [{"name": f"{n}.safetensors", "size": 1, "sha256": digest} for n in range(120)]
    model = {"repository": MODEL, "revision": "0" * 40, "files": files}
    return Lock.model_validate({"stack": "tiny", "image": {"index": None}, "model": model})


def test_files_that_only_became_known_are_one_line() -> None:
    (line,) = difference.changes(made_lock(None), made_lock("1" * 64))
    assert line.what.endswith("and 117 more")
    assert len(difference.changes(made_lock("2" * 64), made_lock("1" * 64))) == 120


def answered(answer: str, path: Path) -> subprocess.CompletedProcess[bytes]:
    """A change of a lock, settled on a real terminal where a person types `answer`."""
    ask = f"import sys, tests.unit.model.test_lock as t; sys.exit(t.settle_made({str(path)!r}))"
    person, terminal = pty.openpty()
    os.write(person, answer.encode())
    try:
        return subprocess.run(
            [sys.executable, "-c", ask],
            cwd=Path(__file__).parents[3],
            stdin=terminal,
            capture_output=True,
            check=False,
        )
    finally:
        os.close(person)
        os.close(terminal)


def settle_made(path: str) -> int:
    return settle(Path(path), None, made_lock("1" * 64), yes=False)


def test_a_person_who_only_presses_enter_has_said_no(tmp_path: Path) -> None:
    path = tmp_path / "tiny.lock.yaml"
    assert answered("\n", path).returncode == 1
    assert not path.exists()
    assert answered("y\n", path).returncode == 0
    assert Lock.model_validate(yaml.safe_load(path.read_text())) == made_lock("1" * 64)


def test_a_person_who_ends_the_input_has_said_no(tmp_path: Path) -> None:
    done = answered("\4", tmp_path / "tiny.lock.yaml")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"tiny.lock.yaml: not changed" in done.stderr


def test_a_lock_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert settle(tmp_path / "file" / "tiny.lock.yaml", None, made_lock("1" * 64), yes=True) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_a_model_that_the_stack_has_no_place_for_is_not_locked(
    hub: Hub, images: Callable[..., str], stack: Path
) -> None:
    """Else the next command would refuse the lock, `make lock` itself included."""
    first_lock(hub, images)
    data = yaml.safe_load((stack / "tiny.yaml").read_text())
    data["model"]["directory"] = "models--lab--tiny"
    (stack / "tiny.yaml").write_text(yaml.safe_dump(data))
    hub.publish("lab/other", FILES)
    assert "a cache of lab/tiny found" in sentence(lock("--model", "lab/other", "--yes"))
    assert written(stack).model.repository == MODEL


def test_a_new_image_does_not_forget_hashes_that_only_hosts_could_give(
    hub: Hub, images: Callable[..., str], stack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_lock(hub, images)
    path = stack / "tiny.lock.yaml"
    path.write_text(path.read_text().replace("source: hub", "source: hosts"))
    before = written(stack).model
    monkeypatch.setattr(source, "SMALL_BYTES", 1000)
    hub.repositories[MODEL].hashes = False
    images("v2", "two")
    assert lock("--tag", "v2", "--yes").exit_code == 0
    assert written(stack).model == before


def test_the_command_ends_with_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stacks.lock", "no-such"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: stack 'no-such' found; ")
