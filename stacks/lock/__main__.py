"""Command line: ``python -m stacks.lock STACK`` (``make lock STACK=name``)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stacks import definition
from stacks.definition import Stack, StackError, load
from stacks.lock import ask, file, hosts, hub, registry
from stacks.lock.errors import LockError
from stacks.schema import Lock, LockedImage, LockedModel


def image_now(stack: Stack, tag: str | None) -> LockedImage:
    """The image behind `tag`, else behind the locked digest, else behind the stack's own tag."""
    locked = stack.lock.image.index if stack.lock else None
    reference = tag or locked or stack.tag
    if reference is None:
        click.echo(
            f"{stack.repository}: no digest locked and no tag named; it stays null "
            "(--tag NAME reads one)",
            err=True,
        )
        return LockedImage()
    found = registry.read(stack.repository, reference)
    if tag is None and locked and stack.tag:
        now = registry.digest_of(stack.repository, stack.tag)
        if now != locked:
            click.echo(
                f"{stack.repository}:{stack.tag} points to {now} now; the lock keeps "
                f"{locked} (--tag {stack.tag} takes the new one)",
                err=True,
            )
    return found


def model_now(stack: Stack, repository: str | None, revision: str | None) -> LockedModel:
    """The model at `revision`, else at the locked one."""
    locked = stack.lock.model if stack.lock else None
    repository = repository or (locked.repository if locked else None)
    if repository is None:
        raise LockError(f"{stack.name} has no lock yet: --model ORG/NAME says which model it runs")
    if revision is None:
        same = locked is not None and locked.repository == repository
        revision = locked.revision if locked and same else "main"
    found = hub.read(repository, revision)
    unfit = definition.unfit(stack, found)
    if unfit:
        raise StackError(unfit)
    if found.revision != revision:
        click.echo(f"{repository}: {revision} is {found.revision}", err=True)
    return hosts.kept(locked, found)


@click.command()
@click.argument("name", metavar="STACK")
@click.option("--tag", help="Lock what this tag of the image points to now.")
@click.option("--revision", help="Lock this revision of the model: a commit, a branch or a tag.")
@click.option("--model", help="Model repository, ORG/NAME, of a stack without a lock.")
@click.option("--lock-dir", type=click.Path(path_type=Path), help="Folder of the lock files.")
@click.option("--yes", is_flag=True, help="Write the lock without asking.")
def main(
    name: str,
    tag: str | None,
    revision: str | None,
    model: str | None,
    lock_dir: Path | None,
    yes: bool,
) -> None:
    """Read the lock of STACK anew from the image's registry and the Hub, and show what changed."""
    try:
        stack = load(name, lock_dir)
        new = Lock(stack=name, image=image_now(stack, tag), model=model_now(stack, model, revision))
    except StackError as error:
        raise click.ClickException("\n".join(error.lines)) from error
    except LockError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(ask.settle(file.path_of(name, lock_dir), stack.lock, new, yes))


if __name__ == "__main__":
    main()
