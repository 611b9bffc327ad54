"""rollback_dsf brings the old stack back with its watchdog, and serve works again after it."""

from __future__ import annotations

from pathlib import Path

from tests.running_lab import HOSTS, REPOSITORY, completion, containers, job, on, reading

CRONTAB = "/var/spool/cron/crontabs/root"


def test_rollback_gives_the_old_stack_back_and_serve_works_again(
    served: None, state_home: Path
) -> None:
    back = job("rollback_dsf", state_home)
    assert back.status == 0, back.text
    assert "391" in completion("dsf-lab")
    assert [containers(host) for host in HOSTS] == [["dsf-lab-engine-1"]] * 2
    original = (REPOSITORY / "lab/stacks/old/root.crontab").read_text()
    assert on("spark1", f"cat {CRONTAB}") == original
    assert on("spark1", f"stat -c '%a %U %G' {CRONTAB}").split() == ["600", "root", "crontab"]
    assert all(stage["seconds"] is not None for stage in back.receipt["stages"])

    before = [reading(host) for host in HOSTS]
    again = job("rollback_dsf", state_home)
    assert again.status == 0, again.text
    assert again.changed == []
    assert [reading(host) for host in HOSTS] == before

    forth = job("serve", state_home)
    assert forth.status == 0, forth.text
    assert "391" in completion("lab-model")
