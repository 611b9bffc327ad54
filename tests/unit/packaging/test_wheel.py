"""What an installation brings, and that jobs run by their paths from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = {"deploys", "facts", "files", "gates", "inventory", "operations", "stacks"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installation does it."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"


# As pyinfra loads an inventory.
LOADED = """
import runpy, sys
from pyinfra.api import Config
from pyinfra.context import ctx_config
ctx_config.set(Config())
runpy.run_path(sys.argv[1])
"""


def python(folder: Path, *words: str) -> str:
    """What this Python prints, started in `folder`."""
    environment = os.environ | {"SPARK_INVENTORY": str(ROOT / "inventory" / "sparks.yaml")}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_wheel_puts_one_name_into_an_environment(wheel: Path) -> None:
    names = {entry.name for entry in wheel.iterdir() if not entry.name.endswith(".dist-info")}
    assert names == {"spark_converge"}
    assert {entry.name for entry in (wheel / "spark_converge").iterdir()} == ROOMS


def test_the_wheel_has_the_on_host_program_and_nothing_of_the_lab(wheel: Path) -> None:
    assert (wheel / "spark_converge/files/bin/spark_host/__main__.py").is_file()
    assert [path for path in wheel.rglob("*") if path.stem in ("lab", "dsf-lab", "tests")] == []


def test_the_wheel_is_used_by_its_paths_and_with_its_own_modules(
    wheel: Path, tmp_path: Path
) -> None:
    path = wheel / "spark_converge/inventory/sparks.py"
    assert "spark1" in python(tmp_path, "-m", "pyinfra", str(path), "debug-inventory")
    script = "import deploys.steps, facts, operations, stacks; print(operations.__file__)"
    shown = python(tmp_path, "-c", LOADED + script, str(path))
    assert shown.strip() == str(wheel / "spark_converge/operations/__init__.py")


def test_a_clone_is_used_by_its_paths_though_another_facts_is_near(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "__pycache__", "tests"))
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "__init__.py").write_text("raise SystemExit('another package')\n")
    script = "import facts, inventory.hosts; print(facts.__file__)"
    shown = python(tmp_path, "-c", LOADED + script, str(clone / "inventory/sparks.py"))
    assert shown.strip() == str(clone / "facts/__init__.py")
