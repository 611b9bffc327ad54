"""One entry of the journal, and the words for how it stands now.

same      as it was found, nothing to do
restore   what was set by spark-converge is still there
edited    somebody changed it since; it is left alone
gone      there is nothing any more that could be given back
unread    could not be read
"""

from __future__ import annotations

from typing import Any


def subject(entry: dict[str, Any]) -> str:
    """cups.service for the setting unit.cups.service."""
    name: str = entry["name"]
    return name.split(".", 1)[1]


def verdict(name: str, word: str, why: str = "") -> dict[str, str]:
    return {"name": name, "verdict": word, "why": why}
