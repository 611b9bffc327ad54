"""Field cases A01 to A12 on real hosts, planted at once: found, held, given back byte for byte."""

from __future__ import annotations

import base64
import json
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.running_lab import HOSTS, Run, job, lab, on, planned

pytestmark = pytest.mark.long

PROGRAM = "python3 -I /usr/local/lib/spark-converge/spark_host"
GUARD = "/usr/local/bin/guard.sh"
SPOOL = "/var/spool/cron/crontabs"
# Never: there is no 31st of February. What is held must not depend on when it would run.
NEVER = "0 5 31 2 *"

# (line, whether it has to be held); each table has a mark of another tool beside a watchdog.
USER: list[tuple[str, bool]] = [
    ("MAILTO=docker@example.org", False),
    ("# Guards the lane; see /opt/dsf/README", False),
    (f"{NEVER} {GUARD}", True),  # A01, written by hand
    (f"{NEVER} {GUARD} >> /var/log/g.log 2>&1", True),  # A03
    (f"@reboot   {GUARD}", True),  # A05
    (f"0\t5\t31\t2\t*\t{GUARD}", True),  # A05
    (f"{NEVER} {GUARD} $(date +\\%F)", True),  # A07
    (f"{NEVER} {GUARD} a%b", True),  # A07
    ("#Ansible: guard", False),  # A10
    (f"{NEVER} {GUARD} --ansible", True),
    (f"#TESTING-20260826 {NEVER} {GUARD}", False),  # A12
    (f"{NEVER} /usr/local/bin/guardXsh", False),  # A12
    (f"{NEVER} cd /opt/dsf && docker compose up -d", True),
    ("0 1 * * * /usr/bin/true", False),
    (f"{NEVER} {GUARD}\r", True),
    (f"{NEVER} {GUARD} --last", True),  # and no line end behind it
]
SYSTEM = [(line.replace(NEVER, f"{NEVER} root"), held) for line, held in USER[2:4]]
PLACES = {
    f"{SPOOL}/root": ("root crontab 600", USER),
    f"{SPOOL}/nvidia": ("nvidia crontab 600", USER),
    "/etc/crontab": ("root root 644", SYSTEM),
    "/etc/cron.d/guard": ("root root 644", SYSTEM),
    "/etc/cron.d/guard.bak": ("root root 644", [(line, False) for line, _ in SYSTEM]),
}

PLANT = f"""
set -eu
cat > {GUARD} <<'END'
#!/bin/sh
# A watchdog at its work: it looks, waits, and would start the engine.
sleep 600
: docker compose up --detach
END
chmod 755 {GUARD}
printf '#!/bin/sh\\ntrue\\n' > /usr/local/bin/guardXsh
install -m 755 {GUARD} /etc/cron.hourly/guard
"""
# As cron has them run: by a shell, away from whoever looks.
START = f"""
exec < /dev/null > /dev/null 2>&1
setsid {GUARD} &
setsid /etc/cron.hourly/guard &
"""
RUNNING = f"pgrep -f '{GUARD}|/etc/cron.hourly/guard|sleep 600' | wc -l"


def raw(host: str, path: str) -> bytes:
    return base64.b64decode(on(host, f"base64 < {path}"))


def place(host: str, path: str, data: bytes) -> None:
    """As crontab(1) does: a new file in the place of the old one."""
    owner, group, mode = PLACES[path][0].split()
    text = base64.b64encode(data).decode()
    put = f"install -o {owner} -g {group} -m {mode} /root/table {path}"
    on(host, f"echo {text} | base64 -d > /root/table; {put}; rm /root/table")


def attributes(host: str, path: str) -> str:
    return on(host, f"stat -c '%U %G %a' {path}").strip()


def tables(host: str) -> dict[str, tuple[str, bytes]]:
    return {path: (attributes(host, path), raw(host, path)) for path in PLACES}


def held(before: bytes, lines: list[tuple[str, bool]], day: str) -> bytes:
    """Each planted line by itself; what stood there before has the old lane's own watchdog."""
    text = before.decode("latin-1")
    planted = "\n".join(line for line, _ in lines)
    assert text.endswith(planted)
    old = re.sub(r"(?m)^(?=\* \* \* \* \* /)", f"#SPARK-HELD-{day} ", text[: -len(planted)])
    new = [f"#SPARK-HELD-{day} {line}" if hold else line for line, hold in lines]
    return (old + "\n".join(new)).encode("latin-1")


@pytest.fixture(scope="module")
def before() -> dict[str, dict[str, tuple[str, bytes]]]:
    """Both hosts of `fresh` with all of it planted; their tables as bytes, by host and path."""
    lab("restore", "fresh")
    for host in HOSTS:
        script = PLANT
        for path, (attributes_, lines) in PLACES.items():
            owner, group, mode = attributes_.split()
            text = "\n".join(line for line, _ in lines)
            script += f"printf %s {shlex.quote(text)} >> {path}\n"
            script += f"chown {owner}:{group} {path}; chmod {mode} {path}\n"
        on(host, script)
    return {host: tables(host) for host in HOSTS}


