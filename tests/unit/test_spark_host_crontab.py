"""Crontabs as spark-host reads them, and watchdogs that run at this moment."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import module

crontab = module("crontab")
ODD = b"MAILTO=x\r\n*/5\t* * * * /bin/true 2>&1 \\%F %x & # \xff\xc3\xa9"


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """User crontabs in a folder; no system tables."""
    folder = tmp_path / "crontabs"
    folder.mkdir()
    monkeypatch.setattr(crontab, "FOLDER", str(folder))
    monkeypatch.setattr(crontab, "SYSTEM", ())
    monkeypatch.setattr(crontab, "DROP_INS", str(tmp_path / "cron.d"))
    return folder


def section() -> dict[str, Any]:
    found: dict[str, Any] = crontab.section({"words": []})
    return found


def test_a_table_travels_as_bytes_with_its_mode_and_owner(spool: Path) -> None:
    path = spool / "root"
    path.write_bytes(ODD)
    path.chmod(0o600)
    found = section()["users"]["root"]
    assert base64.b64decode(found["b64"]) == ODD
    assert (found["mode"], found["uid"]) == (0o600, path.stat().st_uid)


def test_scripts_that_start_containers_are_named_as_in_the_line(spool: Path) -> None:
    starter, other = spool.parent / "ready.sh", spool.parent / "backup.sh"
    starter.write_text("#!/bin/sh\ndocker compose up -d\n")
    other.write_text("#!/bin/sh\nrsync /srv /mnt\n")
    program = spool.parent / "program"
    program.write_bytes(b"\x7fELF\0docker")
    (spool / "root").write_text(
        f"* * * * * {starter} >> /var/log/x 2>&1\n0 1 * * * {other}\n0 2 * * * {program}\n"
    )
    assert section()["starters"] == [str(starter)]


def test_a_script_is_found_in_a_line_that_is_held(spool: Path) -> None:
    """Else nobody could say what a held line is for."""
    starter = spool.parent / "ready.sh"
    starter.write_text("docker start x\n")
    (spool / "root").write_text(f"#SPARK-HELD-20260826 * * * * * {starter}\n")
    assert section()["starters"] == [str(starter)]


@pytest.mark.parametrize("name", ["tmp.Xa1", ".root.spark-converge-new", ".placeholder"])
def test_what_crontab_or_a_cut_off_write_left_is_no_users_table(spool: Path, name: str) -> None:
    (spool / name).write_text("* * * * * docker start x\n")
    (spool / "folder").mkdir()
    assert section()["users"] == {}


def test_a_host_without_cron_says_so(spool: Path) -> None:
    spool.rmdir()
    assert section() == {"users": {}, "system": {}, "starters": [], "installed": False}


# A watchdog that runs while its line is held


def started(script: Path, body: str) -> subprocess.Popen[bytes]:
    """The script as cron runs it, by a shell; waits until it is under way."""
    script.write_text(f"echo under way\n{body}\n")
    process = subprocess.Popen(
        ["/bin/sh", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"under way\n"
    return process


def test_an_instance_that_ends_by_itself_is_awaited(tmp_path: Path) -> None:
    script = tmp_path / "ready.sh"
    process = started(script, "sleep 0.2")
    assert crontab.running(str(script)) == [process.pid]
    began = time.monotonic()
    # a shell that has ended stays in /proc until it is reaped, without a command line
    assert crontab.settle([str(script)], 20) == {"ended": []}
    assert time.monotonic() - began < 5
    assert process.wait(5) == 0


def test_an_instance_that_stays_is_ended_and_said(tmp_path: Path) -> None:
    script = tmp_path / "ready.sh"
    process = started(script, f"exec {sys.executable} -c 'import time; time.sleep(60)' {script}")
    answer = crontab.settle([str(script)], 0)
    assert answer == {"ended": [{"pid": process.pid, "script": str(script)}]}
    assert process.wait(5) == -15


def test_another_script_whose_name_begins_alike_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "ready.sh"
    process = started(tmp_path / "ready.sh.old", "read line")
    try:
        assert crontab.running(str(script)) == []
        assert crontab.settle([str(script)], 0) == {"ended": []}
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_bare_name_stands_for_the_script_in_any_folder(tmp_path: Path) -> None:
    process = started(tmp_path / "ready.sh", "read line")
    try:
        assert crontab.running("ready.sh") == [process.pid]
        assert crontab.running("./ready.sh") == [process.pid]
        assert crontab.running("eady.sh") == []
    finally:
        process.kill()
        process.wait()
