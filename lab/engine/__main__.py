"""One rank of the lab's engine: ``python3 -m engine --rank 0 --nnodes 2 ...``."""

from __future__ import annotations

import os
import signal
import sys


def run(argv: list[str]) -> int:
    """Run the rank in this process; its exit status."""
    # Late: the parent in a container must be ready for a signal before these imports are done.
    from .rank import main  # noqa: PLC0415

    return main(argv)


def run_as_init(argv: list[str]) -> int:
    """Run the rank as a child and pass its end on, 128 + signal for a killed one.

    The kernel lets no signal from inside kill process 1 of a container, so the fault
    ``die-at-shard`` needs a process of its own, as the schedulers of the real engines are.
    """
    child = os.fork()
    if child == 0:
        return run(argv)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda number, _frame: os.kill(child, number))
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit((run_as_init if os.getpid() == 1 else run)(sys.argv[1:]))
