"""Is a loading engine getting on? Pure: log lines in, yes or no out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Times, counters, percentages, addresses, hex ids: what may differ between two lines that say
# the same thing.
VARYING = re.compile(
    r"0x[0-9a-fA-F]+"
    r"|\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # UUID
    r"|\b[0-9a-f]{8,}\b"
    r"|\d+([.:,/-]\d+)*"
)

# stacks/patterns.py: what a pattern may take over a line grows with its length to the third power.
LINE_CHARS = 500


def shape(line: str) -> str:
    """A line without its numbers: two lines of one shape say the same thing twice."""
    return VARYING.sub("#", line).strip()


@dataclass
class Progress:
    """What one rank's log has shown so far.

    patterns: the stack's regular expressions whose first group is a number that grows. Such a
    line is progress when the number is higher than before; any other line only when no line of
    its shape was seen, so that "still waiting, 12 s" is not progress after "still waiting, 11 s".
    """

    patterns: Sequence[re.Pattern[str]]
    highest: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    latest: str = ""

    def feed(self, lines: Iterable[str]) -> bool:
        """Take new log lines; True when at least one of them is progress."""
        advances = [self._advances(line) for line in lines]  # every line counts, not only the first
        return any(advances)

    def _advances(self, line: str) -> bool:
        for pattern in self.patterns:
            found = pattern.search(line, 0, LINE_CHARS)
            if found:
                count = int(found.group(1))
                if count <= self.highest.get(pattern.pattern, -1):
                    return False
                self.highest[pattern.pattern] = count
                self.latest = found.group(0)
                return True
        looks = shape(line)
        if not looks or looks in self.seen:
            return False
        self.seen.add(looks)
        return True
