"""Model files proven to be the pinned bytes, by a full read on the host itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.model.shards import Shards
from facts.run.unknown import Unknown
from operations.run.detached import done, volume
from operations.run.findings import Finding, Look, Wanted, aside
from operations.run.job import Commands, Here, Job, fail, step
from operations.run.remote import RemoteError
from stacks.definition import Stack
from stacks.render import mount

SHOWN = 20  # faults in one message; the receipt has them all


def entries(stack: Stack) -> list[dict[str, object]]:
    """The manifest for spark-host: name, size in bytes, sha256."""
    files = stack.lock.model.files if stack.lock else ()
    return [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in files]


def lock_id(stack: Stack) -> str:
    """Names a manifest and how it must lie, so that a proof for one is none for another."""
    what: object = entries(stack)
    if stack.files.links != "follow":
        what = [what, stack.files.links]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def directory(stack: Stack, model_dir: str) -> str:
    return f"{model_dir}/{stack.model_path}"


def request(stack: Stack, model_dir: str, full: bool) -> dict[str, Any]:
    """What spark-host needs to verify the model of a stack."""
    seen = mount(stack, model_dir)
    return {
        "directory": directory(stack, model_dir),
        "lock": lock_id(stack),
        "entries": entries(stack),
        "full": full,
        "links": stack.files.links,
        "mount": {"outside": seen[0], "inside": seen[1]} if seen else None,
    }


def assess(look: Look) -> Iterator[Finding]:
    """The model's files; then what lies beside them, which is never removed and so no drift."""
    stack, found = look.stack, look.state.shards
    if stack.model is None:
        return
    where = directory(stack, look.cluster.model_dir)
    said = found.state.get(where) if isinstance(found, Shards) else str(found)
    line = Wanted("engine", "model files", "verified")
    absent = f"no model directory {where} (model_dir in the owner's file)"
    refuse = look.named([absent], look.launches and said == "absent")
    if stack.unlocked:
        yield Wanted("engine", line.name, "by SHA-256").unread(f"{stack.name} is not locked")
        yield aside("refuse", refuse)
    elif said is None or isinstance(found, Unknown) or said == "unverified":
        told = "never read in full (deploys/prepare.py does)" if said == "unverified" else said
        yield line.unread(told or "not in the answer")
    else:
        seen = "unchanged since their full read" if said == "verified" else said
        yield line.judged(seen, said == "verified", refuse)
    beside, left = Wanted("engine", "beside the model", "-"), look.state.leftovers
    if isinstance(left, Unknown):
        yield beside.unread(left)
    elif left is not None:
        names = [
            f"{one.what} {one.path.rsplit('/', 1)[1][:40]}"
            + (f", {volume(one.size_bytes)}" if one.size_bytes else "")
            for one in left.get(where, ())
        ]
        yield beside.judged("; ".join(names) or "nothing", True)


def out_of_sight(stack: Stack, model_dir: str) -> str | None:
    """What to do where a fetch would not help: its files are right, and the container is shown
    only the links to them, which a fetch keeps."""
    seen, top = mount(stack, model_dir), f"{model_dir}/{stack.files.directory}"
    if not stack.files.cached_repository or not seen or f"{top}/".startswith(f"{seen[0]}/"):
        return None
    return (
        f"the links of a cache lead out of {seen[0]}, which is all that the container sees, "
        f"and a fetch keeps them: mount {top} in container.volumes of {stack.name}"
    )


def faults(host: Host, where: str, stack: Stack, answer: Mapping[str, Any], then: str) -> str:
    """All that is wrong on one host, as one message; then: what follows from it."""
    told = "\n    - ".join(answer["faults"][:SHOWN])
    more = len(answer["faults"]) - SHOWN
    tail = f"\n    - and {more} more" if more > 0 else ""
    return (
        f"{host.name}: {len(answer['faults'])} of the model's files in {where} are not what "
        f"the lock of {stack.name} names{then}:\n    - {told}{tail}"
    )


def leftovers(host: Host, answer: Mapping[str, Any]) -> None:
    """Say what else takes space there; nothing of it is ever removed."""
    for one in answer["left"]:
        size = f", {volume(one['bytes'])}" if one["bytes"] else ""
        host.log(f"{one['what']}: {one['path']}{size}", log_func=logger.info)
    if answer["beside"]:
        names = ", ".join(answer["beside"][:5])
        more = f" and {len(answer['beside']) - 5} more" if len(answer["beside"]) > 5 else ""
        host.log(f"beside the manifest's files: {names}{more}", log_func=logger.info)


def _verify(state: State, host: Host, job: Job, stack: Stack, full: bool) -> bool:
    where = directory(stack, job.cluster.model_dir)
    try:
        answer = done(host, "shards", request(stack, job.cluster.model_dir, full))
    except RemoteError as error:
        return fail(state, host, job, str(error))
    job.figures.setdefault("shards", {})[host.name] = answer
    if answer["faults"]:
        other = out_of_sight(stack, job.cluster.model_dir)
        brings = "deploys/fetch.py brings them, and only them"
        then = f"; nothing is launched ({other or brings})"
        return fail(state, host, job, faults(host, where, stack, answer, then))
    kept = answer["remembered_bytes"]
    host.log(
        f"{answer['files']} files right, {volume(answer['bytes'])} read in {answer['seconds']} s"
        + (f", {volume(kept)} unchanged since an earlier read" if kept else ""),
        log_func=logger.info,
    )
    leftovers(host, answer)
    for one in job.hosts:  # a long act: what was read before it is old, on every host
        job.changed(one)
    return True


@step
def verified(here: Here, full: bool = False) -> Commands:
    """
    Hash every file of the model against the stack's lock, unless nothing changed since it passed.

    + here: this host's share of the run
    + full: read every byte, whatever earlier reads have shown

    The work runs on the host in a unit of its own: it goes on when this run ends (Ctrl-C, a dead
    link), and the next run joins it or goes on from the files that are done.
    Fails: names each file that is missing, extra, truncated or different, all in one pass.
    Leaves behind: what was proven in /var/lib/spark-converge/shards.
    """
    stack = here.stack
    found = here.known(here.read().shards, "shards")
    if not full and found.state.get(directory(stack, here.cluster.model_dir)) == "verified":
        here.noop(f"model files of {stack.name} unchanged since their full read")
        return
    if not here.executing:
        size = sum(file.size or 0 for file in stack.lock.model.files) if stack.lock else 0
        here.say(f"would read up to {volume(size)}")
    yield FunctionCommand(_verify, (here.job, stack, full), {})
