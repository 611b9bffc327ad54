"""The page that verify prints, and the same as plain data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from operations.run.findings import Finding, Line, Verdict

COLOURS = {"ok": "green", "drift": "red", "unsupported": "blue", "unknown": "yellow"}


@dataclass(frozen=True)
class Column:
    """All items of one host; reached False: none of them could be read."""

    name: str
    reached: bool
    items: tuple[Finding, ...]


@dataclass(frozen=True)
class Page:
    """What verify found: by host, between hosts, and of the cluster as a whole."""

    columns: tuple[Column, ...]
    parity: tuple[Line, ...]
    serving: Finding

    def verdicts(self) -> list[Verdict]:
        return [
            *(item.verdict for column in self.columns for item in column.items),
            *(line.verdict for line in self.parity),
            self.serving.verdict,
        ]

    @property
    def ok(self) -> bool:
        """Nothing drifted and everything could be read; what a host cannot have does not count."""
        return not {"drift", "unknown"} & set(self.verdicts())

    def counts(self) -> dict[str, int]:
        found = self.verdicts()
        return {verdict: found.count(verdict) for verdict in COLOURS}  # type: ignore[arg-type]


def cell(verdict: Verdict, found: str) -> Text:
    text = Text(verdict, style=COLOURS[verdict])
    return text.append(f"  {found}", style="default")


def rows(columns: Sequence[Column]) -> list[tuple[str, str, str, list[Finding | None]]]:
    """(part, name, wanted, item by column) in the order in which the hosts name them."""
    keys = dict.fromkeys((i.part, i.name) for column in columns for i in column.items)
    table = []
    for part, name in keys:
        found = [
            next((i for i in column.items if (i.part, i.name) == (part, name)), None)
            for column in columns
        ]
        wanted = list(dict.fromkeys(i.wanted for i in found if i))
        table.append((part, name, " | ".join(wanted), found))
    order = list(dict.fromkeys(part for part, *_ in table))
    return sorted(table, key=lambda row: order.index(row[0]))


def hosts_table(columns: Sequence[Column]) -> Table:
    table = Table("item", "wanted", *(column.name for column in columns), expand=True)
    last = None
    for part, name, wanted, found in rows(columns):
        if last not in (None, part):
            table.add_section()
        last = part
        cells = [cell(i.verdict, i.found) if i else Text("-") for i in found]
        table.add_row(Text(name), Text(wanted), *cells)
    return table


def parity_table(columns: Sequence[Column], lines: Sequence[Line]) -> Table:
    table = Table("alike on all hosts", "verdict", *(c.name for c in columns), expand=True)
    for line in lines:
        told = len(set(line.found)) > 1 or line.verdict == "unknown"
        note = f" ({line.note})" if line.note and told else ""
        cells = [Text("unknown" if value is None else value) for value in line.found]
        table.add_row(
            Text(line.name), Text(line.verdict, style=COLOURS[line.verdict]).append(note), *cells
        )
    return table


def rendered(page: Page) -> RenderableType:
    """Two tables and one line: for people; the verdict words are those of the JSON."""
    serving = Text("serving: ").append(cell(page.serving.verdict, page.serving.found))
    return Group(hosts_table(page.columns), parity_table(page.columns, page.parity), serving)


def plain(item: Finding) -> dict[str, str]:
    words = {key: getattr(item, key) for key in ("part", "name", "wanted", "found")}
    return {**words, "verdict": item.verdict}


def document(page: Page) -> dict[str, Any]:
    """The page as plain data: per host its items, per parity line each host's value."""
    names = [column.name for column in page.columns]
    return {
        "ok": page.ok,
        "counts": page.counts(),
        "hosts": {
            column.name: {
                "reached": column.reached,
                "items": [plain(item) for item in column.items],
            }
            for column in page.columns
        },
        "parity": [
            {
                "name": line.name,
                "found": dict(zip(names, line.found, strict=True)),
                "verdict": line.verdict,
                "note": line.note,
            }
            for line in page.parity
        ],
        "serving": plain(page.serving),
    }
