"""Which commands on this host start containers or an engine: by their own words, or by those of a
script that they name, or of a script that that one names."""

from __future__ import annotations

import glob
import os
import pwd
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping

from run import homes, servers
from systemd import scopes, specifiers

from watchdogs import around

# Whole words, so that `docker` in a path such as /etc/docker-backup is one too: a job that touches
# docker is worth a look.
MENTIONS = re.compile(rb"\b(docker|podman|nerdctl|vllm|sglang)\b")
# Words that bring something up; `docker system prune` is none of them.
STARTS = re.compile(
    rb"\b(?:docker|podman|nerdctl)\b[^\n]*?\b(?:up|run|start|restart|create)\b"
    rb"|\b(?:vllm|sglang)\b"
)
TOKEN = re.compile(rb"[^\s;|&()<>\"'`=]+")
CHANGED_TO = re.compile(rb"\b(?:cd|pushd)\s+(?:--\s+)?[\"']?([^\s;|&()<>\"'`]+)")
# Folders whose scripts are run one by one; those of cron itself are looked at elsewhere.
RUN_PARTS = re.compile(rb"\brun-parts\b([^\n;|&<>]*)")
PERIODIC = re.compile(r"/etc/cron\.(hourly|daily|weekly|monthly|yearly)")
RUNNABLE = re.compile(r"[A-Za-z0-9_-]+")  # names that run-parts and cron.d take
SYSTEMCTL = re.compile(rb"\b(?:systemctl|service)\b([^\n;|&<>]*)")
ENDS_OF_UNITS = (".service", ".timer", ".path", ".socket")
STARTING = {"start", "restart", "reload-or-restart", "enable", "reenable", "isolate"}
EXEC = re.compile(rb"^\s*Exec(?:StartPre|StartPost|Start|Reload)\s*=\s*(.*)$", re.MULTILINE)
MEANINGS = 64  # each variable of a word doubles them, and anybody may write a table of many
VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
JOINED = re.compile(rb"\\\n")
SCRIPT_LIMIT_BYTES = 262144  # a larger file is a program, not somebody's watchdog script
DEPTH = 3  # cron line -> wrapper -> script is what people build; a chain longer than that is not
# What a bare name may stand for: administrators' own folders, never those of packages.
OWN_FOLDERS = ("/usr/local/bin", "/usr/local/sbin")
PERSONAL_FOLDERS = ("bin", ".local/bin")  # on everybody's PATH: Ubuntu's /etc/skel/.profile
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


def names_engine(command: bytes) -> str | None:
    """The word in a command that makes it an engine's, None where there is none."""
    found = MENTIONS.search(command)
    return found[0].decode() if found else servers.named_in(command)


