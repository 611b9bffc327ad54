"""The lab's models, locks, and the files of the old stack."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lab.stacks import locks, model, old
from lab.stacks.oci import ImageDigests

DIGESTS = ImageDigests(f"sha256:{'1' * 64}", {"linux/amd64": f"sha256:{'2' * 64}"})


@pytest.mark.parametrize(("stack", "shards"), [("lab", 120), ("dsf-lab", 12)])
def test_entries_are_the_files(tmp_path: Path, stack: str, shards: int) -> None:
    entries = model.write(tmp_path, stack)
    assert {entry.name for entry in entries} == {path.name for path in tmp_path.iterdir()}
    for entry in entries:
        content = (tmp_path / entry.name).read_bytes()
        assert (entry.size, entry.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    sizes = [entry.size for entry in entries if entry.name.endswith(".safetensors")]
    assert len(sizes) == shards
    assert all(64 * 1024 < size < 66 * 1024 for size in sizes)


def test_the_same_bytes_every_time_and_others_per_stack(tmp_path: Path) -> None:
    first = model.write(tmp_path / "a", "dsf-lab")
    assert model.write(tmp_path / "b", "dsf-lab") == first
    hashes = {entry.sha256 for entry in first if entry.name.endswith(".safetensors")}
    other = {entry.sha256 for entry in model.write(tmp_path / "c", "lab")}
    assert len(hashes) == 12
    assert not hashes & other


def test_index_names_every_tensor_of_every_shard(tmp_path: Path) -> None:
    model.write(tmp_path, "dsf-lab")
    weight_map = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    found = {}
    for shard in tmp_path.glob("*.safetensors"):
        raw = shard.read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        found.update({name: shard.name for name in header if name != "__metadata__"})
    assert weight_map == found


def test_an_unknown_stack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dsf-lab, lab expected"):
        model.write(tmp_path, "glm53")


def test_lock_holds_image_and_files(tmp_path: Path) -> None:
    entries = model.write(tmp_path / "model", "dsf-lab")
    path = tmp_path / "locks" / "dsf-lab.lock.yaml"
    locks.write(path, "dsf-lab", DIGESTS, entries)
    lock = yaml.safe_load(path.read_text())
    assert lock["stack"] == "dsf-lab"
    assert lock["image"] == {"index": DIGESTS.index, "platforms": DIGESTS.platforms}
    assert lock["model"]["files"] == [vars(entry) for entry in entries]
    assert list(path.parent.iterdir()) == [path]


def test_revision_follows_content_not_order(tmp_path: Path) -> None:
    entries = model.write(tmp_path, "dsf-lab")
    revision = locks.revision(entries)
    assert len(revision) == 40
    assert locks.revision(entries[::-1]) == revision
    assert locks.revision([replace(entries[0], sha256="0" * 64), *entries[1:]]) != revision


IMAGE = f"10.0.2.100:5000/lab-engine-old@{DIGESTS.index}"


def test_watchdog_is_on_the_head_only() -> None:
    head = {file.path for file in old.files(IMAGE, 0, "192.168.100.1", "192.168.100.1")}
    worker = {file.path for file in old.files(IMAGE, 1, "192.168.100.1", "192.168.100.2")}
    assert worker == {"/opt/dsf-lab/compose.yaml", "/opt/dsf-lab/.env"}
    assert head - worker == {old.WATCHDOG, old.CRONTAB}


def test_env_gives_all_that_compose_asks_for() -> None:
    texts = {f.path: f.text for f in old.files(IMAGE, 1, "192.168.100.1", "192.168.100.2")}
    env = dict(line.split("=", 1) for line in texts["/opt/dsf-lab/.env"].splitlines())
    assert env == {
        "IMAGE": IMAGE,
        "RANK": "1",
        "HEAD_IP": "192.168.100.1",
        "FABRIC_IP": "192.168.100.2",
    }
    service = yaml.safe_load(texts["/opt/dsf-lab/compose.yaml"])["services"]["engine"]
    asked = {word.split(":")[0] for word in str(service).split("${")[1:]}
    assert asked == set(env)
    assert service["restart"] == "unless-stopped"


def test_cron_line_is_the_watchdog_every_minute() -> None:
    texts = {f.path: f.text for f in old.files(IMAGE, 0, "192.168.100.1", "192.168.100.1")}
    lines = texts[old.CRONTAB].splitlines()
    wanted = f"* * * * * {old.WATCHDOG} >> /var/log/spark1-inference-ready.log 2>&1"
    assert lines.count(wanted) == 1
    assert sum(1 for line in lines if line and not line.startswith("#")) == 2


def test_watchdog_is_valid_shell() -> None:
    script = Path(old.__file__).parent / "spark1-inference-ready.sh"
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
