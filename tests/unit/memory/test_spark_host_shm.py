"""Segments in /dev/shm: dead ones of engines go, live and foreign ones stay (field case F09)."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.on_host import module

shm = module("memory.shm")

HOLD = {
    # mmap keeps a descriptor of its own: the map alone must be enough
    "maps": "m = mmap.mmap(f.fileno(), 0); os.closerange(3, 64)",
    "open": "pass",
}


@contextmanager
def holder(path: Path, how: str) -> Iterator[None]:
    """Another process that maps the file (its descriptor closed), or has it open."""
    opened = f"import mmap, os, sys; f = open({str(path)!r}, 'r+b')"
    script = f"{opened}; {HOLD[how]}; print('held', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        yield
    finally:
        process.communicate()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "shm"
    place.mkdir()
    monkeypatch.setattr(shm, "FOLDER", str(place))
    return place


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"x" * 64)


def verdicts(segments: list[dict[str, Any]]) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in segments}


def test_f09_dead_ones_of_known_patterns_are_leftovers_and_the_rest_is_not_ours(
    folder: Path,
) -> None:
    ours = ("psm_3f9ac41e", "sem.loky-4711", "torch_48213_27_0", "mp-7h2m0c1d", "vllm_shm_6b1f")
    others = (
        "PostgreSQL.2891",
        "pulse-shm-123",
        "xpsm_1",
        "lttng-ust-wait-8",
        ".psm_1",
        "semaphore",
    )
    make(folder, *ours, *others)
    assert verdicts(shm.segments()) == dict.fromkeys(ours, "leftover") | dict.fromkeys(
        others, "foreign"
    )
    assert {one["bytes"] for one in shm.segments()} == {64}


@pytest.mark.parametrize("how", ["maps", "open"])
def test_f09_a_segment_that_a_process_holds_is_live_and_stays(folder: Path, how: str) -> None:
    make(folder, "psm_live", "psm_dead", "sem.live")
    with holder(folder / "psm_live", how), holder(folder / "sem.live", how):
        answer = shm.clean()
    assert [one["name"] for one in answer["removed"]] == ["psm_dead"]
    assert verdicts(answer["left"]) == {"psm_live": "live", "sem.live": "live"}
    assert (folder / "psm_live").exists()


def test_a_descriptor_that_is_closed_meanwhile_hides_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server that opens and closes sockets all the time."""
    make(folder, "psm_live")
    real = os.listdir

    def listdir(path: Any = ".") -> Any:
        return (["4711"] if str(path).endswith("/fd") else []) + real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    with holder(folder / "psm_live", "open"):
        assert verdicts(shm.segments()) == {"psm_live": "live"}


def test_f09_once_its_process_has_ended_it_is_a_leftover(folder: Path) -> None:
    make(folder, "psm_live")
    with holder(folder / "psm_live", "maps"):
        assert verdicts(shm.segments()) == {"psm_live": "live"}
    assert verdicts(shm.segments()) == {"psm_live": "leftover"}


def test_f09_a_link_is_not_followed_and_not_removed(folder: Path, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "psm_inside").write_text("keep")
    (folder / "psm_link").symlink_to(treasure)
    (folder / "psm_dangling").symlink_to(tmp_path / "nowhere")
    (folder / "psm_folder").mkdir()
    answer = shm.clean()
    assert answer["removed"] == []
    assert set(verdicts(answer["left"]).values()) == {"special"}
    assert (treasure / "psm_inside").read_text() == "keep"
    assert (folder / "psm_link").is_symlink()


def test_nothing_but_leftovers_is_touched(folder: Path) -> None:
    make(folder, "PostgreSQL.2891", "psm_dead")
    shm.clean()
    assert [path.name for path in folder.iterdir()] == ["PostgreSQL.2891"]


def test_a_name_that_only_begins_like_a_live_one_is_judged_by_itself(folder: Path) -> None:
    make(folder, "psm_1", "psm_12")
    with holder(folder / "psm_12", "maps"):
        assert verdicts(shm.segments()) == {"psm_1": "leftover", "psm_12": "live"}


def test_odd_names_are_found_in_the_maps_all_the_same(folder: Path) -> None:
    make(folder, "psm_with space", "psm_(deleted)")
    with holder(folder / "psm_with space", "maps"), holder(folder / "psm_(deleted)", "maps"):
        assert set(verdicts(shm.segments()).values()) == {"live"}


def test_a_segment_that_is_born_meanwhile_is_not_taken_for_dead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[[], set[str]] = shm.held_open

    def slow() -> set[str]:
        found = real()
        make(folder, "psm_newborn")  # an engine starts right after its /proc entry was passed
        return found

    monkeypatch.setattr(shm, "held_open", slow)
    assert "psm_newborn" not in verdicts(shm.segments())


def test_a_leftover_that_goes_by_itself_is_no_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(folder, "psm_a", "psm_b")
    real: Callable[[], list[dict[str, Any]]] = shm.segments

    def raced() -> list[dict[str, Any]]:
        found = real()
        (folder / "psm_a").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(shm, "segments", raced)
    answer = shm.clean()
    assert [one["name"] for one in answer["removed"]] == ["psm_b"]
    assert answer["left"] == []


def test_the_real_folder_with_a_real_segment() -> None:
    """As the program itself runs, on this machine's own /dev/shm, with a name of our own."""
    path = Path("/dev/shm") / f"psm_test_{uuid.uuid4().hex}"  # noqa: S108 - the folder in question
    path.write_bytes(b"x")
    try:
        with holder(path, "maps"):
            assert verdicts(shm.segments())[path.name] == "live"
        assert verdicts(shm.segments())[path.name] == "leftover"
    finally:
        path.unlink()


@pytest.mark.parametrize(
    "name",
    ["sgl_shm_0_1", "nccl-Ab3xQz", "cuda.shm.3e8.1a2b.1", "lmcache_pool_0", "sem.mp-x", "vllm_ipc",
     "psm_1", "torch_1_2_3", "ucx_shm_posix_7f", "mp-1"],
)  # fmt: skip
def test_what_an_engine_of_the_field_leaves_is_known_and_says_whose_it_is(
    folder: Path, name: str
) -> None:
    make(folder, name)
    assert verdicts(shm.segments()) == {name: "leftover"}
    with holder(folder / name, "maps"):
        assert verdicts(shm.segments()) == {name: "live"}
    assert all(shm.PATTERNS.values())


@pytest.mark.parametrize("name", ["PostgreSQL.2891", "new_engine_0", "my sgl_shm_0", "Nccl-1"])
def test_what_is_dead_and_unknown_is_said_with_its_size_and_stays(folder: Path, name: str) -> None:
    make(folder, name)
    (one,) = shm.clean()["left"]
    assert (one["name"], one["bytes"], one["dead"]) == (name, 64, True)
    with holder(folder / name, "open"):
        assert [one["dead"] for one in shm.segments()] == [False]
