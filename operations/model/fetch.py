"""Model files brought to the hosts that lack them: from the Hub once, then over the fabric.

One operation on the head's host carries it, since what one host lacks another one may have.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gevent
from huggingface_hub import constants, hf_hub_url
from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.model.shards import Shards
from facts.network.fabric import Fabric
from facts.state import HostState
from inventory.schema import Node
from operations.model import shards
from operations.model.sources import Transfer, transfers
from operations.run.detached import awaited, done, volume
from operations.run.job import Commands, Here, Job, fail, refuse_beforehand, step
from operations.run.remote import RemoteError, call
from stacks.definition import Stack
from stacks.lock import endpoint

LEND_START_S = 20
# A lender ends by itself after so long without a byte taken: the run that started it is gone.
SILENCE_S = 600


class FetchError(Exception):
    """One sentence, or several in as many lines."""


def on_fabric(node: Node, state: HostState) -> bool:
    """Whether a host has its fabric address on a link that is up, whatever else is still to do."""
    if not isinstance(state.fabric, Fabric):
        return False
    wanted = f"{node.fabric_address}/"
    return any(
        link.carrier and any(a.startswith(wanted) for a in link.addresses)
        for link in state.fabric.links.values()
    )


def complaints(job: Job, stack: Stack) -> list[str]:
    """Why nothing is fetched for this stack now."""
    bare = stack.lock is None or any(file.sha256 is None for file in stack.lock.model.files)
    gaps = stack.unlocked if bare else []
    return job.absent() + [f"unlocked: {gap}; without it no file can be checked" for gap in gaps]


@step
def allowed(here: Here) -> Commands:
    """
    Refuse on every host while a host is missing, or when the stack has no hashes to go by.

    + here: this host's share of the run
    """
    stack = here.stack
    said = complaints(here.job, stack)
    if not said:
        return
    yield refuse_beforehand(here.job, said)


def unproven(job: Job, stack: Stack) -> dict[str, str]:
    """Host -> what is known of the model there, for hosts where it is not known to be right."""
    where = shards.directory(stack, job.cluster.model_dir)
    said = {}
    for host in job.hosts:
        found = job.read(host).shards
        state = found.state.get(where, "unknown") if isinstance(found, Shards) else str(found)
        if state != "verified":
            said[host.name] = state
    return said


def each(ranks: Sequence[int], work: Callable[[int], Any]) -> dict[int, Any]:
    """{rank: what the work for it returned}, all at the same time; raises FetchError with every
    reason when one or more failed."""
    errors: list[Exception] = []

    def tried(rank: int) -> Any:
        try:
            return work(rank)
        except Exception as error:  # one that leaves a greenlet is printed with its traceback
            errors.append(error)

    jobs = {rank: gevent.spawn(tried, rank) for rank in ranks}
    gevent.joinall(list(jobs.values()))
    for error in errors:
        if not isinstance(error, RemoteError | FetchError):
            raise error
    if errors:
        raise FetchError("\n    - ".join(map(str, errors)))
    return {rank: job.value for rank, job in jobs.items()}


class Bringing:
    """One run over all hosts. answers: by rank, the latest verification."""

    def __init__(self, job: Job, stack: Stack, hub_only: bool, full: bool) -> None:
        assert stack.lock is not None  # noqa: S101 - allowed() refuses an unlocked stack
        self.job, self.stack, self.hub_only, self.full = job, stack, hub_only, full
        self.model = stack.lock.model
        self.entries = {str(e["name"]): e for e in shards.entries(stack)}
        self.sizes = {file.name: file.size or 0 for file in self.model.files}
        self.figures: dict[str, Any] = job.figures.setdefault("fetch", {})

    def look(self, full: bool, ranks: Sequence[int]) -> dict[int, dict[str, Any]]:
        def one(rank: int) -> dict[str, Any]:
            host = self.job.hosts[rank]
            awaited(host, "fetch")
            asked = shards.request(self.stack, self.job.cluster.model_dir, full)
            return done(host, "shards", asked)

        return each(ranks, one)

    def fabric_ranks(self) -> list[int]:
        """Ranks that may lend and borrow; says which may not, and why."""
        if self.hub_only:
            return []
        pairs = zip(self.job.cluster.nodes, self.job.states(), strict=True)
        up = [node.rank for node, state in pairs if on_fabric(node, state)]
        for node in self.job.cluster.nodes:
            if node.rank not in up:
                self.job.hosts[node.rank].log(
                    f"{node.fabric_address} is on no link that is up: its files come from the Hub "
                    "(the management network is not used for them)",
                    log_func=logger.warning,
                )
        return up

    def ask(self, rank: int, names: Sequence[str], source: Any) -> dict[str, Any]:
        """Have a host bring files; with source None only what it has itself elsewhere."""
        where = shards.directory(self.stack, self.job.cluster.model_dir)
        request = {
            "directory": where,
            "lock": shards.lock_id(self.stack),
            "entries": [self.entries[name] for name in names],
            "extra": self.answers[rank]["extra"] if source is None else [],
            "root": self.job.cluster.model_dir,
            "repository": self.model.repository,
            "revision": self.model.revision,
            "source": source,
        }
        host = self.job.hosts[rank]
        answer = done(host, "fetch", request)
        self.tell(host, answer, source)
        if answer["failed"]:
            told = "\n    - ".join(answer["failed"][: shards.SHOWN])
            raise FetchError(f"{host.name}: from {source['said']}:\n    - {told}")
        return answer

    def tell(self, host: Host, answer: Mapping[str, Any], source: Any) -> None:
        for one in answer["aside"]:
            host.log(f"kept aside: {one['path']} is now {one['to']}", log_func=logger.info)
        ways = sorted(set(answer["local"].values()))
        if ways:
            host.log(
                f"{len(answer['local'])} files from this host itself ({', '.join(ways)})",
                log_func=logger.info,
            )
        if source:
            brought, moved = answer["brought"], answer["moved_bytes"]
            host.log(
                f"{len(brought)} files, {sum(brought.values())} bytes from {source['said']}; "
                f"{moved} bytes ({volume(moved)}) crossed in {answer['seconds']} s",
                log_func=logger.info,
            )
        figures = self.figures.setdefault(host.name, [])
        figures.append({"from": source["said"] if source else host.name, **answer})

    def hub(self) -> dict[str, Any]:
        """The Hub as a source: URLs of the pinned revision, and the control machine's token, which
        goes over no network in the clear."""
        urls = {
            name: hf_hub_url(self.model.repository, name, revision=self.model.revision)
            for name in self.entries
        }
        said = endpoint.shown(constants.ENDPOINT)
        return {"said": said, "urls": urls, "token": endpoint.token(constants.ENDPOINT)}

    @contextlib.contextmanager
    def lent(self, rank: int, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The host of a rank as a source while the block runs; raises RemoteError."""
        node, host, token = self.job.cluster.nodes[rank], self.job.hosts[rank], secrets.token_hex()
        request = {
            "directory": shards.directory(self.stack, self.job.cluster.model_dir),
            "entries": [self.entries[name] for name in names],
            "address": node.fabric_address,
            "token": token,
            "silence_s": SILENCE_S,
        }
        try:
            port = call(host, "lend", "run", str(LEND_START_S), stdin=request)["port"]
            base = f"http://{node.fabric_address}:{port}"
            urls = {name: f"{base}/{self.entries[name]['sha256']}" for name in names}
            yield {
                "said": f"{host.name} over the fabric",
                "urls": urls,
                "token": token,
                "lent": True,
            }
        finally:
            with contextlib.suppress(RemoteError):  # it ends by itself
                call(host, "lend", "stop")

    def stage(self, planned: Sequence[Transfer]) -> None:
        """All transfers of one stage at the same time."""
        lenders = sorted({one.source for one in planned if one.source is not None})
        with contextlib.ExitStack() as open_now:
            sources: dict[int | None, dict[str, Any]] = {None: self.hub()}
            for lender in lenders:
                names = {n for one in planned if one.source == lender for n in one.names}
                sources[lender] = open_now.enter_context(self.lent(lender, sorted(names)))
            by_rank = {one.to: [p for p in planned if p.to == one.to] for one in planned}

            def receive(rank: int) -> None:
                for one in by_rank[rank]:
                    self.ask(rank, one.names, sources[one.source])

            each(list(by_rank), receive)

    def run(self) -> None:
        """Look, bring, and look again; raises FetchError or RemoteError."""
        job, ranks = self.job, range(len(self.job.hosts))
        job.enter("Model files looked at")
        self.answers = self.look(self.full, ranks)
        amiss = [r for r in ranks if self.answers[r]["wrong"] or self.answers[r]["extra"]]
        for rank in amiss:
            for line in self.answers[rank]["faults"][: shards.SHOWN]:
                job.hosts[rank].log(line, log_func=logger.warning)
        job.enter("From each host itself")
        found = each(amiss, lambda rank: self.ask(rank, self.answers[rank]["wrong"], None))
        lacking = [
            set(self.answers[rank]["wrong"]) - set(found[rank]["local"] if rank in found else ())
            for rank in ranks
        ]
        for planned in transfers(lacking, self.sizes, self.fabric_ranks() if any(lacking) else ()):
            hub = planned[0].source is None
            job.enter("From the Hub" if hub else "Over the fabric")
            self.stage(planned)
        job.enter("Model files looked at again")
        for rank, answer in self.look(False, amiss).items():
            if answer["faults"]:
                where = shards.directory(self.stack, job.cluster.model_dir)
                other = shards.out_of_sight(self.stack, job.cluster.model_dir)
                then = f" even now ({other})" if other else " even now"
                told = shards.faults(job.hosts[rank], where, self.stack, answer, then)
                raise FetchError(told)
            self.answers[rank] = answer
        for rank in ranks:
            shards.leftovers(job.hosts[rank], self.answers[rank])


