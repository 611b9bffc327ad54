"""What is found of a host when one part of it is judged, and what a judgement may look at.

A part is judged once, by the `assess` of its module; verify's page, the preflight and the advice
all take it from there (operations/look/parts.py has the parts).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from facts.run.unknown import Unknown
from facts.state import HostState
from inventory.host_settings import HostSettings
from inventory.schema import Cluster, Node
from stacks.definition import Stack

# unsupported: this host has no such thing; unknown: it could not be read. Neither is "ok".
Verdict = Literal["ok", "drift", "unsupported", "unknown"]
# refuse: a drift that no job mends, and that this job must not begin with; advice: forbids nothing.
Kind = Verdict | Literal["refuse", "advice"]


@dataclass(frozen=True)
class Finding:
    """One line of the page for one host (part groups the lines), or what is only said in a job.

    name: empty where the page has no line; sentences: of a refusal or an advice, each with the host
    or the hosts, what was found, and the one thing to do next.
    """

    part: str
    name: str
    wanted: str
    found: str
    kind: Kind
    sentences: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The word on the page."""
        if self.kind == "refuse":
            return "drift"
        return "ok" if self.kind == "advice" else self.kind


@dataclass(frozen=True)
class Wanted:
    """A line of the page before it is judged."""

    part: str
    name: str
    wanted: str

    def judged(self, found: str, good: bool, refuse: Iterable[str] = ()) -> Finding:
        """refuse: sentences for which this job must not begin."""
        told = tuple(refuse)
        return self._of(found, "refuse" if told else "ok" if good else "drift", told)

    def unread(self, why: Unknown | str) -> Finding:
        return self._of(str(why), "unknown")

    def lacking(self, found: str) -> Finding:
        """This host has no such thing."""
        return self._of(found, "unsupported")

    def _of(self, found: str, kind: Kind, sentences: tuple[str, ...] = ()) -> Finding:
        return Finding(self.part, self.name, self.wanted, found, kind, sentences)


def aside(kind: Literal["refuse", "advice"], sentences: Iterable[str]) -> Finding:
    """What has no line on the page; without a sentence it is nothing."""
    told = tuple(sentences)
    return Finding("", "", "", "", kind if told else "ok", told)


@dataclass(frozen=True)
class Look:
    """All that a judgement of one host may look at; pure, whatever is done with it.

    states: of all hosts in rank order; about: the stack of the job, None without one; settles: the
    job brings hosts to the owner's file; launches: it starts the stack where that does not run.
    """

    cluster: Cluster
    rank: int
    states: tuple[HostState, ...]
    about: Stack | None
    known: tuple[Stack, ...]
    settings: HostSettings
    settles: bool = False
    launches: bool = False

    @property
    def node(self) -> Node:
        return self.cluster.nodes[self.rank]

    @property
    def state(self) -> HostState:
        return self.states[self.rank]

    @property
    def stack(self) -> Stack:
        """Raises LookupError in a job that is about none."""
        if self.about is None:
            raise LookupError("a stack was looked for in a job that is about none")
        return self.about

    def named(self, sentences: Iterable[str], only: bool = True) -> list[str]:
        """The sentences with this host's name before them; only: whether they are said at all."""
        return [f"{self.node.name}: {sentence}" for sentence in sentences if only]


@dataclass(frozen=True)
class Line:
    """One comparison: found by rank, None where it could not be read."""

    name: str
    found: tuple[str | None, ...]
    verdict: Verdict
    note: str = ""
