"""Show how a lock would change, and change it when a person says so."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stacks.lock import difference, file
from stacks.lock.difference import Change
from stacks.schema import Lock

# Two 64 digit hashes and a file name, where no terminal says how wide it is.
WIDTH_COLUMNS = 200


def table(changes: list[Change]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "locked", "found now"):
        shown.add_column(title, overflow="fold")
    for one in changes:
        shown.add_row(one.what, one.old, one.new)
    return shown


def settle(path: Path, old: Lock | None, new: Lock, yes: bool) -> int:
    """Write `new` to `path` when it differs and a person agrees; the exit status of that.

    0: nothing to change, or written. 1: it differs and was left, because nobody said yes.
    """
    found = difference.changes(old, new)
    if not found:
        click.echo(f"{path.name}: nothing changed")
        return 0
    Console(width=None if sys.stdout.isatty() else WIDTH_COLUMNS).print(table(found))
    if not yes and not sys.stdin.isatty():
        click.echo(f"{path.name}: not changed (no terminal to ask on; --yes writes it)", err=True)
        return 1
    if not yes and not click.confirm(f"Write this to {path}?", default=False):
        click.echo(f"{path.name}: not changed", err=True)
        return 1
    file.write(path, new)
    click.echo(f"{path}: written")
    return 0
