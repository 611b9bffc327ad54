"""The faults file: what counts as a fault, and what is reported as none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine import faults


def test_no_file_no_faults(tmp_path: Path) -> None:
    assert faults.read(tmp_path / "faults") == {}


def test_names_values_comments(tmp_path: Path) -> None:
    path = tmp_path / "faults"
    path.write_text("# a comment\nstall-at-shard = 17\n\nanswer-empty\nslow-load=2.5 # seconds\n")
    assert faults.read(path) == {"stall-at-shard": 17, "answer-empty": 1, "slow-load": 2.5}


@pytest.mark.parametrize("line", ["stall", "stall-at-shard", "slow-load=soon", "answer-empty=1"])
def test_a_wrong_line_is_told_once(
    tmp_path: Path, line: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_told", set())
    path = tmp_path / "faults"
    path.write_text(f"{line}\ncompletions-hang\n")
    assert faults.read(path) == faults.read(path) == {"completions-hang": 1}
    assert capfd.readouterr().out.count(f"'{line}' is not a fault") == 1
