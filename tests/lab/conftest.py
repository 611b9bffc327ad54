"""Lab tests: the pair must be up (`python -m lab up`); they restore what they need."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.running_lab import HOSTS, FirstServe, job, lab, planned, reading, snapshots


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """test_serve first: it takes the snapshot `served` that the others begin from."""
    items.sort(key=lambda item: item.path.name != "test_serve.py")


@pytest.fixture(scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where receipts and collected logs go."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def first_serve(state_home: Path) -> FirstServe:
    """The pair served from `fresh`, once; kept as the snapshot `served`."""
    lab("restore", "fresh")
    fresh = {host: reading(host) for host in HOSTS}
    plan = planned("serve", state_home)
    after = {host: reading(host) for host in HOSTS}
    run = job("serve", state_home)
    ended = time.monotonic()
    assert run.status == 0, run.text
    lab("snapshot", "served")
    return FirstServe(fresh, plan, after, run, ended)


@pytest.fixture
def served(request: pytest.FixtureRequest) -> None:
    """The pair as serve left it."""
    if "served" not in snapshots():
        request.getfixturevalue("first_serve")
    lab("restore", "served")
