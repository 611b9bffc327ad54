"""The values that may reach a shell, a netplan document or a docker command, as pydantic types.

Each type refuses what cannot be the thing it names; nothing here needs quoting afterwards, and
everything is quoted all the same where it is used.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Strict, StringConstraints

from inventory.mistakes import reason

# What YAML itself took for one: '24' is a text, 24.0 a fraction and true a word.
Whole = Annotated[int, Strict()]
YesNo = Annotated[bool, Strict()]

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# No part begins with a hyphen: a relative path must never be read as an option.
_PATH_PART = r"[A-Za-z0-9._@%+=][A-Za-z0-9._@%+=-]*"


# Linux: at most 15 bytes (IFNAMSIZ 16 with the zero byte), no slash, no white space.
Interface = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$")]
# useradd's NAME_REGEX of Debian, at most 32 characters.
User = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
Label = Annotated[str, StringConstraints(pattern=rf"^{_LABEL}$")]
# Names of containers and stacks as docker takes them.
DockerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
# The compose specification: lower case, no dots.
ComposeProject = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
HoldTag = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9][A-Z0-9-]{0,31}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
ImageTag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Revision = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
# 64m, 112g: docker's byte sizes.
DockerSize = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}[kmg]b?$")]
# A zero byte ends a word of a command line.
Word = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=100_000)]
_IN_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_REGISTRY = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
    r"|\[[0-9a-f:]+\])(?::([0-9]{1,5}))?"
)


def names_registry(first: str) -> bool:
    """Whether the first word of an image's name is a registry, by docker's rule."""
    return "." in first or ":" in first or first == "localhost" or first != first.lower()


def familiar(repository: str) -> str:
    """An image as docker shows it: what it and podman add to a bare name is left out."""
    for added in ("docker.io/", "index.docker.io/", "localhost/", "library/"):
        repository = repository.removeprefix(added)
    return repository


def _repository(text: str) -> str:
    first, slash, rest = text.partition("/")
    registry = _REGISTRY.fullmatch(first) if slash and names_registry(first) else None
    names = rest if registry else text
    good = all(_IN_REPOSITORY.fullmatch(name) for name in names.split("/"))
    port = int(registry[1] or 1) if registry else 1
    # docker takes 64 digits for the id of an image.
    if not good or not 0 < port < 65536 or re.fullmatch(r"[0-9a-f]{64}", text):
        raise reason("an image repository without tag or digest allowed")
    return text


# [registry[:port]/]path without tag or digest; the digest comes from the lock.
Repository = Annotated[str, StringConstraints(max_length=255), AfterValidator(_repository)]


def _sign(text: str) -> str:
    """A tag or a digest says which build of an image it is, nothing of whose it is."""
    name, _, tag = text.partition("@")[0].rpartition(":")
    return familiar(_repository(name if name and "/" not in tag else text.partition("@")[0]))


ImageSign = Annotated[str, StringConstraints(max_length=400), AfterValidator(_sign)]


def _no_dots(path: str) -> str:
    if any(part in {".", ".."} for part in path.split("/")):
        raise reason("a path without . and .. parts expected")
    return path


def _without_slash(path: Any) -> Any:
    return path.rstrip("/") or "/" if isinstance(path, str) else path


# Linux: a path has at most 4096 bytes; ours leave room for the names below it.
AbsolutePath = Annotated[
    str,
    BeforeValidator(_without_slash),
    StringConstraints(pattern=rf"^(/{_PATH_PART})+$", max_length=1024),
    AfterValidator(_no_dots),
]

# What belongs to the system, with all that is below it, and folders that are full of others.
_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/lost+found"),
    *("/proc", "/run", "/sbin", "/snap", "/sys", "/tmp", "/usr", "/var/cache", "/var/log"),  # noqa: S108
    *("/var/lib/apt", "/var/lib/containerd", "/var/lib/docker", "/var/lib/dpkg", "/var/lib/snapd"),
    *("/var/lib/spark-converge", "/var/lib/systemd", "/var/run", "/var/spool", "/var/tmp"),  # noqa: S108
)
_SHARED = frozenset({"/", "/home", "/media", "/root", "/var", "/var/lib"})


def _for_models(path: str) -> str:
    if path in _SHARED or any(f"{path}/".startswith(f"{top}/") for top in _SYSTEM):
        raise reason("a folder of its own for models, such as /srv/models, expected")
    return path


ModelFolder = Annotated[AbsolutePath, AfterValidator(_for_models)]
RelativePath = Annotated[
    str,
    StringConstraints(pattern=rf"^{_PATH_PART}(/{_PATH_PART})*$"),
    AfterValidator(_no_dots),
]


def _on_disk(name: str) -> str:
    parts = name.split("/")
    # 255: NAME_MAX of Linux. The other names are this project's own, beside the files.
    if any(
        len(part.encode("utf-8", "replace")) > 255 - len(".spark-converge-part") for part in parts
    ):
        raise reason("a name that a disk takes, at most 235 bytes in each part, expected")
    if parts[0].startswith(".spark-converge") or name.endswith(".spark-converge-part"):
        raise reason("a name that is not one of this project's own expected")
    return name


def _hub_name(name: str) -> str:
    if "--" in name or ".." in name or name.endswith((".git", "-", ".")):
        raise reason("a model of the Hub, such as ORG/NAME, expected")
    return name


HubRepository = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?$"),
    AfterValidator(_hub_name),
]
# A name in somebody else's repository: blanks and any script; it reaches no shell.
ModelPath = Annotated[
    str,
    StringConstraints(pattern=r"^[^/\x00-\x1f\x7f]+(/[^/\x00-\x1f\x7f]+)*$", max_length=1024),
    AfterValidator(_no_dots),
    AfterValidator(_on_disk),
]


def _unreachable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Addresses that are no host's: of groups, of nobody, or kept for what never came."""
    return (
        address.is_multicast
        or address.is_unspecified
        or (address.version == 4 and (address.is_reserved or int(address) >> 24 == 0))
    )


