"""Cron lines that would bring another stack back."""

from __future__ import annotations

import re
import shlex

from testinfra.host import Host

from inventory.schema import Cluster
from tests.acceptance.look import read

STARTS_ENGINES = r"\b(docker|podman|nerdctl|sglang|vllm)\b"
PATH = re.compile(r"(?<![\w./-])/[\w./+@:-]+")


def cron_lines(host: Host) -> list[tuple[str, str]]:
    """(file, line) of every crontab of the host."""
    script = (
        "for f in /etc/crontab /etc/cron.d/* /var/spool/cron/crontabs/*; do "
        'if [ -f "$f" ]; then sed "s|^|$f\t|" "$f"; fi; done'
    )
    lines = read(host, script).splitlines()
    return [(path, line) for path, _, line in (text.partition("\t") for text in lines)]


def test_no_armed_cron_line_starts_an_engine(host: Host) -> None:
    jobs = [line for _, line in cron_lines(host) if re.match(r"\s*[\d*@]", line)]
    programs = sorted({path for line in jobs for path in PATH.findall(line)})
    starters = read(
        host, f"grep -lsIE {shlex.quote(STARTS_ENGINES)} -- {shlex.join(programs)} || true"
    ).split()  # fmt: skip
    armed = [
        line
        for line in jobs
        if re.search(STARTS_ENGINES, line) or any(p in starters for p in PATH.findall(line))
    ]
    assert armed == []


def test_held_cron_lines_carry_a_dated_tag(host: Host, cluster: Cluster) -> None:
    word = re.escape(cluster.tags.hold)
    tagged = [line for _, line in cron_lines(host) if re.search(rf"#\s*{word}", line)]
    wrong = [line for line in tagged if not re.match(rf"#{word}-\d{{8}} \s*[\d*@]", line)]
    assert wrong == []
