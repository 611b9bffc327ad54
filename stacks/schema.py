"""The classes of a stack definition and its lock; read from files by `stacks.definition`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from inventory.mistakes import Record, reason
from inventory.stack_files import LOCK_SUFFIX
from inventory.values import (
    AbsolutePath,
    ComposeProject,
    Digest,
    DockerName,
    DockerSize,
    EnvName,
    HubRepository,
    ImageSign,
    ImageTag,
    Label,
    ModelPath,
    RelativePath,
    Repository,
    Revision,
    Sha256,
    Whole,
    Word,
    YesNo,
)
from stacks import patterns
from stacks.docker import (
    Capability,
    Device,
    MemoryLimit,
    NameWithPlaceholders,
    Ulimits,
    Volumes,
)

_Port = Annotated[Whole, Field(ge=1, le=65535)]
_Seconds = Annotated[Whole, Field(ge=1, le=86400)]


class ModelFile(Record):
    """One file of the model. `size` in bytes; null where no source publishes the figure."""

    name: ModelPath = Field(description="a file name below the model directory")
    size: Whole | None = Field(default=None, ge=0, description="a size in bytes, or null")
    sha256: Sha256 | None = Field(default=None, description="64 hexadecimal digits, or null")


class LockedImage(Record):
    """Digests of the image: of its index (or single manifest) and of each platform's manifest."""

    index: Digest | None = Field(default=None, description="sha256:<64 hex digits>, or null")
    platforms: dict[str, Digest] = Field(
        default_factory=dict, description="a mapping of platform (linux/arm64) to digest"
    )
    download_bytes: dict[str, Annotated[Whole, Field(ge=0)]] = Field(
        default_factory=dict,
        description="a mapping of platform to bytes, its layers as the registry sends them",
    )


def _each_once(files: tuple[ModelFile, ...]) -> tuple[ModelFile, ...]:
    seen: set[str] = set()
    for file in files:
        if file.name in seen:
            raise reason(f"{file.name} is there twice; each file once expected")
        seen.add(file.name)
    for name in seen:
        for end in (at for at, one in enumerate(name) if one == "/"):
            if name[:end] in seen:
                raise reason(f"{name[:end]} is there, and {name}; a file or a folder expected")
    return files


class LockedModel(Record):
    """One revision of a model, file by file; `source` says who gave the hashes (null: not said)."""

    repository: HubRepository = Field(description="a model of the Hub, such as ORG/NAME,")
    revision: Revision = Field(description="40 hexadecimal digits")
    source: Literal["hub", "hosts"] | None = Field(default=None, description="hub, hosts, or null")
    files: Annotated[tuple[ModelFile, ...], AfterValidator(_each_once)] = Field(
        min_length=1, description="a list of name, size, sha256"
    )


class Lock(Record):
    """What exactly a stack runs."""

    stack: DockerName = Field(description="the stack's name")
    image: LockedImage = Field(description="a mapping with index and platforms")
    model: LockedModel = Field(description="a mapping with repository, revision and files")


class Image(Record):
    """Where the image comes from; its digest is in the lock.

    `tag` decides nothing: verify says when it no longer points to the locked digest.
    """

    repository: Repository = Field(description="an image repository without tag or digest")
    tag: ImageTag | None = Field(default=None, description="a tag of the image, or null")


class Compose(Record):
    """A compose project that already lies on each host (launcher: compose).

    `env_file`: what compose is given as --env-file; null: it reads the .env of the directory.
    """

    project: ComposeProject = Field(description="a compose project name")
    directory: AbsolutePath = Field(description="an absolute path on the hosts")
    file: RelativePath = Field(description="a file name in that directory")
    env_file: RelativePath | None = Field(
        default=None, description="a file name in that directory, or null"
    )
    container: DockerName = Field(description="the name of the container that compose makes")


def _with_program(words: tuple[str, ...]) -> tuple[str, ...]:
    if words and not words[0].strip():
        raise reason("the name of a program first expected")
    return words


class Container(Record):
    """Settings of the container of one rank, as docker takes them."""

    name: NameWithPlaceholders = Field(description="a container name; {{ rank }} may stand in it")
    network: Literal["host"] = Field(description="host")
    ipc: Literal["host", "private"] = Field(description="host or private")
    shm_size: DockerSize = Field(description="a size such as 64g")
    memory: MemoryLimit | None = Field(default=None, description="a size such as 112g, or null")
    restart: Literal["no"] = Field(
        description="no (a rank that comes back by itself meets a dying one)"
    )
    stop_grace_s: Whole = Field(ge=1, le=600, description="1 to 600 seconds")
    ulimits: Ulimits = Field(
        default_factory=dict, description='a mapping of limit to text, as in memlock: "-1"'
    )
    cap_add: tuple[Capability, ...] = Field(
        default=(), description="a list of Linux capabilities such as IPC_LOCK"
    )
    devices: tuple[Device, ...] = Field(
        default=(), description="a list of device paths on the hosts"
    )
    gpus: Literal["all"] | None = Field(default=None, description="all, or null")
    volumes: Volumes = Field(
        default=(), description="a list of host:container[:ro], with placeholders"
    )
    env_files: tuple[AbsolutePath, ...] = Field(
        default=(),
        description="a list of files on the hosts with NAME=VALUE lines, for secrets",
    )
    entrypoint: Annotated[tuple[Word, ...], AfterValidator(_with_program)] = Field(
        default=(), description="a list of words; empty for the image's own"
    )
    shell_command: YesNo = Field(
        default=False, description="true (the entrypoint takes one word of shell) or false"
    )


