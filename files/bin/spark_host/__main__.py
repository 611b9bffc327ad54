"""spark-host: what spark-converge runs on a host. Standard library only, Python 3.9 or newer.

    python3 spark_host snapshot '{"units": ["cups.service"], ...}'   read the host's state (JSON)
    python3 spark_host journal  put|remove|setting|list ...          keep originals, write files
    python3 spark_host units    down|enable|default ...              systemd, states kept first
    python3 spark_host undo     --plan|--run ...                     give it all back
    python3 spark_host shards   verify|status ...                    hash model files
    python3 spark_host shm      list|clean                           segments in /dev/shm
    python3 spark_host fabric   try|confirm|revert ...               netplan with a timed way back
    python3 spark_host ranks    record|watch|quiet ...               containers of an engine

Each command prints one JSON document and the line in END, so that a cut-off answer is seen.
"""

from __future__ import annotations

import importlib
import json
import sys

from run import Failed

COMMANDS = (
    *("snapshot", "journal", "units", "undo", "shards", "shm", "fabric", "ranks", "crontab"),
    *("memory", "starters"),
)
END = "--end of spark-host--"


def main(argv: list[str]) -> int:
    if len(argv) < 2 or argv[1] not in COMMANDS:
        sys.stderr.write(f"spark-host: want one of: {' '.join(COMMANDS)}\n")
        return 2
    command = importlib.import_module(argv[1])
    try:
        answer = command.main(argv[2:])
    except BrokenPipeError:
        return 1
    except Failed as error:
        sys.stderr.write(f"spark-host {argv[1]}: {error}\n")
        return 1
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"spark-host {argv[1]}: {type(error).__name__}: {error}\n")
        return 1
    if isinstance(answer, int):  # it spoke for itself, to a person
        return answer
    sys.stdout.write(json.dumps(answer) + "\n" + END + "\n")
    return 0 if answer.get("ok", True) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
