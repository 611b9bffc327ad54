"""A small OpenAI-style client: one completion, with a deadline on the whole of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Reply:
    """content: the assistant's text; model: as the server names it; tokens: of the completion."""

    model: str
    content: str
    tokens: int
    seconds: float


class NoAnswer(Exception):
    """One sentence: what the server did instead of answering."""


def complete(
    base_url: str, model: str, prompt: str, timeout_s: float, max_tokens: int = 64
) -> Reply:
    """Ask for one chat completion; raises NoAnswer for anything but a whole, well-formed one."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    try:
        response = httpx.post(
            f"{base_url}/v1/chat/completions", json=body, timeout=timeout_s, trust_env=False
        )
    except httpx.TimeoutException:
        raise NoAnswer(f"no completion within {timeout_s:.0f} s") from None
    except httpx.HTTPError as error:
        raise NoAnswer(f"no completion: {error or type(error).__name__}") from None
    if response.status_code != 200:
        raise NoAnswer(f"HTTP {response.status_code}: {response.text[:200]}")
    try:
        answer = response.json()
        message = answer["choices"][0]["message"]
        reply = Reply(
            model=str(answer["model"]),
            content=str(message.get("content") or ""),
            tokens=int(answer["usage"]["completion_tokens"]),
            seconds=response.elapsed.total_seconds(),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise NoAnswer(f"odd answer ({type(error).__name__}): {response.text[:200]}") from None
    return reply
