"""How often a host is asked by a job that changes nothing; tests/lab counts it at sshd itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plan.conftest import Pair
from tests.plan.made_pair import running

Made = Callable[..., Pair]


@pytest.mark.parametrize("deploy", ["prepare", "verify"])
def test_a_job_that_changes_nothing_reads_each_host_once_a_phase(pair: Made, deploy: str) -> None:
    """Once for the plan and once when it is carried out: the host may have changed in between."""
    made = pair()
    made.snapshots[:] = running(made.cluster, made.lab, made.dsf)
    run = made.run(deploy, "-y", "--debug")
    for host in made.names:
        asked = run.commands(host)
        if deploy == "prepare":
            assert " lease release " in asked.pop(), "the next run need not read it twice"
        assert [" snapshot " in command for command in asked] in ([True], [True, True]), asked
