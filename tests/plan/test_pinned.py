"""An image that cannot be had: said once for each host, with the old engine left alone."""

from __future__ import annotations

from collections.abc import Callable

from tests.plan.conftest import Pair
from tests.plan.made_pair import bare, old_rank

REFUSED = "dial tcp 10.0.2.100:5000: connect: connection refused"


def test_an_image_that_cannot_be_had_is_one_line_a_host_and_nothing_is_torn_down(
    pair: Callable[..., Pair],
) -> None:
    made = pair()
    for rank in range(2):
        made.snapshots[rank] = bare(made.cluster, rank, made.lab, made.dsf)
        made.snapshots[rank]["images"][made.lab.image_reference] = None
        made.snapshots[rank]["containers"]["containers"] = [old_rank(made.dsf)]
    answer = {"ok": False, "message": REFUSED}
    said = {"active": False, "subject": "the pull", "progress": None, "answer": answer}
    made.answers[" images run "] = said
    run = made.run("serve", "-y", "--debug")
    assert run.status == 1
    for host in made.names:
        lines = [ln for ln in run.err.splitlines() if f"cannot be had on @fake/{host}" in ln]
        (line,) = [ln for ln in lines if ln.lstrip().startswith(f"[@fake/{host}]")]
        assert line.endswith(f"{made.lab.image_reference} cannot be had on @fake/{host}: {REFUSED}")
        given = " ".join(run.commands(host))
        assert " images run " in given
        assert " ranks " not in given
