"""How many commands a job runs over SSH, as the host's own sshd logs them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running_lab import HOSTS, job, lab, on, ssh_config

pytestmark = pytest.mark.long

CHANNELS = 6  # that a no-change prepare may open on a host
# The first value that sshd reads wins, so this file has to come first of all.
DROP_IN = "/etc/ssh/sshd_config.d/00-test-log-level.conf"
SESSION = re.compile(r"Starting session: (\S+).* from \S+ port (\d+) ")


@pytest.fixture
def logged() -> Iterator[None]:
    """A prepared pair whose sshd logs every session; connections from before stay as they were."""
    lab("restore", "fresh")
    for host in HOSTS:
        on(host, f"echo 'LogLevel VERBOSE' > {DROP_IN}; systemctl reload ssh.service")
    yield
    for host in HOSTS:
        on(host, f"rm {DROP_IN}; systemctl reload ssh.service")


def ours(host: str) -> str:
    """Port of the connection that this test's own commands share; the log has those too."""
    line = ["ssh", "-F", ssh_config(), host, "echo $SSH_CONNECTION"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()[1]


def sessions(host: str, cursor: str) -> Counter[str]:
    """What others than this test ran since: command, subsystem, shell -> how often."""
    text = on(host, f"journalctl --after-cursor={cursor!r} --output=cat --no-pager")
    found = SESSION.findall(text)
    return Counter(kind for kind, port in found if port != ours(host))


def cursor(host: str) -> str:
    said = on(host, "journalctl --lines=1 --show-cursor --output=cat --no-pager")
    return said.rsplit("-- cursor: ", 1)[1].strip()


def test_a_prepare_that_changes_nothing_opens_few_channels(logged: None, state_home: Path) -> None:
    marks = {host: cursor(host) for host in HOSTS}
    first = job("prepare", state_home)
    assert first.status == 0, first.text
    seen = {host: sessions(host, marks[host]) for host in HOSTS}
    # It installs the program and much else: were the log silent, the test below would mean nothing.
    assert all(seen[host].total() > CHANNELS for host in HOSTS), seen
    marks = {host: cursor(host) for host in HOSTS}
    again = job("prepare", state_home)
    assert again.status == 0, again.text
    assert again.changed == []
    seen = {host: sessions(host, marks[host]) for host in HOSTS}
    print(seen)
    assert all(0 < seen[host].total() <= CHANNELS for host in HOSTS), seen
