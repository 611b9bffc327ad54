"""Each missing file crosses the internet once, and goes from host to host over the fabric."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operations.model.sources import Transfer, transfers

SIZES = {"a": 1, "b": 10, "c": 100}


def test_what_the_other_host_has_comes_from_it() -> None:
    assert transfers([set(), {"a", "c"}], SIZES, [0, 1]) == [[Transfer(1, 0, ("a", "c"))]]


def test_what_nobody_has_comes_once_to_the_host_that_lacks_least_and_crosses_from_there() -> None:
    assert transfers([{"a", "c"}, {"a", "b"}], SIZES, [0, 1]) == [
        [Transfer(1, None, ("a",))],
        [Transfer(0, 1, ("a", "c")), Transfer(1, 0, ("b",))],
    ]


def test_two_empty_hosts() -> None:
    every = ("a", "b", "c")
    assert transfers([set(SIZES), set(SIZES)], SIZES, [0, 1]) == [
        [Transfer(0, None, every)],
        [Transfer(1, 0, every)],
    ]


def test_without_a_fabric_every_host_asks_the_hub() -> None:
    for fabric in ([], [0], [1]):
        assert transfers([{"a"}, {"a", "b"}], SIZES, fabric) == [
            [Transfer(0, None, ("a",)), Transfer(1, None, ("a", "b"))]
        ]


def test_a_host_off_the_fabric_asks_the_hub_and_the_others_each_other() -> None:
    assert transfers([{"a"}, {"b"}, {"a", "b"}], SIZES, [0, 1]) == [
        [Transfer(2, None, ("a", "b"))],
        [Transfer(0, 1, ("a",)), Transfer(1, 0, ("b",))],
    ]


def test_nothing_is_moved_where_nothing_lacks() -> None:
    assert transfers([set(), set()], SIZES, [0, 1]) == []


HOSTS = st.integers(1, 5)


@given(st.data())
def test_every_host_ends_with_everything_and_no_lender_gives_what_it_has_not(
    data: st.DataObject,
) -> None:
    hosts = data.draw(HOSTS)
    lacking = [data.draw(st.sets(st.sampled_from("abc"))) for _ in range(hosts)]
    fabric = data.draw(st.sets(st.integers(0, hosts - 1)))
    have = [set(SIZES) - one for one in lacking]
    from_hub: list[str] = []
    for stage in transfers(lacking, SIZES, fabric):
        before = [set(one) for one in have]
        for one in stage:
            assert set(one.names).isdisjoint(before[one.to])
            if one.source is None:
                from_hub += one.names if one.to in fabric and len(fabric) > 1 else ()
            else:
                assert set(one.names) <= before[one.source]
                assert {one.to, one.source} <= fabric
            have[one.to] |= set(one.names)
    assert have == [set(SIZES)] * hosts
    assert len(from_hub) == len(set(from_hub))
