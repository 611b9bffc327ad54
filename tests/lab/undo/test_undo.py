"""Hosts given back as they were on `fresh`: file by file, link by link, by plain commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.given_back import assert_as_before, links, look
from tests.running_lab import (
    HOSTS,
    Run,
    completion,
    job,
    lab,
    on,
    planned,
    ran,
    reboot,
)

pytestmark = pytest.mark.long

JOURNAL = "/var/lib/spark-converge/journal"
TABLE = "/var/spool/cron/crontabs/root"
OURS = "/etc/netplan/60-spark-converge.yaml"


def engines(host: str) -> str:
    """The running containers of a host, and when each was started."""
    shown = "docker inspect --format '{{.Name}} {{.Id}} {{.State.StartedAt}}'"
    return on(host, f"docker ps --quiet | xargs {shown}")


@dataclass(frozen=True)
class Prepared:
    """From `fresh` to prepared, with what was seen on the way.

    before: all of each host on `fresh`; beside: the first prepare, while the old engine served;
    engines: on `fresh` and after that prepare; answer: of the old engine after it; refused: the
    undo that was tried then; idle: the second prepare, after the stop.
    """

    before: dict[str, set[str]]
    beside: Run
    engines: tuple[dict[str, str], dict[str, str]]
    answer: str
    refused: Run
    idle: Run


@pytest.fixture(scope="module")
def once(state_home: Path) -> Prepared:
    """From `fresh` to engines down and everything converged; kept as the snapshot `prepared`."""
    lab("restore", "fresh")
    before = {host: look(host) for host in HOSTS}
    served = {host: engines(host) for host in HOSTS}
    beside = ran("prepare", state_home)
    serves = {host: engines(host) for host in HOSTS}
    answer = completion("dsf-lab")
    refused = job("undo", state_home)
    ran("stop", state_home)
    idle = ran("prepare", state_home)
    lab("snapshot", "prepared")
    return Prepared(before, beside, (served, serves), answer, refused, idle)


@pytest.fixture
def prepared(once: Prepared) -> dict[str, set[str]]:
    """A prepared pair; what was there before."""
    lab("restore", "prepared")
    assert all(any(line.startswith("ip bond0 ") for line in links(host)) for host in HOSTS)
    return once.before


def test_a_prepare_beside_a_serving_engine_does_not_touch_it(once: Prepared) -> None:
    served, serves = once.engines
    assert "dsf-lab" in served[HOSTS[0]]
    assert serves == served
    assert "391" in once.answer
    assert "waits: the fabric" in once.beside.text
    fabric = {line for line in once.idle.changed if "Fabric" in line}
    assert {line.split(" on ")[-1] for line in fabric} == set(HOSTS)


def test_an_undo_is_refused_while_an_engine_runs(once: Prepared) -> None:
    assert once.refused.status == 1
    assert "runs; take it down first" in once.refused.text
    assert once.refused.changed == []


def test_hosts_are_given_back_as_they_were(prepared: dict[str, set[str]], state_home: Path) -> None:
    assert planned("undo", state_home) == [f"Host given back as it was on {h}" for h in HOSTS]
    ran("undo", state_home)
    assert_as_before(prepared)
    assert planned("undo", state_home) == []
    again = ran("undo", state_home)
    assert again.changed == []
    for host in HOSTS:
        kept = on(host, f"ls -d {JOURNAL}*").split()
        assert len(kept) == 1
        assert ".undone-" in kept[0]


def test_a_prepared_pair_stays_so_over_a_reboot_and_is_given_back(
    prepared: dict[str, set[str]], state_home: Path
) -> None:
    assert ran("prepare", state_home).changed == []
    reboot()
    assert "all ok" in ran("verify", state_home).text
    ran("undo", state_home)
    assert_as_before(prepared)


def test_a_host_is_undone_at_its_own_console_although_it_was_killed_half_way(
    prepared: dict[str, set[str]],
) -> None:
    on(
        "spark2",
        "spark-converge-undo > /dev/null 2>&1 &\n"
        "while ! systemctl is-active --quiet spark-converge-undo; do sleep 0.1; done\n"
        "sleep 2; systemctl kill -s KILL spark-converge-undo; wait || true",
    )
    assert on("spark2", f"ls {JOURNAL}/files").strip(), "killed before it was done"
    for host in HOSTS:
        assert "given back: fabric links" in on(host, "spark-converge-undo") or host == "spark2"
        assert on(host, "spark-converge-undo") == "nothing to undo\n"
    assert_as_before(prepared)


def test_a_power_cut_after_prepare_leaves_a_journal_that_restores(
    prepared: dict[str, set[str]],
) -> None:
    lab("power", "spark2", "reset")
    for host in HOSTS:
        on(host, "spark-converge-undo")
    assert_as_before(prepared)


def test_what_the_owner_edited_since_is_left_and_named(
    prepared: dict[str, set[str]], state_home: Path
) -> None:
    on("spark2", f"echo '# mine' >> {OURS}")
    # Not by crontab(1), whose -l leaves out the first three lines when they are comments.
    on("spark1", f"echo '@daily /bin/true' >> {TABLE}")
    run = job("undo", state_home)
    assert run.status == 1
    assert f"{OURS}: edited since: line" in run.text
    assert "fabric links" in run.text
    assert on("spark2", f"tail -1 {OURS}") == "# mine\n"
    assert on("spark2", "cat /sys/class/net/bond0/mtu") == "9000\n"
    table = on("spark1", f"cat {TABLE}")
    assert "SPARK-HELD" not in table
    assert table.endswith("@daily /bin/true\n")
    assert f"given back: {OURS}" in on("spark2", f"spark-converge-undo --force {OURS}")
    assert on("spark2", f"cat {JOURNAL}.undone-*/files/*60-spark*.json | grep -c found_at") == "1\n"
    on("spark1", f"sed -i -e '/^@daily .bin.true/d' {TABLE}")
    assert_as_before(prepared)
