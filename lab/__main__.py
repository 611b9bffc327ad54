"""Command line of the lab: ``python -m lab VERB``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from lab.common.errors import LabError
from lab.common.paths import HOSTS, LabHome, lab_home
from lab.common.progress import say
from lab.guests import ssh
from lab.pair import verbs

_HOST = click.Choice(HOSTS)


class _Lab(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LabError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Lab)
def main() -> None:
    """Two real hosts, spark1 and spark2, under QEMU on this machine."""


@contextlib.contextmanager
def _locked() -> Iterator[LabHome]:
    """The lab's home, for one verb at a time."""
    home = lab_home()
    home.make()
    with (home.root / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another lab command is at work; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield home


@main.command()
def up() -> None:
    """Build what is missing, start both hosts, take or resume the snapshot fresh."""
    with _locked() as home:
        verbs.up(home)


@main.command()
def down() -> None:
    """Switch both hosts and the registry off; snapshots stay."""
    with _locked() as home:
        verbs.down(home)


@main.command()
@click.option("--images", is_flag=True, help="Remove the cached images too.")
def destroy(images: bool) -> None:
    """Remove the pair, its disks, keys and registry."""
    with _locked() as home:
        verbs.destroy(home, images)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Say what runs."""
    shown = verbs.status(lab_home())
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    for key, value in shown.items():
        if key == "hosts":
            for name, host in value.items():
                cables = ", ".join(f"cable {n} {end}" for n, end in host["cables"].items())
                click.echo(f"{name}: {'running' if host['running'] else 'off'}, {cables}")
        else:
            click.echo(f"{key}: {', '.join(value) if isinstance(value, list) else value}")


@main.command("ssh", context_settings={"ignore_unknown_options": True})
@click.argument("host", type=_HOST)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh_(host: str, command: tuple[str, ...]) -> None:
    """Open a shell on HOST, or run COMMAND there."""
    line = ssh.command(lab_home(), host, *command)
    os.execvp(line[0], line)  # noqa: S606 - no shell here; the guest has one


@main.command("ssh-config")
def ssh_config() -> None:
    """Print the path of an ssh_config with both hosts."""
    home = lab_home()
    if not home.ssh_config.exists():
        raise LabError("there is no pair yet; make it with `python -m lab up`")
    click.echo(str(home.ssh_config))


@main.command()
@click.argument("name")
def snapshot(name: str) -> None:
    """Keep this moment of both hosts under NAME."""
    with _locked() as home:
        verbs.snapshot(home, name)


@main.command()
def found() -> None:
    """Take the snapshot found: a pair that serves a stack which no file knows."""
    with _locked() as home:
        verbs.found(home)


@main.command()
@click.argument("name")
def restore(name: str) -> None:
    """Bring both hosts back to the moment NAME."""
    with _locked() as home:
        verbs.restore(home, name)


@main.command()
@click.argument("number", type=click.Choice(["1", "2"]), metavar="1|2")
@click.argument("what", type=click.Choice(["pull", "plug"]))
@click.option("--end", type=_HOST, help="Only this host's end.")
def cable(number: str, what: str, end: str | None) -> None:
    """Pull or plug a fabric cable."""
    with _locked() as home:
        verbs.cable(home, int(number), what == "plug", end)


@main.command()
@click.argument("host", type=_HOST)
@click.argument("what", type=click.Choice(["off", "on", "reset"]))
def power(host: str, what: str) -> None:
    """Switch HOST off or on, or press its reset button."""
    with _locked() as home:
        verbs.power(home, host, what)


if __name__ == "__main__":
    sys.exit(main())
