"""What the engine says: a small, predictable model behind an OpenAI-style request."""

from __future__ import annotations

import hashlib
import operator
import re
from dataclasses import dataclass
from typing import Any

_OPERATORS = {
    "*": operator.mul,
    "x": operator.mul,
    "\N{MULTIPLICATION SIGN}": operator.mul,
    "+": operator.add,
    "-": operator.sub,
}
_SUM = re.compile(r"(?<![\w.])(\d{1,9})\s*([*x\N{MULTIPLICATION SIGN}+-])\s*(\d{1,9})(?![\w.])")
_ECHO = re.compile(r"reply with exactly[ \t]*:?[ \t]*([^\s:].*)", re.IGNORECASE)
_TOKEN = re.compile(r"\s*\S{1,8}")  # a word, or eight letters of a long one


class BadRequestError(Exception):
    """The request cannot be answered; one sentence that says why."""


@dataclass(frozen=True)
class Request:
    """The parts of a chat request that the engine heeds."""

    model: str
    prompt: str  # all messages as one text; the key of the computation
    question: str  # the last user message
    max_tokens: int | None
    stream: bool
    include_usage: bool


def parse(body: object) -> Request:
    """A request from decoded JSON. Raises BadRequestError."""
    if not isinstance(body, dict):
        raise BadRequestError("the body is not a JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages: a list with at least one message expected")
    texts = [
        (str(_field(message, "role")), _text(_field(message, "content"))) for message in messages
    ]
    questions = [text for role, text in texts if role == "user"]
    if not questions:
        raise BadRequestError("messages: no message of role user")
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise BadRequestError(f"max_tokens: {limit!r} found, a whole number from 1 expected")
    options = body.get("stream_options") or {}
    return Request(
        model=str(body.get("model", "")),
        prompt="\n".join(f"{role}: {text}" for role, text in texts),
        question=questions[-1],
        max_tokens=limit,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def checksum(prompt: str, total: float) -> str:
    """Twelve hex digits from the prompt and the sum over all ranks' tensors."""
    return hashlib.sha256(f"{total!r} {prompt}".encode()).hexdigest()[:12]


def answer(question: str, fingerprint: str) -> str:
    """The reply: an exact echo, a result of arithmetic, or a sentence with the checksum."""
    echo = _ECHO.search(question)
    if echo:
        return echo[1].strip().strip("\"'`")
    term = _SUM.search(question)
    if term:
        return str(_OPERATORS[term[2]](int(term[1]), int(term[3])))
    return f"Both ranks have read {len(tokens(question))} tokens. checksum={fingerprint}"


def tokens(text: str) -> list[str]:
    """`text` in the pieces that the engine counts and streams; joined they give it back."""
    return _TOKEN.findall(text)


def _field(message: object, name: str) -> Any:
    if not isinstance(message, dict) or name not in message:
        raise BadRequestError(f"messages: a message without {name}")
    return message[name]


def _text(content: object) -> str:
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        return "\n".join(str(part) for part in parts)
    return "" if content is None else str(content)
