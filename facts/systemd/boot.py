"""What the host boots into."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section

# systemd.unit(5) and kernel-command-line(7): what the short words of the command line stand for.
RUNLEVELS = {
    **dict.fromkeys(("1", "s", "S", "single", "rescue"), "rescue.target"),
    **dict.fromkeys(("2", "3", "4"), "multi-user.target"),
    "5": "graphical.target",
    **dict.fromkeys(("emergency", "-b"), "emergency.target"),
}


@dataclass(frozen=True)
class Boot:
    """default_target as `systemctl get-default` says ("" when it cannot); fault: what is wrong with
    the link itself; override: words of the kernel command line that win over it (None when there
    are none); override_from: files of the boot loader's settings that have them."""

    default_target: str
    fault: str | None
    override: str | None
    override_from: tuple[str, ...]
    boot_id: str
    machine: str
    kernel: str

    @property
    def forced_target(self) -> str | None:
        """The target that the kernel command line asks for, the last word counts."""
        words = (self.override or "").split()
        last = words[-1].removeprefix("systemd.unit=") if words else None
        return RUNLEVELS.get(last, last) if last else None


def parse(section: Section) -> Boot:
    return Boot(
        default_target=section["default_target"],
        fault=section["fault"],
        override=section["override"],
        override_from=tuple(section["override_from"]),
        boot_id=section["boot_id"],
        machine=section["machine"],
        kernel=section["kernel"],
    )
