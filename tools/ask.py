"""Ask a served model one question and print its answer: ``ask.py BASE_URL MODEL QUESTION``."""

from __future__ import annotations

import sys

from gates.client import NoAnswer, complete

LIMIT_S = 120


def main(base_url: str, model: str, question: str) -> int:
    """Exit status 0 and the answer on standard output, or 1 and the reason."""
    print(f"POST {base_url}/v1/chat/completions  {model}: {question}")
    try:
        reply = complete(base_url, model, question, LIMIT_S)
    except NoAnswer as error:
        print(f"{base_url}: {error}", file=sys.stderr)
        return 1
    tokens = f"{reply.tokens} token{'' if reply.tokens == 1 else 's'}"
    print(f"{reply.model} answered in {reply.seconds:.2f} s, {tokens}: {reply.content}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
