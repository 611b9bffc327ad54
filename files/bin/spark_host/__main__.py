"""spark-host: what spark-converge runs on a host. Standard library only, Python 3.9 or newer.

    python3 spark_host snapshot '{"units": ["cups.service"], ...}'   read the host's state (JSON)
    python3 spark_host journal  put|remove|setting|list ...          keep originals, write files
    python3 spark_host units    down|enable|default ...              systemd, states kept first
    python3 spark_host undo     --plan|--run ...                     give it all back
    python3 spark_host shards   run|poll|stop                        hash model files
    python3 spark_host fetch    run|poll|stop                        bring model files
    python3 spark_host lend     run|stop                             give them to the other hosts
    python3 spark_host shm      list|clean                           segments in /dev/shm
    python3 spark_host fabric   try|status|confirm ...               netplan with a timed way back
    python3 spark_host rdma     serve|meet|end ...                   one RDMA test between hosts
    python3 spark_host ranks    record|look|kernel|save|end ...      containers of an engine
    python3 spark_host crontab  settle|rearm                         watchdogs in crontabs
    python3 spark_host memory                                        drop the page cache, compact
    python3 spark_host lease    renew|release ...                    which run is at work here
    python3 spark_host sysctls  set ...                              kernel settings, old ones kept
    python3 spark_host logind   reload                               its files read anew
    python3 spark_host holds    put|rearm                            other ways to start an engine
    python3 spark_host images   run|poll|stop                        pull an image by its digest
    python3 spark_host survey   run|poll|stop                        hash all that is there
    python3 spark_host cpufreq  settle                               other owners of the governor
    python3 spark_host userunits down ...                            desktop units of users
    python3 spark_host rearm    ...                                  give back some of it only
    python3 spark_host holders                                       who holds memory
    python3 spark_host adopt    keep|start ...                       engines of no known stack
    python3 spark_host needs                                         what a launch lacks

Each command prints one JSON document and the line in END, so that a cut-off answer is seen; one
that fails says why in "message" of {"ok": false, "message"}, and on standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from run.command import Failed

COMMANDS = {
    "snapshot": "snapshot",
    "adopt": "adopt.adopt",
    "cpufreq": "clocks.cpufreq",
    "needs": "launch.needs",
    "ranks": "launch.ranks",
    "holders": "memory.holders",
    "memory": "memory.memory",
    "shm": "memory.shm",
    "sysctls": "memory.sysctls",
    "fetch": "model.fetch",
    "images": "model.images",
    "lend": "model.lend",
    "shards": "model.shards",
    "survey": "model.survey",
    "fabric": "network.fabric",
    "rdma": "network.rdma",
    "journal": "run.journal",
    "lease": "run.lease",
    "logind": "systemd.logind",
    "units": "systemd.units",
    "userunits": "systemd.userunits",
    "rearm": "undo.rearm",
    "undo": "undo.undo",
    "crontab": "watchdogs.crontab",
    "holds": "watchdogs.holds",
}
END = "--end of spark-host--"


def failed(argv: list[str], message: str) -> int:
    """Say why on both ways out: callers over SSH read the answer, a person the other one."""
    sys.stderr.write(f"spark-host {argv[1]}: {message}\n")
    if "--words" not in argv:
        sys.stdout.write(json.dumps({"ok": False, "message": message}) + "\n" + END + "\n")
    return 1


def main(argv: list[str]) -> int:
    if len(argv) < 2 or argv[1] not in COMMANDS:
        sys.stderr.write(f"spark-host: want one of: {' '.join(COMMANDS)}\n")
        return 2
    # The daemon whose socket is read (containers.py): root's docker may have another context.
    os.environ["DOCKER_HOST"] = "unix:///var/run/docker.sock"
    # Root's own may be 077: networkd could not read what netplan makes then.
    os.umask(0o022)
    # What other programs say is read in one language, whatever the host's own is.
    os.environ["LC_ALL"] = "C.UTF-8"
    os.environ.pop("LANGUAGE", None)
    command = importlib.import_module(COMMANDS[argv[1]])
    try:
        answer = command.main(argv[2:])
    except BrokenPipeError:
        return 1
    except Failed as error:
        return failed(argv, str(error))
    except (OSError, ValueError, LookupError, RecursionError) as error:
        return failed(argv, f"{type(error).__name__}: {error}")
    if isinstance(answer, int):  # it spoke for itself, to a person
        return answer
    sys.stdout.write(json.dumps(answer) + "\n" + END + "\n")
    return 0 if answer.get("ok", True) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
