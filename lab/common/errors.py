"""The one error a user of the lab meets."""

from __future__ import annotations


class LabError(Exception):
    """One sentence: what was found, what was expected, what to do next."""
