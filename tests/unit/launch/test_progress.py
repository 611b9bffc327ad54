"""Field case H09: what counts as getting on, and what is only talk."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.launch.progress import Progress, shape

SHARD = re.compile(r"loading shard (\d+)/\d+")


def progress() -> Progress:
    return Progress([SHARD])


def test_h09_shards_are_progress_for_as_long_as_they_come() -> None:
    watched = progress()
    for second in range(2400):
        assert watched.feed(
            [f"INFO 06:{second // 60:02d}:{second % 60:02d} loading shard {second}/2400"]
        )
    assert watched.latest == "loading shard 2399/2400"


CHATTER = [
    "2026-08-26T06:14:{n:02d}.{n:03d}Z rank 0: still waiting for rank 1",
    "[{n} s] waiting for the rendezvous at 192.168.100.1:{port}",
    "step {n}: retry in 0.{n} s (attempt {n}/100)",
    "W0826 06:00:{n:02d} 12{n} ProcessGroup.cpp:{n}] no answer from 0x7f3a{n:04x}",
    "heartbeat 3f9ac41e{n:04x} sent",
    "request 9b1deb4d-3b7d-4bad-9bdd-2b0d7b3d{n:04x} is waiting",
    "memory {n}.5 GiB used, {n}%",
]


@pytest.mark.parametrize("line", CHATTER)
def test_h09_chatter_that_differs_in_a_time_or_a_counter_is_none(line: str) -> None:
    watched = progress()
    said = [line.format(n=n, port=49152 + n) for n in range(60)]
    assert watched.feed(said[:1])
    assert not watched.feed(said[1:])


@given(st.lists(st.uuids(), min_size=2, max_size=20, unique=True))
def test_ids_do_not_make_a_line_new(ids: list[object]) -> None:
    assert len({shape(f"request {one} waits") for one in ids}) == 1


def test_a_counter_that_goes_back_or_stands_is_no_progress() -> None:
    watched = progress()
    assert watched.feed(["loading shard 50/120"])
    assert not watched.feed(["loading shard 49/120"])
    assert not watched.feed(["loading shard 50/120"])
    assert not watched.feed(["loading shard 1/120", "loading shard 50/120"])
    assert watched.feed(["loading shard 51/120"])


def test_the_other_numbers_of_a_counting_line_do_not_count() -> None:
    watched = progress()
    assert watched.feed(["06:00:01 loading shard 3/120, 1.1 GiB"])
    assert not watched.feed(["06:00:09 loading shard 3/121, 1.9 GiB"])


def test_each_pattern_has_a_counter_of_its_own() -> None:
    watched = Progress([SHARD, re.compile(r"captured graph (\d+)")])
    assert watched.feed(["loading shard 120/120"])
    assert watched.feed(["captured graph 1"])
    assert not watched.feed(["loading shard 2/120"])
    assert watched.feed(["captured graph 2"])


def test_zero_is_a_first_count() -> None:
    assert progress().feed(["loading shard 0/120"])


def test_a_new_kind_of_line_is_progress_once() -> None:
    watched = progress()
    assert watched.feed(["compiling kernels"])
    assert watched.feed(["allocating the KV cache"])
    assert not watched.feed(["compiling kernels"])


def test_every_line_of_a_batch_is_remembered() -> None:
    watched = progress()
    assert watched.feed(["first kind", "second kind", "loading shard 7/120"])
    assert not watched.feed(["second kind"])
    assert not watched.feed(["loading shard 7/120"])


def test_blank_lines_and_no_lines_are_none() -> None:
    watched = progress()
    assert not watched.feed([])
    assert not watched.feed(["", "   ", "\t"])
