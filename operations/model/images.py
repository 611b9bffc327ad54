"""The pinned image on the host, by digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.model.images import Image, Images
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.boot import Boot
from operations.run.detached import done, volume
from operations.run.findings import Finding, Look, Wanted, aside
from operations.run.job import Commands, Here, Job, fail, step
from operations.run.remote import RemoteError
from stacks.definition import Stack

# uname -m -> what docker calls it; GOARCH of the two kinds of host there are.
MACHINES = {"aarch64": "arm64", "x86_64": "amd64"}


def platform_of(state: HostState) -> str | None:
    """The platform whose images this host runs, None where its machine could not be read."""
    if not isinstance(state.boot, Boot):
        return None
    return f"linux/{MACHINES.get(state.boot.machine, state.boot.machine)}"


def found(state: HostState, stack: Stack) -> Image | None:
    """The image that the host has under the stack's digest; None when absent or not read."""
    read = state.images
    return read.found.get(stack.image_reference) if isinstance(read, Images) else None


def _digest(stack: Stack, platform: str, image: Image | None = None) -> str:
    said = stack.lock.image.platforms.get(platform) if stack.lock else None
    return (image and image.manifest) or said or "digest not in the lock"


def mismatches(state: HostState, stack: Stack) -> Iterator[str]:
    """Why the image that is there under the digest must not be run, in sentences.

    Ids are not looked at. What decides is the repository digest and the platform, and the digest
    of the platform's manifest where the daemon says it.
    """
    image, wanted = found(state, stack), platform_of(state)
    if image is None or stack.lock is None or wanted is None:
        return
    index, platforms = stack.lock.image.index, stack.lock.image.platforms
    given = {digest.partition("@")[2] for digest in image.digests}
    if not given & {index, *platforms.values()}:
        yield f"digests {', '.join(sorted(given)) or 'none'} found, {index} expected"
    if image.platform != wanted:
        yield (
            f"{image.platform} ({_digest(stack, image.platform, image)}) found, {wanted} "
            f"({_digest(stack, wanted)}) expected"
        )
    elif image.manifest and wanted in platforms and image.manifest not in (
        platforms[wanted],
        index,
    ):  # fmt: skip
        yield f"{wanted} {image.manifest} found, {platforms[wanted]} expected"


def complaints(state: HostState, stack: Stack) -> Iterator[str]:
    """Why no rank of the stack can run on this host with the image that the lock names."""
    reference = stack.image_reference
    for why in mismatches(state, stack):
        yield (
            f"image {reference}: {why}; remove it there (docker image rm {reference}), the right "
            "one is pulled then"
        )
    wanted = platform_of(state)
    platforms = stack.lock.image.platforms if stack.lock else {}
    if platforms and wanted is not None and wanted not in platforms:
        yield f"image {reference} is made for {', '.join(sorted(platforms))}, this is {wanted}"


def assess(look: Look) -> Iterator[Finding]:
    state, stack = look.state, look.stack
    if stack.adopted is not None:  # by its id, which the host itself has (operations/launch/needs)
        return
    image, wrong = found(state, stack), list(complaints(state, stack))
    refuse = look.named(wrong, look.launches)
    if stack.unlocked:
        yield Wanted("engine", "image", "by digest").unread(f"{stack.name} is not locked")
        yield aside("refuse", refuse)
        return
    digest = stack.image_reference.split("@")[-1][:19]
    line = Wanted("engine", "image", f"{digest} for {platform_of(state) or 'this machine'}")
    if not isinstance(state.images, Images):
        yield line.unread(state.images)
        return
    seen = "; ".join(wrong) or (f"present, {image.platform}" if image else "absent")
    yield line.judged(seen, bool(image) and not wrong, refuse)


def request(stack: Stack, platform: str | None) -> dict[str, Any]:
    """What spark-host needs to pull the image of a stack."""
    repository, _, digest = stack.image_reference.partition("@")
    sizes = stack.lock.image.download_bytes if stack.lock else {}
    return {
        "repository": repository,
        "digest": digest,
        "download_bytes": sizes.get(platform or ""),
    }


def _pull(state: State, host: Host, job: Job, stack: Stack, platform: str | None) -> bool:
    what = request(stack, platform)
    if what["download_bytes"] is None:
        host.log(
            f"size of the image unknown (`make lock STACK={stack.name}` writes it into the lock): "
            "free space is not checked beforehand",
            log_func=logger.info,
        )
    try:
        answer = done(host, "images", what)
    except RemoteError as error:
        return fail(state, host, job, f"image {stack.image_reference} cannot be had on {error}")
    host.log(f"{volume(answer['bytes'])} pulled in {answer['seconds']} s", log_func=logger.info)
    for one in job.hosts:  # a long act: what was read before it is old, on every host
        job.changed(one)
    return True


@step
def present(here: Here) -> Commands:
    """
    Pull the image of a stack by its digest unless the host has it; a tag never decides.

    + here: this host's share of the run

    The pull runs on the host in a unit of its own: it goes on when this run ends, and the next run
    joins it. With the image there nothing is asked of any network.
    Fails with one sentence when the registry does not give it, the disk is too small for it, or
    another platform's image has its place; nothing was stopped for it.
    """
    stack = here.stack
    now = here.read()
    if isinstance(now.images, Unknown):
        yield here.refuse(f"images {now.images}; is the docker daemon up?")
        return
    wrong = list(complaints(now, stack))
    if wrong:
        yield here.refuse(f"{'; '.join(wrong)}")
        return
    if found(now, stack):
        here.noop(f"has {stack.image_reference}")
        return
    size = request(stack, platform_of(now))["download_bytes"]
    if not here.executing:
        told = "a size that the lock does not say" if size is None else volume(size)
        here.say(f"would pull {told}")
    yield FunctionCommand(_pull, (here.job, stack, platform_of(now)), {})
    after = here.read()
    if not found(after, stack) or list(mismatches(after, stack)):
        said = "; ".join(mismatches(after, stack)) or f"{stack.image_reference} is not there"
        yield here.refuse(f"after the pull: {said}")