def _bring(state: State, host: Host, job: Job, work: Bringing) -> bool:
    try:
        work.run()
    except Exception as error:  # lenders have ended on the way here, whatever it is
        foreseen = isinstance(error, RemoteError | FetchError)
        said = str(error) if foreseen else f"unexpected {type(error).__name__}: {error}"
        return fail(state, host, job, f"{said}\n    what came is kept; run this again to go on")
    for one in job.hosts:
        job.changed(one)
    return True


@step
def brought(here: Here, hub_only: bool, full: bool) -> Commands:
    """
    Have every file of the model right on every host; carried by the head for all of them.

    + here: this host's share of the run
    + hub_only: everything from the Hub, nothing from host to host
    + full: read every byte that is there first, whatever earlier reads have shown

    Only what is missing or wrong moves; a file changes when the right bytes have arrived whole.
    What lay in the place of a file and is not weights is kept aside and given back by undo.
    Fails: names what could not be had; what came is kept and the next run goes on from there.
    """
    stack = here.stack
    said = unproven(here.job, stack)
    if not said and not full:
        here.job.hosts[0].noop(f"model files of {stack.name} are right on every host")
        return
    if not here.executing:
        for name, state in said.items():
            told = f"{name}: {state}; would read what is there and bring what is not right"
            here.job.hosts[0].log(told, log_func=logger.info)
    yield FunctionCommand(_bring, (here.job, Bringing(here.job, stack, hub_only, full)), {})
