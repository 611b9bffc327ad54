"""The acceptance tests as a person runs them, as a program of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from tests.running_lab import REPOSITORY, ssh_config


def failing(hosts: Sequence[str], *options: str) -> set[str]:
    """`test on host` (with its parameter) for each acceptance test that fails or errs.

    + options: for pytest, such as ``-k`` and words

    Raises AssertionError when no test ran.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "tests/acceptance", "-q"),
                f"--hosts={','.join(f'ssh://{host}' for host in hosts)}",
                f"--ssh-config={ssh_config()}",
                *("--sudo", "--cluster=inventory/lab.yaml", f"--junitxml={report}", *options),
                *("-p", "no:cacheprovider"),
            ],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert report.exists(), done.stdout + done.stderr
        # Written by the pytest started above.
        cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314
    assert any(case.find("skipped") is None for case in cases), done.stdout
    return {
        case.get("name", "")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