@pytest.fixture(scope="module")
def stopped(before: dict[str, dict[str, tuple[str, bytes]]], state_home: Path) -> Run:
    """A dry run that changes nothing, then the stop, with watchdogs running at that moment."""
    plan = planned("stop", state_home)
    for host in HOSTS:
        assert any(step.endswith(f"dated tag on {host}") for step in plan)
        assert any(step.endswith(f"engines held on {host}") for step in plan)
        assert tables(host) == before[host]
        on(host, START)
    run = job("stop", state_home, "--data", "quiet=5")
    assert run.status == 0, run.text
    return run


def test_every_armed_line_is_held_and_nothing_else_changes(
    before: dict[str, dict[str, tuple[str, bytes]]], stopped: Run
) -> None:
    day = f"{datetime.now(UTC):%Y%m%d}"
    for host in HOSTS:
        now = tables(host)
        for path, (attributes_, lines) in PLACES.items():
            was = before[host][path][1]
            assert now[path] == (attributes_, held(was, lines, day)), f"{host} {path}"
        assert attributes(host, "/etc/cron.hourly/guard") == "root root 644"


def test_what_ran_at_that_moment_has_ended(stopped: Run) -> None:
    assert {host: on(host, RUNNING).strip() for host in HOSTS} == dict.fromkeys(HOSTS, "0")


def test_a_second_stop_changes_nothing(stopped: Run, state_home: Path) -> None:
    again = job("stop", state_home, "--data", "quiet=5")
    assert again.status == 0, again.text
    assert again.changed == []


def test_a03_five_cycles_of_hold_and_rearm_on_the_host_itself(
    before: dict[str, dict[str, tuple[str, bytes]]], stopped: Run
) -> None:
    paths = [path for path in PLACES if not path.endswith(".bak")]
    for host in HOSTS:
        texts = {path: raw(host, path) for path in paths}
        script = "set -eu\n"
        for path in paths:
            owner, group, mode = PLACES[path][0].split()
            ids = f"$(id -u {owner}) $(getent group {group} | cut -d: -f3)"
            text = base64.b64encode(texts[path]).decode()
            script += f"hold{paths.index(path)}() {{ echo {text} | "
            script += f"{PROGRAM} journal put {path} {mode} {ids} SPARK-HELD > /dev/null; }}\n"
        sums = f"sha256sum {' '.join(paths)} | sha256sum"
        holds = "; ".join(f"hold{n}" for n in range(len(paths)))
        script += f"for n in 1 2 3 4 5; do {PROGRAM} crontab rearm > /dev/null; {sums}; "
        script += f"{holds}; {sums}; done\n"
        seen = on(host, script).split("\n")
        assert len(set(seen[0:10:2])) == len(set(seen[1:10:2])) == 1
        assert seen[0] != seen[1]
        assert {path: raw(host, path) for path in paths} == texts


def test_a10_an_armed_copy_beside_a_held_line_is_a_resurrection(
    before: dict[str, dict[str, tuple[str, bytes]]], stopped: Run, state_home: Path
) -> None:
    line = f"{NEVER} {GUARD} --ansible"
    kept = raw("spark2", f"{SPOOL}/nvidia")
    number = kept.count(b"\n") + 2
    place("spark2", f"{SPOOL}/nvidia", kept + f"\n{line}\n".encode())
    drift = job("verify", state_home)
    assert drift.status == 1
    assert drift.folder is not None
    page = json.loads((drift.folder / "verify.json").read_text())
    (item,) = [i for i in page["hosts"]["spark2"]["items"] if i["name"] == "cron lines"]
    assert item["verdict"] == "drift"
    assert f"armed: the crontab of nvidia line {number} ({GUARD}; the held line" in item["found"]
    assert "armed again" in item["found"]
    again = job("stop", state_home, "--data", "quiet=5")
    assert again.status == 0, again.text
    assert f"resurrection: the crontab of nvidia line {number}" in again.text
    assert b"#Ansible: guard\n#SPARK-HELD-" in raw("spark2", f"{SPOOL}/nvidia")
    # What somebody else wrote is given back as well; here it goes before the undo below.
    place("spark2", f"{SPOOL}/nvidia", kept)


def test_undo_gives_every_table_back_byte_for_byte(
    before: dict[str, dict[str, tuple[str, bytes]]], stopped: Run, state_home: Path
) -> None:
    run = job("undo", state_home)
    assert run.status == 0, run.text
    for host in HOSTS:
        assert tables(host) == before[host]
        assert attributes(host, "/etc/cron.hourly/guard") == "root root 755"
