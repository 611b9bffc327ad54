"""One look at the whole cluster: read every host once, print the page, end with its verdict."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

from rich.console import Console

from facts.network.fabric import Fabric
from facts.run.unknown import Unknown
from facts.state import HostState, unread
from inventory.schema import Cluster, Node
from operations.launch import rdma
from operations.look import parity
from operations.look.page import Column, Page, document, rendered
from operations.look.parts import findings
from operations.pair import identity
from operations.run.findings import Finding, Wanted
from operations.run.job import Here, Job
from operations.run.roll_call import RollCall, of_run
from operations.run.start import make_run_folder
from stacks.definition import Stack

# Wide enough for two hosts side by side where nobody's terminal says how wide it is.
WIDTH_COLUMNS = 160


def states_of(job: Job) -> list[HostState]:
    """Every host's state in rank order; one that is not there is wholly unknown."""
    return [unread(why) if (why := job.why_absent(host)) else job.read(host) for host in job.hosts]


def severed(cluster: Cluster, node: Node, state: HostState) -> bool:
    """Is no cable of the fabric left on a host? False where a port was not read or not found."""
    found = state.fabric.links if isinstance(state.fabric, Fabric) else {}
    ports = cluster.interfaces(node)
    return all(name in found and not found[name].carrier for name in ports)


def serving(job: Job, stack: Stack, states: list[HostState]) -> Finding:
    """Does the set of ranks answer? Asked with a real completion, only when all looks right: ranks
    without a cable between them would keep the question for as long as a completion may take."""
    line = Wanted("cluster", "serving", f"{stack.name} answers, or nothing runs")
    missing = [h.name for h in job.hosts if job.why_absent(h)]
    if missing:
        return line.unread(f"{', '.join(missing)} unread")
    unreadable = [
        host.name
        for host, state in zip(job.hosts, states, strict=True)
        if isinstance(state.containers, Unknown)
    ]
    if unreadable:
        return line.unread(f"containers of {', '.join(unreadable)} unread")
    if not identity.runs_anywhere(states, job.known):
        return line.judged("nothing runs; deploys/serve.py starts it", True)
    cut = [
        node.name
        for node, state in zip(job.cluster.nodes, states, strict=True)
        if severed(job.cluster, node, state)
    ]
    if cut:
        told = f"not asked: no cable of the fabric carries on {', '.join(cut)}"
        return line.judged(told, False)
    why = identity.faults(job)
    return line.judged("; ".join(why) or f"{stack.name} gave a real completion", not why)


def page_of(job: Job, stack: Stack) -> Page:
    states = states_of(job)
    columns = []
    for host, look_at in zip(job.hosts, job.looks(states), strict=True):
        lines_of_it = tuple(one for one in findings(look_at) if one.name)
        columns.append(Column(look_at.node.name, job.why_absent(host) is None, lines_of_it))
    lines = parity.lines(job.cluster, states)
    if not stack.unlocked:
        lines.append(parity.image_line(stack, states))
    tag = parity.tag_line(stack, len(states))
    lines += [tag] if tag else []
    if job.hosts[0].data.get("bandwidth") and not any(job.why_absent(h) for h in job.hosts):
        lines += rdma.bandwidth(job)
    return Page(tuple(columns), tuple(lines), serving(job, stack, states))


def report(job: Job, stack: Stack, page: Page) -> None:
    """Print the page and leave it as JSON in this run's folder."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH_COLUMNS)
    console.print(rendered(page))
    path = make_run_folder(job) / "verify.json"
    head = {
        "job": job.name,
        "cluster": job.cluster.name,
        "stack": stack.name,
        "began": job.began.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - job.began).total_seconds(), 1),
    }
    path.write_text(json.dumps(head | document(page), indent=2, ensure_ascii=False) + "\n")
    counts = page.counts()
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in counts if counts[verdict])
    console.print(f"{'all ok' if page.ok else 'NOT as wanted'}: {told}\n{path}", soft_wrap=True)


def look(here: Here) -> None:
    """Read this host; the last one to be read prints the page and ends the run.

    Every host of the run calls it from its own greenlet, so that all are read at the same time.
    Ends pyinfra with exit status 0 or 1: there is nothing to confirm and nothing to execute.
    """
    roll = of_run(here.host, RollCall, RollCall)
    if not roll.complete(here.host, here.read(), here.job.reachable()):
        return
    page = page_of(here.job, here.stack)
    report(here.job, here.stack, page)
    raise SystemExit(0 if page.ok else 1)
