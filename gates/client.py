"""A small OpenAI-style client: one completion, with a deadline on the whole of it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Reply:
    """content: the assistant's text, which thoughts are no part of; model: as the server names it;
    tokens: of the completion; cut: it stopped at the limit of tokens."""

    model: str
    content: str
    tokens: int
    seconds: float
    cut: bool


class NoAnswer(Exception):
    """One sentence: what the server did instead of answering."""


def complete(
    base_url: str, model: str, prompt: str, timeout_s: float, max_tokens: int = 64
) -> Reply:
    """Ask for one chat completion; raises NoAnswer for anything but a whole, well-formed one.

    timeout_s: for the whole answer (httpx alone would grant it anew to every byte that comes); a
    server that falls silent half way is given up after at most twice that.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    began = time.monotonic()
    data = bytearray()
    try:
        with (
            httpx.Client(timeout=timeout_s, trust_env=False) as client,
            client.stream("POST", f"{base_url}/v1/chat/completions", json=body) as response,
        ):
            for chunk in response.iter_bytes():
                data += chunk
                if time.monotonic() - began > timeout_s:
                    raise NoAnswer(f"no whole completion within {timeout_s:g} s")
    except httpx.TimeoutException:
        raise NoAnswer(f"no completion within {timeout_s:g} s") from None
    except httpx.HTTPError as error:
        raise NoAnswer(f"no completion: {str(error) or type(error).__name__}") from None
    said = data[:200].decode(errors="replace")
    if response.status_code != 200:
        raise NoAnswer(f"HTTP {response.status_code}: {said}")
    try:
        answer = json.loads(data)
        choice = answer["choices"][0]
        reply = Reply(
            model=str(answer["model"]),
            content=str(choice["message"].get("content") or ""),
            tokens=int(answer["usage"]["completion_tokens"]),
            seconds=time.monotonic() - began,
            cut=choice.get("finish_reason") == "length",
        )
    except (
        *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
        RecursionError,
    ) as error:
        raise NoAnswer(f"odd answer ({type(error).__name__}): {said}") from None
    return reply
