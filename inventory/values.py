"""The values that may reach a shell, a netplan document or a docker command, as pydantic types.

Each type refuses what cannot be the thing it names; nothing here needs quoting afterwards, and
everything is quoted all the same where it is used.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from inventory.mistakes import reason

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# No part begins with a hyphen: a relative path must never be read as an option.
_PATH_PART = r"[A-Za-z0-9._@%+=][A-Za-z0-9._@%+=-]*"


def _compiles(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise reason(f"is no regular expression ({error})") from None
    return text


# Linux: at most 15 bytes (IFNAMSIZ 16 with the zero byte), no slash, no white space.
Interface = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$")]
# useradd's NAME_REGEX of Debian, at most 32 characters.
User = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
Label = Annotated[str, StringConstraints(pattern=rf"^{_LABEL}$")]
# Names of containers, compose projects and stacks as docker takes them.
DockerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
HoldTag = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9][A-Z0-9-]{0,31}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
ImageTag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Revision = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Pattern = Annotated[str, AfterValidator(_compiles)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
# 64m, 112g: docker's byte sizes.
DockerSize = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}[kmg]b?$")]
# registry[:port]/path without tag or digest; the digest comes from the lock.
Repository = Annotated[
    str,
    StringConstraints(
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$"
    ),
]


def _no_dots(path: str) -> str:
    if any(part in {".", ".."} for part in path.split("/")):
        raise reason("a path without . and .. parts expected")
    return path


AbsolutePath = Annotated[
    str, StringConstraints(pattern=rf"^(/{_PATH_PART})+$"), AfterValidator(_no_dots)
]
RelativePath = Annotated[
    str,
    StringConstraints(pattern=rf"^{_PATH_PART}(/{_PATH_PART})*$"),
    AfterValidator(_no_dots),
]


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
    StringConstraints(pattern=r"^[^/\x00-\x1f\x7f]+(/[^/\x00-\x1f\x7f]+)*$"),
    AfterValidator(_no_dots),
]


def _ipv4(value: str) -> str:
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        # NCCL picks the RoCE v2 GID by an IPv4 range (NCCL_IB_ADDR_FAMILY=AF_INET).
        raise reason("an IPv4 address such as 10.0.0.1 expected") from None
    if address.is_loopback or address.is_multicast or address.is_unspecified:
        raise reason("an address the other hosts can reach expected")
    return value


FabricAddress = Annotated[str, AfterValidator(_ipv4)]


def _management(value: str) -> str:
    """`local`, an IP address, or a DNS or ssh_config name; never an mDNS name."""
    if value == "local":
        return value
    if re.fullmatch(r"(?i).*\.local\.?", value):
        raise reason(
            "names in .local are refused: this tool switches avahi off, which answers for them; "
            "give the IP address or a DNS name"
        )
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if re.fullmatch(r"[0-9.]+", value) or not re.fullmatch(
            rf"(?i){_LABEL}(\.{_LABEL})*", value
        ):
            raise reason("an IP address, a DNS or ssh_config name, or local expected") from None
    return value


ManagementAddress = Annotated[str, AfterValidator(_management)]


def _home_path(value: Any) -> Any:
    return str(Path(value).expanduser()) if isinstance(value, str | Path) else value


def _control_path(value: str) -> str:
    if not value.startswith("/") or "\n" in value or "\0" in value:
        raise reason("an absolute path on this machine, or one that begins with ~, expected")
    return value


def _control_file(value: str) -> str:
    if not Path(value).is_file():
        raise reason("no such file on this machine")
    return value


# Paths on the control machine; they never reach a host.
ControlFolder = Annotated[str, BeforeValidator(_home_path), AfterValidator(_control_path)]
ControlFile = Annotated[ControlFolder, AfterValidator(_control_file)]
