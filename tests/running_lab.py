"""The running lab as tests use it: its verbs, commands on a host, jobs of this project on the pair.

Everything is read with ordinary commands on the hosts, not with this project's facts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from lab.common.paths import lab_home
from lab.guests.ssh import boot_id, wait, wait_units

REPOSITORY = Path(__file__).parents[1]
INVENTORY = "inventory/lab.py"
HOSTS = ("spark1", "spark2")
API = "http://127.0.0.1:18888"  # the head's API, forwarded by the lab
# A verb that has to boot a host takes up to five minutes under emulation on a busy machine.
VERB_LIMIT_S = 1200
JOB_LIMIT_S = 1200


def lab(*words: str) -> str:
    """What a verb of `python -m lab` prints; AssertionError with its output when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=VERB_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"lab {' '.join(words)}:\n{done.stdout}{done.stderr}"
    return done.stdout


@cache
def ssh_config() -> str:
    """Path of the lab's ssh_config."""
    return lab("ssh-config").strip()


def on(host: str, script: str) -> str:
    """What a shell script prints that runs as root on a host; AssertionError when it fails."""
    line = ["ssh", "-F", ssh_config(), host, "sudo", "sh", "-s"]
    done = subprocess.run(
        line, input=script, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{host}: {script}\n{done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Run:
    """A finished job: exit status, all that it printed, its seconds, its folder here."""

    status: int
    text: str
    seconds: float
    folder: Path | None

    @property
    def changed(self) -> list[str]:
        """`operation on host` for everything that was changed."""
        found, operation = [], ""
        for line in self.text.splitlines():
            if started := re.match(r"--> Starting operation: (.*)", line):
                operation = started[1].strip()
            elif done := re.match(r"\s+\[(\S+)\] Success", line):
                found.append(f"{operation} on {done[1]}")
        return found

    @property
    def receipt(self) -> dict[str, Any]:
        """The record that the job left on this machine."""
        assert self.folder is not None, self.text
        return dict(json.loads((self.folder / "receipt.json").read_text()))

    def stage_s(self, title: str) -> float:
        """Seconds of one stage of the receipt."""
        return next(float(s["seconds"]) for s in self.receipt["stages"] if s["title"] == title)


@dataclass(frozen=True)
class FirstServe:
    """From `fresh` to served: readings and plans on the way, by host where they are one."""

    fresh: dict[str, str]
    plan: list[str]
    after_dry_run: dict[str, str]
    run: Run
    ended: float


def job(name: str, state_home: Path, *words: str, inventory: str = INVENTORY) -> Run:
    """Run deploys/`name`.py on the lab; its receipt and logs go below `state_home`.

    words: more of pyinfra's command line, as `--data`, `quiet=5`
    """
    runs = f"spark-converge/*-{name}*"
    before = set(state_home.glob(runs))
    began = time.monotonic()
    done = _pyinfra(name, "-y", *words, state_home=state_home, inventory=inventory)
    seconds = time.monotonic() - began
    new = sorted(set(state_home.glob(runs)) - before)
    return Run(done.returncode, done.stdout, seconds, new[-1] if new else None)


def ran(name: str, state_home: Path, inventory: str = INVENTORY) -> Run:
    """As job(); AssertionError with its output when it fails."""
    run = job(name, state_home, inventory=inventory)
    assert run.status == 0, run.text
    return run


def planned(name: str, state_home: Path, inventory: str = INVENTORY) -> list[str]:
    """`operation on host` for everything that a dry run of deploys/`name`.py would change."""
    done = _pyinfra(name, "--dry", "--json", state_home=state_home, inventory=inventory)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    plan = json.loads(done.stdout)["plan"]
    return [f"{step['name']} on {host}" for step in plan for host in step["hosts_with_change"]]


def started(name: str, state_home: Path) -> subprocess.Popen[str]:
    """deploys/`name`.py as a process whose output is read while it runs."""
    return subprocess.Popen(
        _line(INVENTORY, name, "-y"),
        cwd=REPOSITORY,
        env=_environment(state_home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _line(inventory: str, name: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "pyinfra", inventory, f"deploys/{name}.py", *options]


def _environment(state_home: Path) -> dict[str, str]:
    return os.environ | {"XDG_STATE_HOME": str(state_home)}


def _pyinfra(
    name: str, *options: str, state_home: Path, inventory: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _line(inventory, name, *options),
        cwd=REPOSITORY,
        env=_environment(state_home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if "--json" not in options else subprocess.PIPE,
        text=True,
        timeout=JOB_LIMIT_S,
        check=False,
    )


def reboot() -> None:
    """Both hosts at once, by their own command; returns when every unit of the boot is done."""

    def one(host: str) -> None:
        before = boot_id(lab_home(), host)
        on(host, "(sleep 1; systemctl reboot) > /dev/null 2>&1 &")
        wait(lab_home(), host, not_boot=before)
        wait_units(lab_home(), host)

    with ThreadPoolExecutor() as pool:
        list(pool.map(one, HOSTS))


def completion(model: str, timeout_s: float = 90) -> str:
    """The model's own answer to 17*23, asked from this machine; raises httpx.HTTPError."""
    body = {"model": model, "messages": [{"role": "user", "content": "What is 17*23?"}]}
    reply = httpx.post(
        f"{API}/v1/chat/completions", json=body, timeout=timeout_s, trust_env=False
    ).raise_for_status()
    answer = reply.json()
    assert answer["model"] == model
    return str(answer["choices"][0]["message"]["content"])


def containers(host: str) -> list[str]:
    """Names of all containers of a host, stopped ones included."""
    return on(host, "docker ps --all --format '{{.Names}}'").split()


def remove_ranks() -> None:
    """Both hosts without any container, as after a stop, but in two seconds."""
    for host in HOSTS:
        on(host, "docker ps --all --quiet | xargs -r docker rm --force > /dev/null")


def set_fault(host: str, text: str) -> None:
    """Switch faults of the lab's engine on for a host; an empty text switches all off."""
    on(host, f"cat > /etc/lab-engine/faults <<'END'\n{text}\nEND\n")


def snapshots() -> list[str]:
    """Names of the lab's snapshots."""
    return list(json.loads(lab("status", "--json"))["snapshots"])


# All that the jobs of this project change on a host, and nothing that changes by itself.
READING = r"""
systemctl get-default
systemctl list-unit-files --no-legend --no-pager | sort
systemctl list-units --no-legend --no-pager --plain --state=active --type=service,socket,path |
    awk '{print $1}' | grep -Ev '^(user@|user-|session-|systemd-|run-)' | sort
grep -H . /sys/devices/system/cpu/cpufreq/policy*/scaling_governor
sha256sum /etc/netplan/* /var/spool/cron/crontabs/* && stat -c '%n %a %U %G' /etc/netplan/*
ip -o addr show | awk '{print $2, $3, $4}' | grep -v ' fe80' | sort
ls /sys/class/net/ && cat /sys/class/net/*/mtu
docker ps --all --no-trunc --format '{{.ID}} {{.Names}} {{.State}}'
ls -A /dev/shm | sort
find /var/lib/spark-converge /opt /srv/models /usr/local 2>/dev/null | sort
"""


def reading(host: str) -> str:
    """What the jobs of this project might change, as text to compare."""
    return on(host, READING)
