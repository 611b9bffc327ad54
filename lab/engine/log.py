"""Log lines on standard output: time, rank, text; each in one unbuffered write."""

from __future__ import annotations

import os
import time

_STDOUT = 1
_rank = 0


def set_rank(rank: int) -> None:
    """Put this rank's number into every later line."""
    global _rank  # noqa: PLW0603 - one rank a process
    _rank = rank


def line(text: str) -> None:
    """Print one line, ``2026-09-05 12:00:00 [rank 0] text``."""
    raw(f"{time.strftime('%Y-%m-%d %H:%M:%S')} [rank {_rank}] {text}")


def raw(text: str) -> None:
    """Print one line as it is."""
    # Not sys.stdout: a signal handler may log in the middle of another line's write.
    os.write(_STDOUT, f"{text}\n".encode())
