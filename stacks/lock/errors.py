"""What a source did not give."""

from __future__ import annotations


class LockError(Exception):
    """One sentence: what was asked, what was found, what to do next."""
