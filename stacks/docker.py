"""Values that docker takes, as pydantic types: what it would refuse at a launch is refused here."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, StringConstraints, TypeAdapter, ValidationError

from inventory.mistakes import reason
from inventory.values import AbsolutePath, DockerName, DockerSize, Word
from stacks import template

# setrlimit's names as docker's --ulimit takes them (github.com/docker/go-units, ulimit.go).
_LIMITS = frozenset(
    [
        "core",
        "cpu",
        "data",
        "fsize",
        "locks",
        "memlock",
        "msgqueue",
        "nice",
        "nofile",
        "nproc",
        "rss",
        "rtprio",
        "rttime",
        "sigpending",
        "stack",
    ]
)
# capabilities(7) of Linux 6.8; docker takes each with and without CAP_, and ALL.
_CAPABILITIES = frozenset(
    [
        "ALL",
        "AUDIT_CONTROL",
        "AUDIT_READ",
        "AUDIT_WRITE",
        "BLOCK_SUSPEND",
        "BPF",
        "CHECKPOINT_RESTORE",
        "CHOWN",
        "DAC_OVERRIDE",
        "DAC_READ_SEARCH",
        "FOWNER",
        "FSETID",
        "IPC_LOCK",
        "IPC_OWNER",
        "KILL",
        "LEASE",
        "LINUX_IMMUTABLE",
        "MAC_ADMIN",
        "MAC_OVERRIDE",
        "MKNOD",
        "NET_ADMIN",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_RAW",
        "PERFMON",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYSLOG",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_CHROOT",
        "SYS_MODULE",
        "SYS_NICE",
        "SYS_PACCT",
        "SYS_PTRACE",
        "SYS_RAWIO",
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "WAKE_ALARM",
    ]
)
_OPTIONS = frozenset(
    [
        "ro",
        "rw",
        "z",
        "Z",
        "nocopy",
        "consistent",
        "cached",
        "delegated",
        "private",
        "rprivate",
        "shared",
        "rshared",
        "slave",
        "rslave",
    ]
)
_VOLUME_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")
# docker: "Minimum memory limit allowed is 6MB".
_LEAST_BYTES = 6 << 20
_UNITS = {"k": 10, "m": 20, "g": 30}
_PATH = TypeAdapter(AbsolutePath)
_NAME = TypeAdapter(DockerName)


def _fits(kind: TypeAdapter[str], text: str) -> bool:
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True


def _filled(text: str) -> str:
    try:
        return template.sampled(text)
    except ValueError as error:
        raise reason(f"cannot be filled in: {str(error)[:200]}") from None


def _container_name(text: str) -> str:
    filled = _filled(text)
    if len(filled) < 2 or not _fits(_NAME, filled):
        raise reason("letters, digits and _ . -, two or more, with placeholders, expected")
    return text


def _volume(text: str) -> str:
    outside, *more = _filled(text).split(":")
    named = _VOLUME_NAME.fullmatch(outside)
    if not 1 <= len(more) <= 2 or not (named or _fits(_PATH, outside)) or not _fits(_PATH, more[0]):
        raise reason("host:container[:ro] with absolute paths expected")
    if not _OPTIONS.issuperset(more[1].split(",") if len(more) == 2 else ()):
        raise reason(f"an option that docker does not know; {', '.join(sorted(_OPTIONS))} allowed")
    return text


def _targets_once(volumes: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for volume in volumes:
        target = _filled(volume).split(":")[1].rstrip("/")
        if target in seen:
            raise reason(f"{target} is mounted twice; each place in the container once expected")
        seen.add(target)
    return volumes


def _ulimits(limits: dict[str, str]) -> dict[str, str]:
    for name, value in limits.items():
        if name not in _LIMITS:
            raise reason(f"a limit {name[:40]!r}; {', '.join(sorted(_LIMITS))} allowed")
        found = re.fullmatch(r"(-1|[0-9]{1,18})(?::(-1|[0-9]{1,18}))?", value)
        if not found:
            raise reason(f"{name} {value[:40]!r}; a number, or soft:hard, -1 for no limit, allowed")
        soft, hard = int(found[1]), int(found[2] or found[1])
        if hard != -1 and (soft == -1 or soft > hard):
            raise reason(f"{name} {value}; a soft limit not above the hard one expected")
    return limits


def _capability(text: str) -> str:
    if text.removeprefix("CAP_") not in _CAPABILITIES:
        raise reason("a Linux capability such as IPC_LOCK expected")
    return text


def _device(path: str) -> str:
    if not path.startswith("/dev/"):
        raise reason("a device below /dev expected")
    return path


def _memory(text: str) -> str:
    if int(re.sub("[^0-9]", "", text)) << _UNITS[text.rstrip("b")[-1]] < _LEAST_BYTES:
        raise reason("6m or more expected, docker takes no less")
    return text


NameWithPlaceholders = Annotated[str, AfterValidator(_container_name)]
Volumes = Annotated[
    tuple[Annotated[Word, AfterValidator(_volume)], ...], AfterValidator(_targets_once)
]
Ulimits = Annotated[dict[str, str], AfterValidator(_ulimits)]
Capability = Annotated[str, StringConstraints(pattern=r"^[A-Z_]+$"), AfterValidator(_capability)]
Device = Annotated[AbsolutePath, AfterValidator(_device)]
MemoryLimit = Annotated[DockerSize, AfterValidator(_memory)]
