"""What in a stack's words looks like a secret. Definitions are read by everybody, and what stands
in a command line is shown by `ps` and `docker inspect`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from inventory.document import Loc, Mistake

WAY = (
    "put NAME=VALUE into a file on the hosts that only root may read (chmod 600) and name it in "
    "container.env_files"
)
_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(?:API|ACCESS|SECRET|PRIVATE)_?KEY"
    r"|APIKEY)(?:_|$)",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"(?:^|[\s'\"])--?(?:[a-z0-9]+[-_])*(?:api[-_]?key|token|secret|password|passwd)"
    r"(?=[=\s]|$)",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"(?:^|[\s'\"])([A-Za-z_][A-Za-z0-9_]*)=\S")
# Tokens of the Hub, of OpenAI and its kin, GitHub, NVIDIA and AWS, by what they begin with; and a
# login inside an address.
_VALUE = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[opsu]_[A-Za-z0-9]{16,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{16,}|\bnvapi-[A-Za-z0-9_-]{16,}|\bAKIA[A-Z0-9]{16}\b"
    r"|://[^/\s:@]{1,200}:[^/\s@]{1,200}@"
)


def named(name: str) -> bool:
    """Whether a variable of this name holds a secret (HF_TOKEN; not TOKENIZERS_PARALLELISM)."""
    return bool(_NAME.search(name))


def inside(text: str) -> bool:
    """Whether a word of a command or a value holds a secret, or an option that one follows."""
    head = text[:10_000]
    assigned = any(named(found[1]) for found in _ASSIGNED.finditer(head))
    return assigned or bool(_OPTION.search(head) or _VALUE.search(head))


def literals(data: dict[str, Any]) -> Iterator[Mistake]:
    """Secrets written into a definition; none of them is shown."""
    fabric, container = data.get("env_fabric"), data.get("container")
    for loc, env in (
        (("env",), data.get("env")),
        (("env_fabric", "values"), fabric.get("values") if isinstance(fabric, dict) else None),
    ):
        for name, value in env.items() if isinstance(env, dict) else ():
            if named(str(name)) or (isinstance(value, str) and inside(value)):
                yield _told((*loc, str(name)))
    for loc, words in (
        (("command",), data.get("command")),
        (
            ("container", "entrypoint"),
            container.get("entrypoint") if isinstance(container, dict) else None,
        ),
    ):
        for index, word in enumerate(words if isinstance(words, list) else ()):
            if isinstance(word, str) and inside(word):
                yield _told((*loc, index))


def _told(loc: Loc) -> Mistake:
    return Mistake(loc, f"a secret, which is not shown here, or its place found; {WAY}")
