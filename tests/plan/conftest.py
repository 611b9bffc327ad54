"""`python -m pyinfra` over @fake hosts: what a deploy would do where, and in which order."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from inventory.schema import Cluster
from stacks.definition import Stack
from tests.plan.made_pair import Snapshot, cluster_data, dirty, locked

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    """One pyinfra run. operations: (name, hosts that it would change), in the order of the plan."""

    status: int
    out: str
    err: str
    state_home: Path

    @property
    def operations(self) -> list[tuple[str, tuple[str, ...]]]:
        plan = json.loads(self.out)["plan"]
        return [
            (
                one["name"].split(" | ")[-1],
                tuple(sorted(h.removeprefix("@fake/") for h in one["hosts_with_change"])),
            )
            for one in plan
        ]

    @property
    def changes(self) -> list[tuple[str, tuple[str, ...]]]:
        return [one for one in self.operations if one[1]]

    def commands(self, host: str) -> list[str]:
        """First lines of the commands that were run on a host (with --debug only)."""
        mark = f"[fake] simulating command on @fake/{host}: "
        return [line.split(mark, 1)[1] for line in self.err.splitlines() if mark in line]

    def acts(self, host: str) -> list[str]:
        """Those of them that neither read nor, in a run that failed, give its lease back."""
        harmless = (" snapshot ", " lease release ")
        return [c for c in self.commands(host) if not any(words in c for words in harmless)]

    def refusal(self) -> list[str]:
        """The reasons of a refused run, each once, whatever line of it they stand on."""
        lines = (line.split("]", 1)[-1].strip() for line in self.err.splitlines())
        return list(dict.fromkeys(ln[2:] for ln in lines if ln.startswith("- ")))


# A run is a second of processor time: the same one is made once.
_runs: dict[tuple[object, ...], Run] = {}


class Warm:
    """tests/plan/warm.py, started with the first run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, line: str) -> int:
        """Exit status of one run; ends it and fails after two minutes."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "plan" / "warm.py")],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None
        assert told is not None
        asked.write(line + "\n")
        asked.flush()
        ready, _, _ = select.select([told], [], [], 120)
        if not ready:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None
            raise AssertionError(f"no end within two minutes: {line}")
        return int(told.readline())

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate()


_warm = Warm()


@pytest.fixture(scope="session", autouse=True)
def _ended() -> Iterator[None]:
    yield
    _warm.stop()


@dataclass(frozen=True)
class Pair:
    """An owner's file, its stacks, and what every host would answer; tests change it and run.

    answers: part of a command line -> what spark-host says to it, on all hosts.
    """

    folder: Path
    data: dict[str, Any]
    lab: Stack
    dsf: Stack
    snapshots: list[Snapshot]
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        return Cluster.model_validate(self.data)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.cluster.nodes)

    def run(self, deploy: str, *arguments: str, gone: str = "") -> Run:
        owner, answers = self.folder / "cluster.yaml", self.folder / "answers.json"
        owner.write_text(yaml.safe_dump(self.data))
        said = dict(zip(self.names, self.snapshots, strict=True))
        answers.write_text(json.dumps({**said, "answers": self.answers}))
        key = (owner.read_text(), answers.read_text(), deploy, arguments, gone)
        if key not in _runs:
            _runs[key] = self._run(owner, answers, f"deploys/{deploy}.py", arguments, gone)
        return _runs[key]

    def _run(
        self, owner: Path, answers: Path, deploy: str, arguments: tuple[str, ...], gone: str
    ) -> Run:
        environment = {
            "FAKE_CLUSTER": str(owner),
            "FAKE_STATES": str(answers),
            "FAKE_GONE": gone,
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYINFRA_PROGRESS": "off",
        }
        out, err = self.folder / "out", self.folder / "err"
        for path in (out, err):
            path.write_text("")
        words = ["tests/plan/fake_pair.py", deploy, *arguments]
        request = {"arguments": words, "env": environment, "out": str(out), "err": str(err)}
        status = _warm.ask(json.dumps(request))
        return Run(status, out.read_text(), err.read_text(), self.folder / "state")

    def plan(self, deploy: str, *arguments: str, gone: str = "") -> Run:
        return self.run(deploy, "--dry", "--json", *arguments, gone=gone)


@pytest.fixture(scope="session")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("locks")


@pytest.fixture
def pair(tmp_path: Path, locks: Path) -> Callable[..., Pair]:
    """Make a cluster of `hosts` dirty hosts; further words change its owner's file."""

    def make(hosts: int = 2, **changes: Any) -> Pair:
        data = cluster_data(hosts, lock_dir=str(locks), **changes)
        lab, dsf = locked("lab", locks), locked("dsf-lab", locks)
        wanted = Cluster.model_validate(data)
        snapshots = [dirty(wanted, rank, lab, dsf) for rank in range(hosts)]
        return Pair(tmp_path, data, lab, dsf, snapshots)

    return make
