"""Run a program on this host and keep what it said."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

# This program's own folder, as it was started.
PROGRAM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Failed(Exception):
    """A program that was needed did not run, or said no."""


def run(
    argv: Sequence[str], timeout_s: float = 60, stdin: str | None = None
) -> tuple[int, str, str]:
    """Return (exit status, stdout, stderr) as text; 127 when the program is not there.

    What is not UTF-8 becomes U+FFFD: docker cuts long log lines in the middle of a character.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError:
        return 127, "", f"{argv[0]}: not installed"
    except subprocess.TimeoutExpired:
        return 124, "", f"{argv[0]}: no answer in {timeout_s} s"
    return done.returncode, done.stdout, done.stderr


def which(name: str) -> bool:
    """Is there such a program? By hand: shutil loads much that a read of a host does not need."""
    folders = os.environ.get("PATH", os.defpath).split(":")
    return any(os.access(f"{folder}/{name}", os.X_OK) for folder in folders)


def read(path: str) -> str | None:
    """Text of a small file, None when it is absent or refuses to be read (EBUSY, ENXIO)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
