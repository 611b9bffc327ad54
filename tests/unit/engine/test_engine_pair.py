"""What two ranks do together, and how they hang when one is gone."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lab.stacks import model

if TYPE_CHECKING:
    from tests.unit.engine.conftest import Ranks


def test_a_pair_answers(running: Ranks) -> None:
    answer = running.ask("What is 17*23?").json()
    assert answer["model"] == "tiny"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "391"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 1
    assert running.content("Reply with exactly: SPARK_OK") == "SPARK_OK"
    model_entry = running.get("/v1/models").json()["data"][0]
    assert (model_entry["id"], model_entry["max_model_len"]) == ("tiny", model.MAX_MODEL_LEN)
    assert running.get("/version").json() == {"version": "0+source"}


def test_the_checksum_needs_the_tensors_of_both(ranks: Ranks) -> None:
    ranks.start_pair()
    before = ranks.content("hello")
    assert before == ranks.content("hello")
    ranks.stop()
    # Other numbers in the half of each tensor that the worker holds, nothing else.
    for shard in ranks.model.glob("*.safetensors"):
        content = bytearray(shard.read_bytes())
        content[-8192:] = bytes(8192)
        shard.write_bytes(content)
    ranks.start_pair()
    assert ranks.content("hello") != before


def test_streaming_gives_the_same_text_and_usage(running: Ranks) -> None:
    plain = running.ask("hello").json()
    streamed = running.ask("hello", stream=True, stream_options={"include_usage": True})
    assert streamed.headers["content-type"] == "text/event-stream"
    events = [line.removeprefix("data: ") for line in streamed.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    text = "".join(delta.get("content", "") for delta in deltas)
    assert text == plain["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == plain["usage"]
    without = running.ask("hello", stream=True).text
    assert '"usage"' not in without


def test_max_tokens_cuts_the_answer(running: Ranks) -> None:
    answer = running.ask("hello", max_tokens=3).json()
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["choices"][0]["finish_reason"] == "length"


def test_wrong_requests_get_an_error_body(running: Ranks) -> None:
    wrong_model = running.post({"model": "other", "messages": [{"role": "user", "content": "x"}]})
    assert wrong_model.status_code == 404
    assert "'tiny' is served" in wrong_model.json()["error"]["message"]
    assert running.post({"model": "tiny"}).status_code == 400
    assert running.get("/nowhere").status_code == 404


def test_metrics_count_what_was_generated(running: Ranks) -> None:
    before = running.metric("sglang:generation_tokens_total")
    usage = running.ask("hello").json()["usage"]
    after = running.metric("sglang:generation_tokens_total")
    assert after - before == usage["completion_tokens"]
    assert running.metric("sglang:num_running_reqs") == 0


def test_every_shard_is_logged_by_both(running: Ranks) -> None:
    for rank, process in enumerate(running.processes):
        for number in range(1, 13):
            line = f"[rank {rank}] loading shard {number}/12 model-{number:05d}-of-00012"
            assert line in running.log(process)


def test_health_is_claimed_before_the_model_is_there(ranks: Ranks) -> None:
    head = ranks.start(0)
    ranks.wait_for_line(head, "waiting for 1 worker")
    ranks.assert_hangs()
    worker = ranks.start(1)
    ranks.wait_for_line(worker, "ready")
    assert ranks.content("2+3") == "5"


def test_a_completion_asked_for_too_early_waits_and_is_answered(ranks: Ranks) -> None:
    head = ranks.start(0)
    ranks.wait_for_line(head, "waiting for 1 worker")
    with ThreadPoolExecutor() as pool:
        early = pool.submit(ranks.content, "2+3")
        ranks.wait_in_silence()
        assert not early.done()
        ranks.start(1)
        assert early.result() == "5"


def test_a_dead_worker_leaves_a_head_that_claims_health(ranks: Ranks) -> None:
    worker, head = ranks.start_pair()
    lines = ranks.lines(head)
    worker.kill()
    worker.wait()
    ranks.assert_hangs()
    assert ranks.lines(head) == lines
    assert head.poll() is None


def test_a_worker_without_head_stays_and_spoils_the_next_rendezvous(ranks: Ranks) -> None:
    worker, head = ranks.start_pair()
    lines = ranks.lines(worker)
    head.kill()
    head.wait()
    fresh = ranks.start(0)
    ranks.wait_for_line(fresh, "waiting for 1 worker")
    ranks.wait_in_silence()  # the old worker knocks every half second
    late = ranks.start(1)
    ranks.wait_for_line(late, "connecting")
    ranks.assert_hangs()
    assert "joined" not in ranks.log(fresh) + ranks.log(late)
    assert ranks.lines(worker) == lines
    assert worker.poll() is None
    assert late.poll() is None


def test_a_worker_that_meets_a_complete_head_hangs(ranks: Ranks) -> None:
    worker, head = ranks.start_pair()
    worker.kill()
    worker.wait()
    fresh = ranks.start(1)
    ranks.wait_for_line(fresh, "connecting")
    ranks.wait_in_silence()
    head.kill()
    head.wait()
    ranks.wait_in_silence()
    assert fresh.poll() is None
    assert len(ranks.lines(fresh)) == 2


def test_a_fresh_pair_after_both_are_gone_answers(ranks: Ranks) -> None:
    ranks.start_pair()
    ranks.stop()
    ranks.start_pair()
    assert ranks.content("2+3") == "5"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nnodes": 3}, "rank 1 has world size 3, rank 0 has 2"),
        ({"model_path": "other"}, "rank 1 has model revision"),
    ],
)
def test_ranks_that_do_not_match_end_both(
    ranks: Ranks, changes: dict[str, Any], reason: str
) -> None:
    if "model_path" in changes:
        changes = {"model_path": ranks.directory / "other"}
        model.write(changes["model_path"], "lab")
    head, worker = ranks.start(0), ranks.start(1, **changes)
    assert ranks.status(head) == ranks.status(worker) == 1
    assert f"ERROR: {reason}" in ranks.log(head)
    assert f"ERROR: {reason}" in ranks.log(worker)
    assert ranks.segments() == []


def test_segments_go_on_a_clean_end_and_stay_after_a_kill(ranks: Ranks) -> None:
    worker, head = ranks.start_pair()
    assert len(ranks.segments()) == 6
    assert {name.split("_")[0].split("-")[0] for name in ranks.segments()} == {
        "psm",
        "sem.mp",
        "torch",
    }
    asked = time.monotonic()
    head.terminate()
    assert ranks.status(head) == 0
    assert 0.9 < time.monotonic() - asked < 5
    assert len(ranks.segments()) == 3
    worker.kill()
    worker.wait()
    assert len(ranks.segments()) == 3


def test_a_worker_stops_when_told(ranks: Ranks) -> None:
    worker, _ = ranks.start_pair()
    worker.terminate()
    assert ranks.status(worker) == 0
    assert "received SIGTERM, shutting down" in ranks.log(worker)


@pytest.mark.parametrize("rank", [0, 1])
def test_broken_shard_ends_the_rank_with_a_sentence(ranks: Ranks, rank: int) -> None:
    broken = ranks.directory / "broken"
    model.write(broken, "dsf-lab")
    (broken / "model-00005-of-00012.safetensors").write_bytes(b"short")
    processes = [ranks.start(r, **({"model_path": broken} if r == rank else {})) for r in (0, 1)]
    assert ranks.status(processes[rank]) == 1
    assert "ERROR: model-00005-of-00012.safetensors: header of" in ranks.log(processes[rank])
    assert "Traceback" not in ranks.log(processes[rank])


def test_a_port_in_use_is_one_sentence(ranks: Ranks) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ranks.api_port))
        taken.listen()
        head = ranks.start(0)
        assert ranks.status(head) == 1
    assert f"ERROR: API 127.0.0.1:{ranks.api_port}: Address already in use" in ranks.log(head)


def test_strangers_at_the_rendezvous_do_no_harm(ranks: Ranks) -> None:
    head = ranks.start(0)
    ranks.wait_for_line(head, "waiting for 1 worker")
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"rank": 1}\n'):
        with socket.create_connection(("127.0.0.1", ranks.master_port)) as stranger:
            stranger.sendall(noise)
    ranks.start(1)
    ranks.wait_ready(head)
    assert ranks.content("2+3") == "5"
    assert "Traceback" not in ranks.log(head)


def test_a_caller_that_hangs_up_leaves_no_trace(running: Ranks) -> None:
    head = running.processes[0]
    with socket.create_connection(("127.0.0.1", running.api_port)) as caller:
        caller.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 999\r\n\r\n{")
    assert running.content("2+3") == "5"
    assert "Traceback" not in running.log(head)
