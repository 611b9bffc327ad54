"""Model files that are not the pinned ones: named on the right host, nothing launched, repaired by
moving exactly what is wrong; and a read that was killed goes on where it stopped."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.services import hub
from lab.services.hub import Blob, Hub, Repository
from lab.stacks import model
from tests.running_lab import HOSTS, Run, completion, job, lab, on, planned, ssh_config

pytestmark = pytest.mark.long

FOLDER = "/srv/models/lab"
IDS = "docker ps --all --no-trunc --format '{{.ID}} {{.State}}'"
PROGRAM = "python3 -I /usr/local/lib/spark-converge/spark_host"
SUMS = f"cd {FOLDER} && sha256sum *.safetensors *.json *.jinja"


def shard(number: int) -> str:
    return f"model-{number:05d}-of-00120.safetensors"


# host -> what is done to the files there, and the name that must be said
FLIP = f"""
python3 - <<'END'
import os
path = "{FOLDER}/{shard(77)}"
was = os.stat(path)
with open(path, "r+b") as file:
    file.seek(-1, 2)
    last = file.read(1)[0]
    file.seek(-1, 2)
    file.write(bytes([last ^ 1]))
os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
END
"""
HARMS = {
    "spark1": {
        shard(77): FLIP,
        "chat_template.jinja": f"echo 'of another revision' > {FOLDER}/chat_template.jinja",
        "model.safetensors": f"cp {FOLDER}/{shard(1)} {FOLDER}/model.safetensors",
    },
    "spark2": {
        shard(3): f"truncate --size=1000 {FOLDER}/{shard(3)}",
        shard(4): f"rm {FOLDER}/{shard(4)}",
        shard(5): f"rm {FOLDER}/{shard(5)}; ln -s ../blobs/gone {FOLDER}/{shard(5)}",
        shard(6): f"cd {FOLDER}; head -c 30000 {shard(6)} > {shard(6)}.spark-converge-part; "
        f"rm {shard(6)}",
    },
}


def locked() -> dict[str, Any]:
    path = Path(ssh_config()).parent / "locks" / "lab.lock.yaml"
    return dict(yaml.safe_load(path.read_text())["model"])


def sizes() -> dict[str, int]:
    return {entry["name"]: entry["size"] for entry in locked()["files"]}


def right(host: str) -> bool:
    """By the host's own sha256sum: every file of the lock, and no other weights."""
    wanted = {f"{entry['sha256']}  {entry['name']}" for entry in locked()["files"]}
    return set(on(host, SUMS).splitlines()) == wanted


def fetched(run: Run, host: str) -> list[dict[str, Any]]:
    return list(run.receipt["figures"]["fetch"].get(host, []))


def test_every_kind_of_wrong_file_is_named_and_exactly_its_bytes_move(tmp_path: Path) -> None:
    lab("restore", "fresh")
    for host, harms in HARMS.items():
        on(host, "\n".join(f"( {script}\n)" for script in harms.values()))
    before = [on(host, IDS) for host in HOSTS]

    run = job("serve", tmp_path)

    assert run.status == 1, run.text
    assert "Traceback" not in run.text
    for host, harms in HARMS.items():
        (said,) = re.findall(rf"\[{host}\] {host}: (\d+) of the model's files.*", run.text)
        assert int(said) == len(harms)
        for name in harms:
            assert re.search(rf"- {re.escape(name)}: ", run.text), name
    assert [on(host, IDS) for host in HOSTS] == before
    assert "391" in completion("dsf-lab")

    repair = job("fetch", tmp_path)

    assert repair.status == 0, repair.text
    assert all(right(host) for host in HOSTS)
    size = sizes()
    for host, harms in HARMS.items():
        wanted = {name: size[name] for name in harms if name in size}
        (own, other) = fetched(repair, host)
        assert (own["brought"], own["local"]) == ({}, {})
        assert other["brought"] == wanted
        already = 30_000 if host == "spark2" else 0
        assert other["moved_bytes"] == sum(wanted.values()) - already
    assert "of another revision" in on("spark1", f"cat {FOLDER}/.spark-converge-aside/*.jinja")
    assert planned("fetch", tmp_path) == []
    assert [on(host, IDS) for host in HOSTS] == before


@pytest.fixture
def the_hub(tmp_path: Path) -> Iterator[Hub]:
    """The lab's model at its locked revision, on the address that the guests see."""
    model.write(tmp_path / "published", "lab")
    files = {path.name: Blob(path) for path in (tmp_path / "published").iterdir()}
    found = locked()
    with Hub(hub.PORT) as made:
        revision = found["revision"]
        made.repositories[found["repository"]] = Repository({revision: files}, revision)
        yield made


def test_what_no_host_has_crosses_the_internet_once(
    tmp_path: Path, the_hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://{hub.GUEST_ADDRESS}")
    lab("restore", "fresh")
    gone = [shard(10), shard(11), "tokenizer.json"]
    for host in HOSTS:
        on(host, f"cd {FOLDER} && rm {' '.join(gone)}")
    on("spark2", f"rm {FOLDER}/{shard(12)}")
    the_hub.faults.cut[shard(11)] = 40_000

    run = job("fetch", tmp_path / "state")

    assert run.status == 0, run.text
    assert all(right(host) for host in HOSTS)
    size = sizes()
    assert the_hub.sent() == {name: size[name] for name in gone}
    assert fetched(run, "spark1")[1]["moved_bytes"] == sum(size[name] for name in gone)
    assert set(fetched(run, "spark2")[1]["brought"]) == {*gone, shard(12)}


MAKE = """
set -e
rm -rf /srv/models/large && mkdir /srv/models/large && cd /srv/models/large
python3 - <<'END'
import hashlib, json, os
entries = []
for n in range(120):
    data = os.urandom(1 << 21)
    name = f"model-{n:05d}.safetensors"
    with open(name, "wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    sha256 = hashlib.sha256(data).hexdigest()
    entries.append({"name": name, "size": len(data), "sha256": sha256})
request = {"directory": "/srv/models/large", "lock": "a" * 64, "entries": entries, "full": False}
with open("/root/request.json", "w") as file:
    json.dump(request | {"links": "follow", "mount": None}, file)
END
"""


def asked(host: str, words: str) -> dict[str, Any]:
    return dict(json.loads(on(host, f"{PROGRAM} {words}").splitlines()[-2]))


def test_a_read_killed_at_60_percent_reads_less_than_45_percent_again(tmp_path: Path) -> None:
    lab("restore", "fresh")
    job("fetch", tmp_path)  # installs the program
    host = "spark2"
    on(host, MAKE)
    found = asked(host, "shards run 0 < /root/request.json")
    deadline = time.monotonic() + 120
    while not found["progress"] or found["progress"]["done"] < 0.6 * 120 * (1 << 21):
        assert time.monotonic() < deadline, found
        found = asked(host, "shards poll 0.5")
    on(host, "systemctl kill --signal=KILL spark-converge-shards")
    killed_at = asked(host, "shards poll 0")
    if killed_at["answer"]:
        pytest.fail("it was finished before it could be killed")
    answer = asked(host, "shards run 120 < /root/request.json")["answer"]
    assert answer["ok"] is True
    assert answer["bytes"] < 0.45 * 120 * (1 << 21)
    assert answer["bytes"] + answer["remembered_bytes"] == 120 * (1 << 21)
