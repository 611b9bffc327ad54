"""Which commands on this host start containers or an engine: by their own words, or by those of a
script that they name, or of a script that that one names."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable

# Whole words, so that `docker` in a path such as /etc/docker-backup is one too: a job that touches
# docker is worth a look.
MENTIONS = re.compile(rb"\b(docker|podman|nerdctl|vllm|sglang|ray start)\b")
# Words that bring something up; `docker system prune` is none of them.
STARTS = re.compile(
    rb"\b(?:docker|podman|nerdctl)\b[^\n]*?\b(?:up|run|start|restart|create)\b"
    rb"|\b(?:vllm|sglang|ray start)\b"
)
TOKEN = re.compile(rb"[^\s;|&()<>\"'`=]+")
CHANGED_TO = re.compile(rb"\bcd\s+([^\s;|&()<>\"'`]+)")
JOINED = re.compile(rb"\\\n")
SCRIPT_LIMIT_BYTES = 262144  # a larger file is a program, not somebody's watchdog script
DEPTH = 3  # cron line -> wrapper -> script is what people build; a chain longer than that is not
# What a bare name may stand for: administrators' own folders, never those of packages.
OWN_FOLDERS = ("/usr/local/bin", "/usr/local/sbin")
PACKAGES: tuple[str, ...] = ("/usr/bin/", "/usr/sbin/", "/usr/lib/", "/usr/libexec/", "/usr/share/")
PACKAGES += ("/bin/", "/sbin/", "/lib/")


def text_of(path: str) -> bytes:
    """A script's bytes; b"" for a program, a folder, and what cannot be read."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode) or info.st_size > SCRIPT_LIMIT_BYTES:
            return b""
        with open(path, "rb", buffering=0) as file:
            data = file.read(4)
            if data == b"\x7fELF":
                return b""
            data += file.read()
    except (OSError, ValueError):
        return b""
    return b"" if b"\0" in data else data


class Reader:
    """words: names that known stacks go by (projects, folders, images), beside the engines'."""

    def __init__(self, words: Iterable[str]) -> None:
        made = "|".join(re.escape(word) for word in words)
        self.words = re.compile(f"(?<![\\w-])(?:{made})(?![\\w-])".encode()) if made else None
        self.weights: dict[str, str | None] = {}

    def own(self, data: bytes) -> str | None:
        """ "starts", "mentions" or None, by the text itself."""
        data = JOINED.sub(b" ", data)
        if STARTS.search(data):
            return "starts"
        named = MENTIONS.search(data) or (self.words and self.words.search(data))
        return "mentions" if named else None

    def file(self, path: str, home: str, depth: int = DEPTH) -> str | None:
        """The same for a script, those that it names included."""
        if path not in self.weights:
            self.weights[path] = None  # a script that names itself ends here
            data = text_of(path)
            found = [self.own(data)] if data else []
            if data and depth > 1:
                found += [weight for _, weight in self.tokens(data, home, depth - 1, False)]
            self.weights[path] = heaviest(found)
        return self.weights[path]

    def tokens(
        self, data: bytes, home: str, depth: int = DEPTH, packages_too: bool = True
    ) -> list[tuple[str, str]]:
        """(token as written, weight) of each word that is, or names a script that is, of interest.

        Scripts of packages count only where a job names them itself.
        """
        folders = [expanded(folder.decode("latin-1"), home) for folder in CHANGED_TO.findall(data)]
        found = {}
        for raw in dict.fromkeys(TOKEN.findall(data)):
            token = raw.decode("latin-1")
            weight = "mentions" if self.words and self.words.search(raw) else None
            for path in places(token, home, folders):
                if packages_too or not path.startswith(PACKAGES):
                    weight = heaviest([weight, self.file(path, home, depth)])
            if weight:
                found[token] = weight
        return list(found.items())


def heaviest(weights: Collection[str | None]) -> str | None:
    return next((one for one in ("starts", "mentions") if one in weights), None)


def expanded(token: str, home: str) -> str:
    for prefix in ("~/", "$HOME/", "${HOME}/"):
        if token.startswith(prefix):
            return f"{home}/{token[len(prefix) :]}"
    return token


def places(token: str, home: str, folders: list[str]) -> list[str]:
    """Where the script that a word of a command names may lie."""
    token = expanded(token, home)
    if token.startswith("/"):
        return [token]
    if "/" in token:
        return [os.path.join(folder, token) for folder in [*folders, home]]
    if token.startswith("-") or not re.search(r"[A-Za-z]", token):
        return []
    return [f"{folder}/{token}" for folder in [*OWN_FOLDERS, *folders]]
