"""The page is printed once, and not before every host that is left has been read."""

from __future__ import annotations

from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory

from operations.run.roll_call import RollCall


def hosts_of(count: int) -> list[Host]:
    names = [f"@fake/spark{n}" for n in range(count)]
    return list(Inventory((names, {})))  # type: ignore[no-untyped-call]


def test_the_last_host_completes_the_roll_and_only_once() -> None:
    one, two, three = hosts_of(3)
    roll = RollCall()
    assert not roll.complete(one, [one, two, three])
    assert not roll.complete(two, [one, two, three])
    assert roll.complete(three, [one, two, three])
    assert not roll.complete(three, [one, two, three])


def test_a_host_that_dropped_out_is_not_waited_for() -> None:
    one, two = hosts_of(2)
    roll = RollCall()
    assert not roll.complete(one, [one, two])
    assert roll.complete(two, [one])
