"""The page is printed once, and not before every host that is left has been read."""

from __future__ import annotations

from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory

from facts.state import unread
from operations.run.roll_call import RollCall, of_run
from tests.plan.made_job import made_job
from tests.plan.made_pair import cluster

READ = unread("no matter")


def hosts_of(count: int) -> list[Host]:
    names = [f"@fake/spark{n}" for n in range(count)]
    return list(Inventory((names, {})))  # type: ignore[no-untyped-call]


def test_the_last_host_completes_the_roll_and_only_once() -> None:
    one, two, three = hosts_of(3)
    roll = RollCall()
    assert not roll.complete(one, READ, [one, two, three])
    assert not roll.complete(two, READ, [one, two, three])
    assert roll.complete(three, READ, [one, two, three])
    assert not roll.complete(three, READ, [one, two, three])


def test_a_host_that_dropped_out_is_not_waited_for() -> None:
    one, two = hosts_of(2)
    roll = RollCall()
    assert not roll.complete(one, READ, [one, two])
    assert roll.complete(two, READ, [one])


def test_the_hosts_of_one_run_share_one_and_another_run_has_its_own() -> None:
    first, second = (made_job(cluster(), [{}, {}], None, ()).hosts for _ in range(2))
    roll = of_run(first[0], RollCall, RollCall)
    assert of_run(first[1], RollCall, RollCall) is roll
    assert of_run(second[0], RollCall, RollCall) is not roll
