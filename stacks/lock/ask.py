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


def settle(path: Path, old: Lock | None, new: Lock, yes: bool, way: str = "--yes") -> int:
    """Write `new` to `path` when it differs and a person agrees; the exit status of that.

    0: nothing to change, or written. 1: it differs and was left, because nobody said yes, or it
    could not be written. way: what whoever has no terminal says yes with.
    """
    found = difference.changes(old, new)
    if not found:
        click.echo(f"{path.name}: nothing changed")
        return 0
    # Names are shown as they are: [b] in one is no markup.
    width = None if sys.stdout.isatty() else WIDTH_COLUMNS
    Console(width=width, markup=False, emoji=False).print(table(found))
    if not yes and not sys.stdin.isatty():
        click.echo(f"{path.name}: not changed (no terminal to ask on; {way} writes it)", err=True)
        return 1
    if not yes and not agreed(f"Write this to {path}?"):
        click.echo(f"{path.name}: not changed", err=True)
        return 1
    try:
        file.write(path, new)
    except OSError as error:
        click.echo(f"{path}: cannot be written ({error.strerror})", err=True)
        return 1
    click.echo(f"{path}: written")
    return 0


def agreed(question: str) -> bool:
    """Whether a person says yes; who ends the input says no."""
    try:
        return click.confirm(question, default=False)
    except click.Abort:
        click.echo()
        return False
