"""Timers, cron folders and hooks of links that would bring another stack back."""

from __future__ import annotations

import re

from testinfra.host import Host

from tests.acceptance.look import read

STARTS_ENGINES = re.compile(r"\b(docker|podman|nerdctl|sglang|vllm)\b")
PATH = re.compile(r"(?<![\w./-])/[\w./+@:-]+")
# What each active timer starts: its name, then the commands; a condition that never holds is told.
TIMERS = r"""
for timer in $(systemctl list-units --type=timer --state=active --plain --no-legend |
    awk '{print $1}'); do
    unit=$(systemctl show --property=Unit --value "$timer")
    systemctl cat "$unit" 2> /dev/null | sed -nE "s|^Exec[A-Za-z]*=|$unit\t|p;
        s|^ConditionPathExists=/nonexistent/.*|$unit\theld|p"
done
"""
FOLDERS = r"find /etc/cron.hourly /etc/cron.daily /etc/cron.weekly /etc/cron.monthly"
HOOKS = r"find -L /etc/NetworkManager/dispatcher.d /etc/networkd-dispatcher /etc/network/if-up.d"


def test_no_timer_starts_an_engine(host: Host) -> None:
    lines = [line.partition("\t") for line in read(host, TIMERS).splitlines()]
    held = {unit for unit, _, command in lines if command == "held"}
    armed = [(unit, command) for unit, _, command in lines if unit not in held]
    paths = sorted({path for _, command in armed for path in PATH.findall(command)})
    grep = f"grep -lsIwE '{STARTS_ENGINES.pattern}' -- {' '.join(paths)} /dev/null || true"
    scripts = set(read(host, grep).split())
    assert [
        unit
        for unit, command in armed
        if STARTS_ENGINES.search(command) or scripts & set(PATH.findall(command))
    ] == []


def test_no_script_of_a_cron_folder_starts_an_engine(host: Host) -> None:
    run = f"{FOLDERS} -perm -100 -type f -not -name '*.*' 2> /dev/null"
    words = STARTS_ENGINES.pattern
    assert read(host, f"{run} | xargs -r grep -lsIwE '{words}' || true").split() == []


def test_no_script_that_a_link_runs_when_it_comes_up_starts_an_engine(host: Host) -> None:
    run = f"{HOOKS} -perm -100 -type f 2> /dev/null"
    words = STARTS_ENGINES.pattern
    assert read(host, f"{run} | xargs -r grep -lsIwE '{words}' || true").split() == []
