"""One byte of the model that is not the pinned one, on one host."""

from __future__ import annotations

from pathlib import Path

from tests.running_lab import HOSTS, completion, job, on

SHARD = "/srv/models/lab/model-00077-of-00120.safetensors"
FLIP = f"""
set -eu
before=$(stat -c '%s %Y' {SHARD})
python3 - <<'END'
with open("{SHARD}", "r+b") as file:
    file.seek(-1, 2)
    last = file.read(1)[0]
    file.seek(-1, 2)
    file.write(bytes([last ^ 1]))
END
touch -d "@${{before#* }}" {SHARD}
test "$before" = "$(stat -c '%s %Y' {SHARD})"
"""
IDS = "docker ps --all --no-trunc --format '{{.ID}} {{.State}}'"


def test_flipped_byte_is_named_and_nothing_is_launched(fresh: None, state_home: Path) -> None:
    on("spark2", FLIP)
    before = [on(host, IDS) for host in HOSTS]

    run = job("serve", state_home)

    assert run.status == 1, run.text
    named = [line for line in run.text.splitlines() if "model-00077-of-00120" in line]
    assert named, run.text
    assert run.receipt["ok"] is False
    assert "spark2" in run.receipt["reason"]
    assert "model-00077-of-00120.safetensors" in run.receipt["reason"]
    assert "Traceback" not in run.text
    assert [on(host, IDS) for host in HOSTS] == before
    assert "391" in completion("dsf-lab")


def test_flipped_byte_is_found_although_the_files_were_proven_before(
    served: None, state_home: Path
) -> None:
    on("spark2", FLIP)
    run = job("serve", state_home)
    assert run.status == 1, run.text
    assert "model-00077-of-00120.safetensors" in run.receipt["reason"]
