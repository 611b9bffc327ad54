"""Programs outside of containers that behave like an engine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Program:
    """unit: of the system; user_unit: of the user's own manager; both empty for one that somebody
    started."""

    name: str
    pid: int
    user: str
    unit: str
    user_unit: str

    @property
    def title(self) -> str:
        return f"{self.unit or self.user_unit or self.name} (pid {self.pid} of {self.user})"

    @property
    def stop(self) -> str:
        """What a person does to stop it."""
        if self.unit:
            return shlex.join(["sudo", "systemctl", "stop", self.unit])
        if self.user_unit:
            return shlex.join(["systemctl", "--user", "stop", self.user_unit]) + f" as {self.user}"
        return f"sudo kill {self.pid}"


@dataclass(frozen=True)
class Outsider(Program):
    """signs: why it is an engine, in a few words each."""

    signs: tuple[str, ...]


def parse(section: Section) -> tuple[Outsider, ...]:
    return tuple(Outsider(**{**one, "signs": tuple(one["signs"])}) for one in section["programs"])
