"""What a launch needs on every host, asked while the old engine still serves."""

from __future__ import annotations

from typing import Any

from operations.pair.identity import faults, specs
from operations.run.job import Commands, Here, step
from operations.run.remote import RemoteError, call
from stacks.definition import PREVIOUS, Stack, StackError
from stacks.render import RankSpec

ASK_S = 120


def request(stack: Stack, spec: RankSpec) -> dict[str, Any]:
    """What spark-host is to look for."""
    compose = None
    if spec.compose is not None:
        index = stack.lock.image.index if stack.lock else None
        compose = {"words": spec.compose.words, "files": spec.compose.files, "digest": index}
    container = stack.container
    return {
        "kept": spec.kept.digest if spec.kept else None,
        "compose": compose,
        "devices": list(container.devices) if container else [],
        "gpus": bool(container and container.gpus),
    }


@step
def met(here: Here) -> Commands:
    """
    Refuse before any teardown when this host lacks what a launch of the stack needs.

    + here: this host's share of the run

    Docker's compose plugin, files, images, mounts, devices, GPU, interfaces, ports, room. What is
    only not as it was when the engine was kept is said, and kept copies of it are named.
    """
    stack = here.stack
    if not here.executing or not faults(here.job):
        here.noop(f"{stack.name} needs no launch, or is not launched yet")
        return
    try:
        spec = specs(here.cluster, stack, here.job.states())[here.rank]
        answer = call(here.host, "needs", stdin=request(stack, spec), timeout_s=ASK_S)
    except StackError as error:
        yield here.refuse("; ".join(error.lines))
        return
    except RemoteError as error:
        yield here.refuse(f"what a launch needs could not be asked: {error}")
        return
    for sentence in answer["different"]:
        here.warn(f"not as it was: {sentence}")
    if answer["lacking"]:
        way = ""
        if spec.compose is not None and any(one.name == PREVIOUS for one in here.job.known):
            way = f" (or bring back what ran before: --data rollback_stack={PREVIOUS})"
        told = "; ".join(answer["lacking"])
        yield here.refuse(f"{stack.name} cannot be launched: {told}{way}; nothing was torn down")
