"""The first gate: one real completion from the wanted model.

/health and /v1/models go on saying 200 after a worker has died (see the stacks' notes), so
nothing less than tokens from all ranks counts as an answer.
"""

from __future__ import annotations

from gates.client import NoAnswer, Reply, complete

PROMPT = "What is 17*23? Answer with the number."


def canary(base_url: str, model: str, timeout_s: float) -> Reply:
    """A reply from `model` with text in it; raises NoAnswer with what came instead."""
    reply = complete(base_url, model, PROMPT, timeout_s, max_tokens=512)
    if reply.model != model:
        raise NoAnswer(f"model {reply.model!r} answered, {model!r} expected")
    if not reply.content.strip() or reply.tokens < 1:
        raise NoAnswer("the completion is empty")
    return reply
