"""A trial of the fabric is not begun over one that is still open."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from facts.run.program import PROGRAM
from tests.unit.on_host import module, tree

fabric, journal = module("network.fabric"), module("run.journal")
PLAN: dict[str, Any] = {
    "files": {"60-new.yaml": "network: {}\n"},
    "shadow": [],
    "delete_links": [],
    "created_links": [],
    "devices": [],
}


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The trial's unit as systemctl names its state, and what was run."""
    said: dict[str, Any] = {"state": "inactive", "ran": []}

    def run(argv: list[str], *_: Any, **__: Any) -> tuple[int, str, str]:
        said["ran"].append(argv[0])
        if argv[:2] == ["systemctl", "is-active"]:
            assert argv[2] == fabric.UNIT
            return (0 if said["state"] == "active" else 3), f"{said['state']}\n", ""
        return 0, "", ""

    monkeypatch.setattr(fabric, "run", run)
    monkeypatch.setattr(fabric.live, "live", lambda _: {})
    for name in ("STATE", "TRIAL", "ETC"):
        monkeypatch.setattr(fabric, name, str(tmp_path / name.lower()))
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "journal"))
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(PLAN)))
    return said


@pytest.mark.parametrize("state", ["active", "activating", "deactivating"])
@pytest.mark.parametrize(("left_s", "wait_s"), [(100.0, 170), (-20.0, 70)])
def test_an_open_trial_is_left_as_it_is(
    tmp_path: Path, unit: dict[str, Any], state: str, left_s: float, wait_s: int
) -> None:
    unit["state"] = state
    (tmp_path / "state").mkdir()
    old = PLAN | {"deadline_s": time.monotonic() + left_s}
    (tmp_path / "state" / "plan").write_text(json.dumps(old))
    (tmp_path / "state" / "confirmed").touch()
    before = tree(tmp_path)
    answer = fabric.start(180)
    assert answer["ok"] is False
    told, seconds = answer["message"].rsplit(" in ", 1)
    assert told == (
        "an earlier trial of the fabric is still open or being reverted; run this again"
    )
    assert wait_s - 2 <= int(seconds.split()[0]) <= wait_s
    assert tree(tmp_path) == before
    assert "systemd-run" not in unit["ran"]


@pytest.mark.parametrize("state", ["inactive", "failed", "unknown"])
def test_a_trial_begins_where_none_is_open(
    tmp_path: Path, unit: dict[str, Any], state: str
) -> None:
    unit["state"] = state
    assert fabric.start(180) == {}
    assert unit["ran"][-1] == "systemd-run"
    assert (tmp_path / "trial" / "60-new.yaml").read_text() == "network: {}\n"
    plan = json.loads((tmp_path / "state" / "plan").read_text())
    assert 170 < plan["deadline_s"] - time.monotonic() <= 180


def test_the_merge_is_made_on_paper_with_and_without_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ETC", "etc"), ("TRIAL", "run"), ("VENDOR", "lib")):
        monkeypatch.setattr(fabric, name, f"{tmp_path}/{value}/netplan")
    (tmp_path / "etc/netplan").mkdir(parents=True)
    (tmp_path / "etc/netplan/40-old.yaml").write_text("old: 1\n")
    before = tree(tmp_path)
    plan = PLAN | {"shadow": ["40-old.yaml"]}
    monkeypatch.setattr(
        fabric, "netplan", lambda root, *words: f"{words[0]} {sorted(seen(Path(root), tmp_path))}"
    )
    assert fabric.merged(plan) == {
        "before": "get ['40-old.yaml: old: 1']",
        "after": "get ['40-old.yaml: network:', '60-new.yaml: network: {}']",
    }
    assert tree(tmp_path) == before


def seen(root: Path, top: Path) -> list[str]:
    """First line of each file that netplan finds below the scratch root."""
    folder = Path(f"{root}{top}/etc/netplan")
    return [f"{p.name}: {p.read_text().splitlines()[0]}" for p in folder.iterdir()]


def test_a_netplan_that_refuses_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "run", lambda _: (78, "", "Error in network definition\n"))
    with pytest.raises(module("run.command").Failed, match="Error in network definition"):
        fabric.netplan("/scratch", "generate")


@pytest.mark.parametrize("mask", ["077", "027", "022"])
def test_what_netplan_makes_is_readable_for_networkd_whatever_roots_umask(
    tmp_path: Path, mask: str
) -> None:
    """Older netplan leaves the mode of what it generates to the umask; sudo may hand down any."""
    stub = tmp_path / "netplan"
    stub.write_text(f'#!/bin/sh\n[ "$1" = generate ] && : > {tmp_path}/made.network\nexit 0\n')
    stub.chmod(0o755)
    program = f"umask {mask}; exec {sys.executable} {PROGRAM} fabric check"
    done = subprocess.run(
        ["sh", "-c", program],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        input=json.dumps(PLAN),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made.network").stat().st_mode & 0o777 == 0o644