def _ipv4(value: str) -> str:
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        # NCCL picks the RoCE v2 GID by an IPv4 range (NCCL_IB_ADDR_FAMILY=AF_INET).
        raise reason("an IPv4 address such as 10.0.0.1 expected") from None
    if address.is_loopback or _unreachable(address):
        raise reason("an address the other hosts can reach expected")
    return value


FabricAddress = Annotated[str, AfterValidator(_ipv4)]


def _numbers(value: str) -> ipaddress.IPv4Address | None:
    """What the C library makes of 127.1, 0x7f.1 and 2130706433, None for a name."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(value))
    except (OSError, ValueError):
        return None


def host_of(value: str) -> str:
    """One spelling for each host: case, a dot at the end and ways to write an address apart."""
    text = value.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        numbers = _numbers(text)
        if numbers is None:
            return text
        address = numbers
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return str(address)


def _management(value: str) -> str:
    """`local`, an IP address, or a DNS or ssh_config name; never an mDNS name."""
    if value == "local":
        return value
    if value.lower().endswith((".local", ".local.")):
        raise reason(
            "names in .local are refused: this tool switches avahi off, which answers for them; "
            "give the IP address or a DNS name"
        )
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        _host_name(value)
        return value
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped):
        raise reason("an address without % and without an IPv4 address inside expected")
    if _unreachable(address):
        raise reason("an address of one host expected")
    return value


def _host_name(value: str) -> None:
    # 253: RFC 1035 without the root's dot.
    name = len(value) <= 253 and re.fullmatch(rf"(?i){_LABEL}(\.{_LABEL})*", value)
    if not name or _numbers(value) or re.fullmatch(r"[0-9.]+", value):
        raise reason("an IP address, a DNS or ssh_config name, or local expected")


ManagementAddress = Annotated[str, AfterValidator(_management)]


def _home_path(value: Any) -> Any:
    if not isinstance(value, str | Path):
        return value
    try:
        return str(Path(value).expanduser())
    except RuntimeError:
        raise reason("nobody of that name has a home on this machine") from None


def _control_path(value: str) -> str:
    if not value.startswith("/") or not value.isprintable() or len(value) > 1024:
        raise reason("an absolute path on this machine, or one that begins with ~, expected")
    return value


def _control_file(value: str) -> str:
    try:
        found = Path(value).is_file()
    except OSError:  # a part of it is longer than a name can be
        found = False
    if not found:
        raise reason("no such file on this machine")
    return value


# Paths on the control machine; they never reach a host.
ControlFolder = Annotated[str, BeforeValidator(_home_path), AfterValidator(_control_path)]
ControlFile = Annotated[ControlFolder, AfterValidator(_control_file)]
