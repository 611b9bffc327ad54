"""What the hosts of a run share: pyinfra runs a deploy file once for each host, all at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from pyinfra.api.host import Host

from facts.state import HostState

T = TypeVar("T")


def of_run(host: Host, kind: type[T], make: Callable[[], T]) -> T:
    """The one object of its kind in this run, made by the first host that asks for it."""
    kept = vars(host.state)
    name = f"spark_converge_{kind.__name__}"
    if name not in kept:
        kept[name] = make()
    found: T = kept[name]
    return found


@dataclass
class RollCall:
    """Hosts that have reported, for jobs that only look; states: by their names."""

    states: dict[str, HostState] = field(default_factory=dict)
    done: bool = False

    def complete(self, host: Host, state: HostState, expected: Iterable[Host]) -> bool:
        """Note a host; True once, for the call after which none of the expected is missing."""
        self.states[host.name] = state
        if self.done or {one.name for one in expected} - {*self.states}:
            return False
        self.done = True
        return True