def _another(port: int | None, info: ValidationInfo) -> int | None:
    if port == info.data.get("api"):
        raise reason("api has it too, a different one expected")
    return port


class Ports(Record):
    """TCP ports of the head; `rendezvous` is null in an adopted stack that does not say it."""

    api: _Port = Field(description="a TCP port, 1 to 65535,")
    rendezvous: Annotated[_Port | None, AfterValidator(_another)] = Field(
        description="a TCP port, 1 to 65535,"
    )


class Start(Record):
    """Order is fixed: workers, then after the delay the head."""

    head_delay_s: Whole = Field(ge=0, le=600, description="0 to 600 seconds")


class Deadlines(Record):
    """How long a bind may take."""

    stall_s: _Seconds = Field(description="seconds without a new line of progress")
    bind_s: _Seconds = Field(description="seconds from start to answer")
    canary_s: _Seconds = Field(description="seconds for one real completion")
    quiet_s: _Seconds = Field(description="seconds to watch that nothing comes back")


def _harmless(text: str) -> str:
    why = patterns.trouble(text)
    if why:
        raise reason(why)
    return text


def _counting(text: str) -> str:
    if not patterns.counts(text):
        raise reason("one group, which is a number such as (\\d+) and always there, expected")
    return text


Pattern = Annotated[str, AfterValidator(_harmless)]
Progress = Annotated[Pattern, AfterValidator(_counting)]


class Log(Record):
    """What the engine's log says.

    `progress`: regular expressions whose first group is a number that grows; a line that differs
    from an earlier one only in other numbers is not progress. `ready`: the line after which a
    completion is worth asking for; null (of an adopted stack) for any.
    """

    progress: tuple[Progress, ...] = Field(description="a list of regular expressions, one group")
    ready: Pattern | None = Field(description="a regular expression")


class Memory(Record):
    """What must be free before a rank is started, and what it leaves once it has loaded."""

    floor_mib: Whole = Field(ge=1, description="MemAvailable in MiB, 1 or more,")
    steady_available_mib: Whole | None = Field(
        default=None, ge=1, description="MemAvailable in MiB with the stack loaded, or null"
    )


class Serve(Record):
    """What the API answers to."""

    model_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] = Field(
        description="a model name of letters, digits and . _ / -"
    )


class Recognise(Record):
    """How containers of this stack are known on a host, whoever started them."""

    compose_projects: tuple[ComposeProject, ...] = Field(
        default=(), description="a list of compose project names"
    )
    image_repositories: tuple[ImageSign, ...] = Field(
        default=(), description="a list of image repositories"
    )
    name_patterns: tuple[Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.*?-]+$")], ...] = Field(
        default=(), description="a list of shell patterns for container names"
    )


class Model(Record):
    """Where the model lies on the hosts, below the owner's model_dir.

    A directory models--ORG--NAME is a Hugging Face cache's folder of that repository; the engine
    then loads the snapshot of the locked revision in it. `links`: whether a link counts as the file
    that it leads to, or must become a file of its own.
    """

    directory: RelativePath = Field(description="a path below model_dir")
    links: Literal["follow", "materialise"] = Field(
        default="follow", description="follow or materialise"
    )

    @property
    def cached_repository(self) -> str | None:
        """ORG/NAME when the directory is a cache's folder, None for a plain directory."""
        head, mark, name = self.directory.rpartition("/")[2].partition("models--")
        return name.replace("--", "/") if mark and not head else None


class EnvFabric(Record):
    """Environment that depends on the fabric of the host the rank runs on."""

    values: dict[EnvName, Word] = Field(
        default_factory=dict, description="texts with placeholders (numbers in quotes)"
    )
    absent_when_empty: tuple[EnvName, ...] = Field(
        default=(), description="a list of the variables that are left out when empty"
    )
    gid: Literal["absent", "index-by-address"] = Field(
        description="absent (NCCL picks by address range) or index-by-address"
    )


