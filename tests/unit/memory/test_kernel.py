"""A kernel that keeps memory from RDMA: refused where it is known for it, said where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from facts.state import state_of
from inventory.host_settings import shipped
from operations.memory.kernel import assess
from operations.run.findings import Finding, Look
from stacks.definition import Stack
from tests.plan.made_pair import bare, cluster, locked

LISTED = shipped().kernels_refused[0]
SIGN = {"CmaTotal": 0, "CmaFree": 940604}  # as DSpark-2x#259 has it


@pytest.fixture
def lab(tmp_path: Path) -> Stack:
    return locked("lab", tmp_path)


def found(lab: Stack, kernel: str, cma_kib: dict[str, int], launches: bool = True) -> list[Finding]:
    snapshot = bare(cluster(), 0, lab, lab)
    snapshot["boot"]["kernel"] = kernel
    snapshot["memory"]["meminfo_kib"] |= cma_kib
    look = Look(cluster(), 0, (state_of(snapshot),), lab, (lab,), shipped())
    return [one for one in assess(replace(look, launches=launches)) if one.name or one.sentences]


def test_a_listed_kernel_with_more_free_than_there_is_forbids_a_launch(lab: Stack) -> None:
    (line, *_) = found(lab, LISTED, SIGN)
    assert (line.kind, line.verdict) == ("refuse", "drift")
    assert line.found == f"{LISTED}, CmaFree 918 of CmaTotal 0 MiB"
    assert line.sentences[0].startswith(f"spark1: kernel {LISTED}, CmaFree 918")
    (line,) = found(lab, LISTED, SIGN, launches=False)
    assert (line.kind, line.sentences) == ("drift", ())


def test_of_another_kernel_the_same_sign_is_only_said(lab: Stack) -> None:
    line, advice = found(lab, "7.0.0-31-generic", SIGN)
    assert (line.kind, advice.kind) == ("ok", "advice")
    assert "kho=off" in advice.sentences[0]


@pytest.mark.parametrize(
    "cma_kib", [{}, {"CmaTotal": 0, "CmaFree": 0}, {"CmaTotal": 65536, "CmaFree": 65536}]
)
def test_a_kernel_without_the_sign_is_fine_listed_or_not(
    lab: Stack, cma_kib: dict[str, int]
) -> None:
    """With kho=off the listed one served [DSpark-2x#259]."""
    (line,) = found(lab, LISTED, cma_kib)
    assert (line.kind, line.found) == ("ok", LISTED)
