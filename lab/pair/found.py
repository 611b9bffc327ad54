"""From ``fresh`` to the pair of seed 002: an engine that no stack file knows (lab/stacks/found)."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from lab.common.parallel import each
from lab.common.paths import HOSTS, LabHome
from lab.common.progress import say
from lab.guests import ssh
from lab.pair.lay import ANSWER_S, install, wait_answer
from lab.stacks import found, old

# The cron line first: its watchdog would start the stack again. An image made here from the files
# of the old engine has no registry, no digest and no layer in common with anything known.
_MAKE_ROOM = f"""
set -eu
crontab -r 2> /dev/null || true
image=$(docker inspect --format '{{{{.Config.Image}}}}' {old.CONTAINER})
docker compose --project-directory {old.DIRECTORY} --file {old.DIRECTORY}/compose.yaml down
rm -rf {old.DIRECTORY} {old.WATCHDOG} /var/log/spark1-inference-ready.log
cd {PurePosixPath(found.program().path).parent}
made=$(docker create "$image")
docker export --output root.tar "$made"
docker rm "$made"
tar --append --file root.tar --owner=0 --group=0 --transform 's,^,usr/bin/,' vllm
docker import --change \
    'ENV PATH=/usr/bin:/bin PYTHONPATH=/opt/lab-engine PYTHONUNBUFFERED=1 LANG=C.UTF-8' \
    root.tar {found.IMAGE}
docker image rm --force "$image"
rm -r "$PWD"
"""

_KEY = """
set -eu
mkdir -p -m 700 /root/.ssh
ssh-keygen -q -t ed25519 -N '' -C night-lane -f /root/.ssh/id_ed25519
cat /root/.ssh/id_ed25519.pub
"""


def lay(home: LabHome) -> None:
    """Take the old stack out of a pair at ``fresh`` and start the unknown one in its place.

    Raises LabError when it does not answer a completion.
    """
    head, worker = HOSTS
    say("found: old stack out of both hosts, another image into them")
    each(HOSTS, lambda host: install(home, host, [found.program()]))
    each(HOSTS, lambda host: ssh.run(home, host, _as_root(_MAKE_ROOM), timeout_s=ANSWER_S))
    key = ssh.run(home, head, _as_root(_KEY))
    ssh.run(home, worker, "cat >> ~/.ssh/authorized_keys", data=key.encode())
    install(home, head, found.head_files())
    say("found: worker and head from the owner's script")
    ssh.run(home, head, f"sudo {found.SCRIPT}", timeout_s=ANSWER_S)
    wait_answer(home, found.MODEL, found.CONTAINERS[0])
    # Last, so that the watchdog does not act on a stack that is still loading.
    install(home, head, [found.crontab()])
    each(HOSTS, lambda host: ssh.run(home, host, "sync"))


def _as_root(script: str) -> str:
    return f"sudo sh -c {shlex.quote(script)}"
