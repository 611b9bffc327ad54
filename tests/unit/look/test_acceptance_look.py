"""How the acceptance tests read a unit that a condition keeps from starting."""

from __future__ import annotations

import pytest

from tests.acceptance.look import demanded
from tests.unit.on_host import module

OWN = "# /etc/systemd/system/a.service\n[Unit]\nConditionPathExists=/etc/a.conf\n[Service]\n"


def test_our_drop_in_is_read_as_a_path_that_is_demanded() -> None:
    text = OWN + module("systemd.units").DOWN.decode()
    assert demanded(text) == ["/etc/a.conf", "/nonexistent/down-by-spark-converge"]


@pytest.mark.parametrize(
    "more",
    [
        "[Unit]\nConditionPathExists=/nonexistent/x\nConditionVirtualization=\n",
        "[Unit]\nConditionPathExists=!/nonexistent/x\n",
        "[Unit]\nConditionPathExists=|/nonexistent/x\n",
        "#[Unit]\n#ConditionPathExists=/nonexistent/x\n",
        "[Service]\nConditionPathExists=/nonexistent/x\n",
    ],
)
def test_what_does_not_keep_a_unit_down_is_not_taken_for_it(more: str) -> None:
    assert "/nonexistent/x" not in demanded(OWN + more)
