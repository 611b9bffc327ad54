"""What the host boots into."""

from __future__ import annotations

from dataclasses import dataclass

from facts.unknown import Section


@dataclass(frozen=True)
class Boot:
    """default_target as `systemctl get-default` says; override: words of the kernel command line
    that win over it (None when there are none)."""

    default_target: str
    override: str | None
    boot_id: str
    machine: str
    kernel: str


def parse(section: Section) -> Boot:
    return Boot(
        default_target=section["default_target"],
        override=section["override"],
        boot_id=section["boot_id"],
        machine=section["machine"],
        kernel=section["kernel"],
    )
