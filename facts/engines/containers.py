"""Containers on the host, of engines and of others."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from facts.run.unknown import Section

LABEL = "io.spark-converge."
COMPOSE_PROJECT = "com.docker.compose.project"


@dataclass(frozen=True)
class Container:
    """reference: the image as it was asked for at creation; image_id, digests: the image that it
    runs, and that one's repository digests; policy: restart policy; published: ports of the host
    that lead to it; auto_remove: docker deletes it once it is stopped (--rm); signs: why it behaves
    like an engine, empty when it does not; recipe: SHA-256 of all that it was made from."""

    id: str
    name: str
    reference: str
    status: str
    running: bool
    exit_code: int
    started_at: str
    restarts: int
    policy: str
    labels: dict[str, str]
    published: tuple[int, ...]
    image_id: str
    digests: tuple[str, ...]
    auto_remove: bool
    signs: tuple[str, ...]
    recipe: str

    @property
    def alive(self) -> bool:
        """Running, or between two starts of a loop of crashes: it takes memory, and the fabric."""
        return self.running or self.status == "restarting"

    @property
    def returns(self) -> bool:
        """It is down, and docker starts it with its own next start (a reboot, an update)."""
        return not self.alive and self.policy == "always"

    @property
    def stack(self) -> str | None:
        return self.labels.get(LABEL + "stack")

    @property
    def spec(self) -> str | None:
        return self.labels.get(LABEL + "spec")

    @property
    def generation(self) -> str | None:
        return self.labels.get(LABEL + "generation")

    @property
    def compose_project(self) -> str | None:
        return self.labels.get(COMPOSE_PROJECT)


@dataclass(frozen=True)
class Podman:
    """A container that podman runs for a user of the host; nothing of it is changed from here."""

    name: str
    reference: str
    user: str
    signs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """As spark-host names it."""
        return f"{self.name} (podman of {self.user})"

    @property
    def stop(self) -> str:
        """What a person does to stop it."""
        command = shlex.join(["podman", "stop", self.name])
        return f"sudo {command}" if self.user == "root" else f"{command} as {self.user}"


@dataclass(frozen=True)
class Containers:
    """installed False: no docker on this host; a daemon that is down is Unknown, never this.

    all: docker's; podman: those that run beside them.
    """

    installed: bool
    all: tuple[Container, ...]
    podman: tuple[Podman, ...] = ()


def parse_one(one: Section) -> Container:
    return Container(
        id=one["Id"],
        name=one["Name"].lstrip("/"),
        reference=one["Reference"] or "",
        status=one["State"]["Status"],
        running=bool(one["State"]["Running"]) and not one["State"]["Restarting"],
        exit_code=int(one["State"]["ExitCode"] or 0),
        started_at=one["State"]["StartedAt"] or "",
        restarts=int(one["RestartCount"] or 0),
        policy=one["Restart"] or "no",
        labels=dict(one["Labels"]),
        published=tuple(one["Published"]),
        image_id=one["Image"],
        digests=tuple(one["Digests"]),
        auto_remove=one["AutoRemove"],
        signs=tuple(one["Signs"]),
        recipe=one["Recipe"],
    )


def parse(section: Section) -> Containers:
    return Containers(
        installed=section["installed"],
        all=tuple(map(parse_one, section["containers"])),
        podman=tuple(
            Podman(one["name"], one["image"], one["user"], tuple(one["signs"]))
            for one in section.get("podman", ())
        ),
    )
