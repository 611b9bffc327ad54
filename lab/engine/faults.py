"""Faults that a test switches on for this host: one ``name`` or ``name=value`` per line."""

from __future__ import annotations

from pathlib import Path

from . import log

WITH_SHARD_NUMBER = ("stall-at-shard", "chatter-at-shard", "die-at-shard", "exit-at-shard")
WITH_SECONDS = ("slow-load",)
SWITCHES = ("answer-empty", "answer-wrong-model", "completions-hang", "refuse-rendezvous")

_told: set[str] = set()


def read(path: Path) -> dict[str, float]:
    """The faults now in `path`: name to value, 1 for a switch. No file, no faults.

    A line that is no fault is left out and logged once: a test that misspells one must see it.
    """
    try:
        text = path.read_text()
    except OSError:
        return {}
    faults = {}
    for line in text.splitlines():
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        fault = _parse(entry)
        if fault is not None:
            faults[fault[0]] = fault[1]
        elif entry not in _told:
            _told.add(entry)
            log.line(f"{path}: {entry!r} is not a fault of this engine")
    return faults


def _parse(entry: str) -> tuple[str, float] | None:
    name, has_value, value = (part.strip() for part in entry.partition("="))
    if name in SWITCHES and not has_value:
        return name, 1.0
    if name in WITH_SHARD_NUMBER + WITH_SECONDS:
        try:
            return name, float(value)
        except ValueError:
            return None
    return None
