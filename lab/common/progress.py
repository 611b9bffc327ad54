"""Progress lines with elapsed seconds on standard error."""

from __future__ import annotations

import sys
import time

_STARTED = time.monotonic()


def say(text: str) -> None:
    """Print one line, led by the seconds since the program started."""
    print(f"[{time.monotonic() - _STARTED:6.1f}s] {text}", file=sys.stderr, flush=True)
