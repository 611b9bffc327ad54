"""Fault tests begin from the snapshots `fresh` and `served` (tests/lab takes the latter)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running_lab import job, lab, snapshots


@pytest.fixture
def state_home(tmp_path: Path) -> Path:
    """Where receipts and collected logs go."""
    return tmp_path / "state"


@pytest.fixture
def fresh() -> None:
    """The dirty pair, the old stack answering."""
    lab("restore", "fresh")


@pytest.fixture
def served(state_home: Path) -> None:
    """The pair as serve left it."""
    if "served" not in snapshots():
        lab("restore", "fresh")
        run = job("serve", state_home)
        assert run.status == 0, run.text
        lab("snapshot", "served")
    lab("restore", "served")
