"""What the lab's model answers, and which requests it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine import chat


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("What is 17*23?", "391"),
        ("17x23=?", "391"),
        ("What is 17 × 23? Only the number.", "391"),  # noqa: RUF001 - as people write it
        ("7 + 5", "12"),
        ("Reply with exactly: SPARK_OK", "SPARK_OK"),
        ("reply with exactly 'TWO WORDS'\n", "TWO WORDS"),
        ("Reply with exactly: 2*3", "2*3"),
    ],
)
def test_known_questions(question: str, reply: str) -> None:
    assert chat.answer(question, "c0ffee") == reply


@pytest.mark.parametrize("question", ["hello", "version 1.17*23.5", "reply with exactly:"])
def test_other_questions_get_the_checksum(question: str) -> None:
    assert chat.answer(question, "c0ffee").endswith("checksum=c0ffee")


def test_checksum_depends_on_prompt_and_sum() -> None:
    base = chat.checksum("prompt", 1.5)
    assert base == chat.checksum("prompt", 1.5)
    assert len({base, chat.checksum("prompt", 1.25), chat.checksum("Prompt", 1.5)}) == 3


@given(st.text())
def test_tokens_give_the_text_back(text: str) -> None:
    assert "".join(chat.tokens(text)) == text.rstrip()


def test_a_whole_request() -> None:
    request = chat.parse(
        {
            "model": "lab-model",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            ],
            "max_tokens": 5,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    assert request == chat.Request(
        "lab-model", "system: be brief\nuser: hello", "hello", 5, True, True
    )


USER = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"messages": []},
        {"messages": ["hello"]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "system", "content": "x"}]},
        {"messages": USER, "max_tokens": 0},
        {"messages": USER, "max_tokens": "5"},
        {"messages": USER, "max_tokens": True},
    ],
)
def test_wrong_requests_are_refused(body: Any) -> None:
    with pytest.raises(chat.BadRequestError):
        chat.parse(body)
