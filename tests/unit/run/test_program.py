"""The on-host program installed: the shell text itself, ended at each of its steps."""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from facts.run.program import INSTALLED, program_sha256
from operations.run.program import EXCHANGE, install_command

TOOLS = ("rm", "mkdir", "base64", "python3", "find", "sync", "mv", "ln")
# Ends the shell that is about to run its step number $AT.
TOOL = """#!/bin/sh
echo x >> {top}/steps
if [ "$(wc -l < {top}/steps)" -eq "$AT" ]; then kill -9 $PPID; exit 1; fi
exec {real} "$@"
"""
OLD, NEW = "print('old')\n", "print('new')\n"


def archive(text: str) -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("__main__.py", text)
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A host's folder, and tools that count."""
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        tool = tmp_path / "bin" / name
        tool.write_text(TOOL.format(top=tmp_path, real=shutil.which(name)))
        tool.chmod(0o755)
    return tmp_path


def install(top: Path, text: str, at: int = 0) -> int:
    """Its exit status; at: the step at which it is ended."""
    (top / "steps").write_text("")
    command = install_command().replace(INSTALLED, str(top / "lib" / "spark_host"))
    path = f"{top / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command], input=archive(text), text=True, capture_output=True, check=False,
        env={"PATH": path, "AT": str(at)},
    )  # fmt: skip
    return done.returncode


def ran(top: Path) -> str:
    home = top / "lib" / "spark_host"
    if not os.path.lexists(home):
        return "none"
    assert (home / "SHA256").read_text().strip() == program_sha256()
    return subprocess.run(
        ["python3", "-I", home], text=True, capture_output=True, check=True
    ).stdout.strip()


def names(top: Path) -> list[str]:
    return sorted(path.name for path in (top / "lib").iterdir())


def before(top: Path, found: str) -> None:
    """What an install finds: nothing, the folder of the version before, the link of this one."""
    shutil.rmtree(top / "lib", ignore_errors=True)
    if found == "none":
        return
    if not (top / "old").exists():
        assert install(top, OLD) == 0
        (top / "lib").rename(top / "old")
    shutil.copytree(top / "old", top / "lib", symlinks=True)
    if found == "folder":
        home = top / "lib" / "spark_host"
        target = home.resolve()
        home.unlink()
        target.rename(home)


@pytest.mark.parametrize("found", ["none", "folder", "link"])
def test_ended_at_any_step_there_is_one_whole_program_or_none_yet(top: Path, found: str) -> None:
    seen = []
    for at in range(1, 40):
        before(top, found)
        status = install(top, NEW, at)
        seen.append(ran(top))
        assert install(top, NEW) == 0
        assert ran(top) == "new"
        link, folder = names(top)
        assert os.readlink(top / "lib" / link) == folder  # noqa: PTH115 - the text itself
        if status == 0:
            break
    assert len(seen) > 12
    assert {*seen} == {"none" if found == "none" else "old", "new"}
    assert seen == sorted(seen, key=lambda word: word == "new"), "once it is new it stays new"


def test_a_folder_is_replaced_also_where_two_names_cannot_change_at_once(top: Path) -> None:
    before(top, "folder")
    home = top / "lib" / "spark_host"
    (top / "lib" / "spark_host.new").symlink_to("spark_host.7")
    none = EXCHANGE.replace("renameat2(-100, new, -100, old, 2)", "getpid()")
    subprocess.run(["python3", "-I", "-c", none, f"{home}.new", home], check=True)
    assert os.readlink(home) == "spark_host.7"  # noqa: PTH115
    assert (top / "lib" / "spark_host.old" / "__main__.py").read_text() == OLD


def test_a_program_that_somebody_changed_is_replaced_and_never_written_into(top: Path) -> None:
    before(top, "link")
    folder = (top / "lib" / "spark_host").resolve()
    (folder / "__main__.py").write_text("print('another')\n")
    assert install(top, NEW) == 0
    assert ran(top) == "new"
    assert not folder.exists()


def test_an_archive_that_was_cut_short_changes_nothing(top: Path) -> None:
    before(top, "link")
    command = install_command().replace(INSTALLED, str(top / "lib" / "spark_host"))
    done = subprocess.run(
        ["sh", "-c", command], input=archive(NEW)[:-40], text=True, capture_output=True, check=False
    )
    assert done.returncode != 0
    assert ran(top) == "old"
