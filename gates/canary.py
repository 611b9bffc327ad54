"""The first gate: one real completion from the wanted model.

/health and /v1/models go on saying 200 after a worker has died (see the stacks' notes), so
nothing less than tokens from all ranks counts as an answer.
"""

from __future__ import annotations

import re

from gates.client import NoAnswer, Reply, complete

PROMPT = "What is 17*23? Answer with the number."
NUMBER = re.compile(r"(?<![\d.,])391(?![\d]|[.,]\d)")
# At full effort a model thinks for thousands of tokens before it says one word (notes of the
# stacks: GLM-5.3 took 6000); the deadline ends what takes too long.
MAX_TOKENS = 6144


def canary(base_url: str, model: str, timeout_s: float) -> Reply:
    """The right answer from `model`; raises NoAnswer with what came instead."""
    reply = complete(base_url, model, PROMPT, timeout_s, max_tokens=MAX_TOKENS)
    if reply.model != model:
        raise NoAnswer(f"model {reply.model!r} answered, {model!r} expected")
    said = reply.content.strip()
    if not said or reply.tokens < 1:
        ended = f", cut off while it thought, after {reply.tokens} tokens" if reply.cut else ""
        raise NoAnswer(f"the completion is empty{ended}")
    if not NUMBER.search(said):
        raise NoAnswer(f"391 expected to 17*23, {said[:80]!r} came")
    return reply
