"""What one rank runs, as plain immutable data; made by `stacks.render`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LABEL_PREFIX = "io.spark-converge."


@dataclass(frozen=True)
class FabricFacts:
    """What the fabric of one host is, as found there.

    `interface` carries `address` (IPv4); `hcas` are the RDMA devices of the fabric (`rocep1s0f0`),
    sorted; `gid_indexes` gives for each of them the index of the RoCE v2 GID that holds the
    fabric's address on its link; all those addresses lie in `cidr`.
    """

    interface: str
    address: str
    cidr: str
    hcas: tuple[str, ...]
    gid_indexes: Mapping[str, int]


@dataclass(frozen=True)
class ComposeSpec:
    """A compose project on the host: `docker compose -p project -f directory/file`."""

    project: str
    directory: str
    file: str
    env_file: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Absolute paths of what the project is read from."""
        env_file = [f"{self.directory}/{self.env_file}"] if self.env_file else []
        return (f"{self.directory}/{self.file}", *env_file)

    @property
    def words(self) -> tuple[str, ...]:
        """Of `docker compose`, up to its own command."""
        path, *env_file = self.files
        words = ["--project-name", self.project, "--project-directory", self.directory]
        words += [word for one in env_file for word in ("--env-file", one)]
        return (*words, "--file", path)


@dataclass(frozen=True)
class KeptSpec:
    """A rank that is kept on its host; containers: name -> SHA-256 of what it was made from."""

    digest: str
    containers: Mapping[str, str]


@dataclass(frozen=True)
class RankSpec:
    """All that one rank runs. `spec` is the SHA-256 of everything in it that matters.

    `create_argv` is a complete `docker create ...` (empty for a compose stack); a further
    `--label` may be put in after its second word.
    """

    host: str
    rank: int
    world: int
    stack: str
    container_name: str
    image: str
    revision: str | None
    rendezvous: str
    model_name: str
    create_argv: tuple[str, ...]
    compose: ComposeSpec | None
    env: Mapping[str, str]
    command: tuple[str, ...]
    labels: Mapping[str, str]
    spec: str
    kept: KeptSpec | None = None
