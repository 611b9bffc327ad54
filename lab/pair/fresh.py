"""What makes a booted pair the dirty pair of the write-ups: the work before snapshot ``fresh``."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lab.common.errors import LabError
from lab.common.parallel import each
from lab.common.paths import HOSTS, LabHome
from lab.common.progress import say
from lab.guests import ssh
from lab.image.hostfiles import FABRIC_IP
from lab.pair import lay
from lab.pair.lay import ANSWER_S, install, wait_answer
from lab.stacks import old
from lab.stacks.guest_file import GuestFile

# Names that NCCL, PyTorch and vLLM leave behind; one of two MiB so that freeing them shows.
_LEFTOVERS = """
set -eu
cd /dev/shm
for name in psm_3f9ac41e psm_c0de77aa torch_48213_2790514306_0 vllm_shm_6b1f; do
    dd if=/dev/urandom of="$name" bs=1M count=2 status=none
done
for name in sem.mp-k2v8r1xq sem.loky-4711-x9 mp-7h2m0c1d; do
    head -c 32 /dev/zero > "$name"
done
"""

_WARM = (
    "find /usr -xdev -type f -size +1M -size -60M -print0 | xargs -0 cat 2>/dev/null "
    "| head -c 300M > /dev/null"
)


def make_dirty(home: LabHome, image: str) -> None:
    """Install and start the old stack, leave segments, warm the cache, arm the watchdog.

    + image: reference of the old engine, with digest, as a guest pulls it

    Raises LabError when the old stack does not answer a completion.
    """
    files = {
        host: old.files(image, rank, FABRIC_IP[HOSTS[0]], FABRIC_IP[host])
        for rank, host in enumerate(HOSTS)
    }
    say("fresh: old stack into both hosts")
    each(HOSTS, lambda host: install(home, host, [f for f in files[host] if not _armed(f)]))
    each(HOSTS, lambda host: _compose(home, host, "pull --quiet"))
    for host in reversed(HOSTS):  # worker first, as its owners start it
        _compose(home, host, "up --detach --quiet-pull")
    say("fresh: waiting for the old stack's first completion")
    wait_answer(home, "dsf-lab", old.CONTAINER)
    say("fresh: leftovers and a warm page cache")
    each(HOSTS, lambda host: ssh.run(home, host, _LEFTOVERS))
    each(HOSTS, lambda host: ssh.run(home, host, _WARM))
    # Last, so that the watchdog does not act on a stack that is still loading.
    each(HOSTS, lambda host: install(home, host, [f for f in files[host] if _armed(f)]))
    each(HOSTS, lambda host: ssh.run(home, host, "sync"))


def wait_booted(home: LabHome, host: str) -> None:
    """Wait for SSH and for the last unit of the boot. Raises LabError when a unit failed."""
    ssh.wait(home, host)
    state = ssh.wait_units(home, host)
    if state != "running":
        failed = ssh.run(home, host, "systemctl list-units --failed --plain --no-legend").split()
        raise LabError(f"{host} is {state}, expected running; failed: {' '.join(failed[:1])}")


def digest() -> str:
    """Hash of everything here that decides what ``fresh`` holds."""
    total = hashlib.sha256(Path(__file__).read_bytes())
    total.update(Path(lay.__file__).read_bytes())
    for path in sorted(Path(old.__file__).parent.iterdir()):
        if path.is_file():
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def _armed(file: GuestFile) -> bool:
    return file.path == old.CRONTAB


def _compose(home: LabHome, host: str, words: str) -> None:
    folder = old.DIRECTORY
    project = f"sudo docker compose --project-directory {folder} -f {folder}/compose.yaml"
    ssh.run(home, host, f"{project} {words}", timeout_s=ANSWER_S)
