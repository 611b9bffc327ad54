"""GPU clocks: when they count as locked, what a GPU cannot do, and the boot unit's own words."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from facts.look.machine import Gpus, gpus
from facts.run.unknown import Unknown
from facts.state import HostState, state_of
from operations.clocks.gpu import UNIT, UNIT_PATH, not_offered, seen, unit_text, unlocked
from tests.plan.made_pair import GPU, absent_unit, file_of, unit
from tests.unit.on_host import module

SPAN = (300, 2450)
RUNS = unit(UNIT, "active", "enabled")


def state(own: Any, boot_unit: dict[str, Any], **answers: str) -> HostState:
    """answers: of nvidia-smi, beside those of a Spark's GPU at rest."""
    row = GPU | {name.replace("__", "."): text for name, text in answers.items()}
    return state_of(
        {
            "files": {UNIT_PATH: own},
            "services": {"units": {UNIT: boot_unit}, "triggers": {}},
            "gpu": {"gpus": [row]},
        }
    )


def why_not(found: HostState) -> list[str]:
    there = seen(found)
    assert isinstance(there, Gpus)
    return unlocked(found, there, SPAN)


OWN = file_of(unit_text(SPAN), 0o644)


def test_clocks_are_locked_when_our_unit_set_them_since_the_start() -> None:
    assert why_not(state(OWN, RUNS)) == []


@pytest.mark.parametrize(
    ("own", "boot_unit", "why"),
    [
        (None, absent_unit(UNIT), "is absent"),
        (file_of(unit_text((300, 2000))), RUNS, "is for other clocks"),
        (OWN, unit(UNIT, "active", "disabled"), "is not enabled"),
        (OWN, unit(UNIT, "failed", "enabled"), "is failed"),
    ],
)
def test_what_is_wrong_with_the_unit_is_said(own: Any, boot_unit: dict[str, Any], why: str) -> None:
    assert why_not(state(own, boot_unit)) == [f"{UNIT} {why}"]


def test_a_clock_above_the_lock_shows_that_it_is_lost() -> None:
    assert why_not(state(OWN, RUNS, clocks__sm="2600")) == ["NVIDIA GB10 at 2600 MHz"]


@pytest.mark.parametrize("answer", ["[N/A]", "Not Supported", ""])
def test_f07_answers_that_are_not_available_say_nothing_against_the_lock(answer: str) -> None:
    found = state(OWN, RUNS, clocks__sm=answer, clocks__max__sm=answer, memory__total=answer)
    assert why_not(found) == []
    there = seen(found)
    assert isinstance(there, Gpus)
    assert there.found is not None
    assert (there.found[0].unified, there.found[0].top_mhz) == (True, None)
    assert not_offered(there, (5000, 6000)) == []


def test_a_lock_above_what_the_gpu_can_do_is_said() -> None:
    there = gpus({"gpus": [GPU]})
    assert not_offered(there, (3100, 3200)) == [
        "NVIDIA GB10 runs at 3003 MHz at most, below clocks.gpu_mhz 3100"
    ]
    assert not_offered(there, (300, 3200)) == []


def test_no_nvidia_smi_and_a_gpu_that_was_not_asked_for_are_told_apart() -> None:
    assert seen(state_of({"gpu": {"gpus": None}})) == Gpus(None, None)
    assert isinstance(seen(state_of({})), Unknown)


# The host's side


def stub(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$*" >> {folder}/calls\n{answer}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("echo 'NVIDIA GB10, [N/A], [N/A], 51, 208, 0x1, [N/A], [N/A]'", 1),
        ("true", {"unread": "nvidia-smi named no GPU"}),
        ("echo 'No devices were found'", {"unread": "nvidia-smi named no GPU"}),
        ("echo 'Driver mismatch'; exit 18", {"unread": "Driver mismatch"}),
    ],
)
def test_f07_odd_answers_are_no_gpu_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, found: Any
) -> None:
    stub(tmp_path, monkeypatch, answer)
    section = module("clocks.gpu").section({})
    there = gpus(section)
    if isinstance(found, int):
        assert there.found is not None
        assert (len(there.found), there.found[0].celsius, there.found[0].unified) == (1, 51, True)
    else:
        assert section["gpus"] == found
        assert there.unread == found["unread"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("echo 'GPU clocks set to \"(gpuClkMin 300, gpuClkMax 2450)\" for GPU 0'", 0),
        ("echo 'Setting locked GPU clocks is not supported for GPU 0. Treating as warning.'", 1),
        ("echo 'Not Supported'", 1),
        ("echo 'Insufficient Permissions' >&2; exit 4", 4),
    ],
)
def test_the_boot_unit_fails_where_the_gpu_takes_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    stub(tmp_path, monkeypatch, answer)
    text = unit_text(SPAN).decode()
    commands = dict(re.findall(r"^(Exec\w+)=(.*)$", text, re.MULTILINE))
    for name in ("ExecStart", "ExecStop"):
        done = subprocess.run(shlex.split(commands[name]), check=False, capture_output=True)
        assert name == "ExecStop" or done.returncode == status
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["--lock-gpu-clocks=300,2450", "--reset-gpu-clocks"]