class AdoptedRank(Record):
    """What ran on one host, as it was found. All else about it is kept on that host itself.

    `kept` names it there: the SHA-256 of everything that its containers were made from.
    """

    host: Label = Field(description="the name of a host of the owner's file")
    container: DockerName = Field(description="the container of the engine")
    containers: dict[DockerName, Sha256] = Field(
        min_length=1, description="a mapping of container to the SHA-256 of what it was made from"
    )
    kept: Sha256 = Field(description="64 hexadecimal digits")
    by: Literal["compose", "run"] = Field(description="compose or run")
    project: str | None = Field(default=None, description="a compose project, or null")
    folders: tuple[str, ...] = Field(default=(), description="folders of the compose project")
    reference: str = Field(description="the image as it was spelled")
    image: Digest = Field(description="the id of the image on that host")
    digests: tuple[str, ...] = Field(default=(), description="repository digests of the image")
    started_at: str = Field(description="a time")
    commit: str | None = Field(default=None, description="of the checkout, or null")
    dirty: bool | None = Field(default=None, description="true, false, or null (not known)")
    models: tuple[str, ...] = Field(default=(), description="folders of models on that host")
    watchdogs: tuple[str, ...] = Field(default=(), description="what starts it by itself")


class Adopted(Record):
    """Ranks that ran before and that no stack file knew (launcher: adopted)."""

    ranks: tuple[AdoptedRank, ...] = Field(min_length=2, description="a list, in rank order")
    context: int | None = Field(default=None, description="tokens of context, or null")


class Stack(Record):
    """One engine with one model. `lock` is None when there is no lock file."""

    name: DockerName = Field(description="the stack's name, as in its file name")
    description: str = Field(min_length=1, description="a line of text")
    image: Image | None = Field(default=None, description="a mapping with repository")
    launcher: Literal["run", "compose", "adopted"] = Field(description="run or compose")
    adopted: Adopted | None = Field(default=None, description="not written by hand")
    compose: Compose | None = Field(
        default=None, description="a mapping with project, directory and file"
    )
    container: Container | None = Field(default=None, description="a mapping (launcher: run)")
    command: tuple[Word, ...] = Field(default=(), description="a list of words with placeholders")
    env: dict[EnvName, Word] = Field(default_factory=dict, description="texts (numbers in quotes)")
    env_fabric: EnvFabric | None = Field(default=None, description="a mapping (launcher: run)")
    ports: Ports = Field(description="a mapping with api and rendezvous")
    start: Start = Field(description="a mapping with head_delay_s")
    deadlines: Deadlines = Field(description="a mapping with stall_s, bind_s, canary_s and quiet_s")
    log: Log = Field(description="a mapping with progress and ready")
    memory: Memory = Field(description="a mapping with floor_mib")
    serve: Serve = Field(description="a mapping with model_name")
    recognise: Recognise = Field(description="a mapping")
    model: Model | None = Field(default=None, description="a mapping with directory")
    lock: Lock | None = Field(default=None, exclude=True, description="not written by hand")

    @property
    def image_reference(self) -> str:
        """`repository@sha256:...`, or the bare repository while the stack has no digest."""
        if self.adopted is not None:
            return self.adopted.ranks[0].reference
        repository, index = self.repository, self.lock.image.index if self.lock else None
        return f"{repository}@{index}" if index else repository

    @property
    def repository(self) -> str:
        """Where the image comes from; raises LookupError for an adopted stack."""
        if self.image is None:
            raise LookupError(f"{self.name} has no image of its own")
        return self.image.repository

    @property
    def tag(self) -> str | None:
        return self.image.tag if self.image else None

    @property
    def files(self) -> Model:
        """Where the model lies; raises LookupError for an adopted stack."""
        if self.model is None:
            raise LookupError(f"{self.name} has no model of its own")
        return self.model

    @property
    def model_path(self) -> str:
        """What the engine loads, below model_dir; without a lock a cache's folder itself."""
        if self.lock is None or self.files.cached_repository is None:
            return self.files.directory
        return f"{self.files.directory}/snapshots/{self.lock.model.revision}"

    @property
    def unlocked(self) -> list[str]:
        """What has no digest or hash, in sentences; empty when the stack is locked.

        An adopted one is: each host keeps it by the ids of its images.
        """
        return [] if self.adopted is not None else list(_gaps(self))


def _gaps(stack: Stack) -> Iterator[str]:
    if stack.lock is None:
        yield (
            f"stack {stack.name} has no lock file ({stack.name}{LOCK_SUFFIX}): "
            "the image digest and the hashes of the model files are unknown"
        )
        return
    if stack.lock.image.index is None:
        yield f"image {stack.repository} has no digest"
    files = stack.lock.model.files
    bare = [file.name for file in files if file.sha256 is None]
    if bare:
        more = f" and {len(bare) - 1} more" if len(bare) > 1 else ""
        yield (
            f"model {stack.lock.model.repository}: {len(bare)} of {len(files)} files "
            f"have no SHA-256 ({bare[0]}{more})"
        )