class Reader:
    """words: names that known stacks go by (projects, folders, images), beside the engines'."""

    def __init__(self, words: Iterable[str]) -> None:
        made = "|".join(re.escape(word) for word in words)
        self.words = re.compile(f"(?<![\\w-])(?:{made})(?![\\w-])".encode()) if made else None
        self.weights: dict[tuple[str, str], str | None] = {}

    def own(self, data: bytes) -> str | None:
        """ "starts", "mentions" or None, by the text itself."""
        data = JOINED.sub(b" ", data)
        if STARTS.search(data) or servers.started_in(data):
            return "starts"
        named = names_engine(data) or (self.words and self.words.search(data))
        return "mentions" if named else None

    def file(self, path: str, home: str, depth: int = DEPTH) -> str | None:
        """The same for a script, those that it names included."""
        if (path, home) not in self.weights:
            self.weights[path, home] = None  # a script that names itself ends here
            data = text_of(path)
            found = [self.own(data)] if data else []
            if data and depth > 1:
                text, several = around.read(JOINED.sub(b" ", data), path)
                folders = around.beside(data, path)
                named = self.tokens(text, home, depth - 1, False, folders, several)
                found += [self.own(text), *(weight for _, weight in named)]
            self.weights[path, home] = heaviest(found)
        return self.weights[path, home]

    def tokens(
        self,
        data: bytes,
        home: str,
        depth: int = DEPTH,
        packages_too: bool = True,
        beside: Collection[str] = (),
        variables: Mapping[str, Collection[str]] | None = None,
    ) -> list[tuple[str, str]]:
        """(token as written, weight) of each word that is, or names a script, a unit or a folder of
        scripts that is, of interest.

        Scripts of packages count only where a job names them itself. beside: more folders that a
        bare name may lie in; variables: what a `$NAME` may stand for.
        """
        folders = [
            homes.expanded(folder.decode("latin-1"), home) for folder in CHANGED_TO.findall(data)
        ]
        folders += beside
        found = {}
        for raw in dict.fromkeys(TOKEN.findall(data)):
            token = raw.decode("latin-1")
            weight = "mentions" if self.words and self.words.search(raw) else None
            meant = meanings(token, variables or {})
            weight = heaviest([weight, *(self.own(text.encode("latin-1")) for text in meant[1:])])
            for word in (word for text in meant for word in text.split()):
                for path in places(word, home, folders):
                    if packages_too or not path.startswith(PACKAGES):
                        weight = heaviest([weight, self.file(path, home, depth)])
            if weight:
                found[token.replace(specifiers.ANY, "%i")] = weight
        for token, weight in (*self.units(data, home, depth), *self.parts(data, home, depth)):
            found[token] = heaviest([found.get(token), weight]) or weight
        return list(found.items())

    def units(self, data: bytes, home: str, depth: int) -> Iterator[tuple[str, str]]:
        """(unit as written, weight) of the services that are started here and are of interest."""
        for said in SYSTEMCTL.findall(data):
            tokens = [raw.decode("latin-1") for raw in TOKEN.findall(said)]
            for token in tokens if STARTING & {*tokens} else ():
                if token not in STARTING and not token.startswith("-"):
                    weight = self.unit(token, home, depth)
                    if weight:
                        yield token, weight

    def unit(self, name: str, home: str, depth: int) -> str | None:
        """By the commands of its service, those that it starts itself included."""
        stem = next((name[: -len(end)] for end in ENDS_OF_UNITS if name.endswith(end)), name)
        service = re.sub(r"@.*", "@", stem) + ".service"
        if "/" in name or depth < 1:
            return None
        key = (f"{stem}.service", home)
        if key not in self.weights:
            self.weights[key] = None  # as for a script that names itself
            folders = [
                homes.expanded(f, home) for f in (*scopes.UNIT_FOLDERS, *scopes.USER_UNIT_FOLDERS)
            ]
            texts = (text_of(f"{folder}/{service}") for folder in folders)
            text = JOINED.sub(b" ", next(filter(None, texts), b""))
            text = specifiers.expanded(text, key[0], person_at(home))
            commands = b"\n".join(EXEC.findall(text))
            more = self.tokens(commands, home, depth - 1, False) if commands else []
            self.weights[key] = heaviest([self.own(commands), *(weight for _, weight in more)])
        return self.weights[key]

    def parts(self, data: bytes, home: str, depth: int) -> Iterator[tuple[str, str]]:
        """(folder as written, weight) of those that run-parts runs here."""
        for said in RUN_PARTS.findall(data):
            for token in (raw.decode("latin-1") for raw in TOKEN.findall(said)):
                folder = homes.expanded(token, home).rstrip("/")
                if not os.path.isdir(folder) or PERIODIC.fullmatch(folder):
                    continue
                paths = [f"{folder}/{n}" for n in os.listdir(folder) if RUNNABLE.fullmatch(n)]
                able = [path for path in paths if os.access(path, os.X_OK)]
                weight = heaviest([self.file(path, home, depth) for path in able])
                if weight:
                    yield token, weight


def person_at(home: str) -> pwd.struct_passwd | None:
    """Whose home it is, None for root's."""
    return next((p for p in pwd.getpwall() if p.pw_dir == home and p.pw_uid), None)


def heaviest(weights: Collection[str | None]) -> str | None:
    return next((one for one in ("starts", "mentions") if one in weights), None)


def meanings(token: str, variables: Mapping[str, Collection[str]]) -> list[str]:
    """A word as it is and, where it has known variables, as it is with their values."""
    texts = [token]
    for braced, bare in VARIABLE.findall(token):
        name = braced or bare
        written = f"${{{name}}}" if braced else f"${name}"
        for value in variables.get(name, ()):
            more = [text.replace(written, value) for text in texts if written in text]
            texts = [*texts, *more][:MEANINGS]
    return texts


def places(token: str, home: str, folders: list[str]) -> list[str]:
    """Where the script that a word of a command names may lie."""
    token = homes.expanded(token, home)
    if token.startswith("/"):
        found = [token]
    elif "/" in token:
        found = [os.path.join(folder, token) for folder in [*folders, home]]
    elif token.startswith("-") or not re.search(r"[A-Za-z]", token):
        found = []
    else:
        own = [f"{home}/{name}" for name in PERSONAL_FOLDERS]
        found = [f"{folder}/{token}" for folder in [*OWN_FOLDERS, *folders, *own]]
    return [path for one in found for path in instances(one)]


def instances(path: str) -> list[str]:
    """A path, or those that a template's may be."""
    if specifiers.ANY not in path:
        return [path]
    pattern = "*".join(glob.escape(part) for part in path.split(specifiers.ANY))
    return sorted(glob.glob(pattern))[:MEANINGS]
