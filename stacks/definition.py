"""Engine stacks: what one engine needs to serve one model across the ranks, as plain data.

A stack is `files/stacks/<name>.yaml` (how it is run) and `<name>.lock.yaml` (which image and which
model files, by digest). What no public source gives stays null in the lock; such a stack is
*unlocked*, and `Stack.unlocked` says in sentences what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from inventory import document, mistakes, stack_files
from inventory.document import Loc, Mistake
from inventory.mistakes import Record
from inventory.stack_files import FOLDER, LOCK_SUFFIX
from stacks import secret, template
from stacks.schema import Lock, LockedModel, Stack

__all__ = ["FOLDER", "Lock", "Stack", "StackError", "load", "names"]

_RUN_SECTIONS = ("container", "command", "env", "env_fabric")
_COMPOSE_SECTIONS = ("compose",)
_ADOPTED_SECTIONS = ("adopted",)
PREVIOUS = "previous"  # the engine that no stack file knew and that ran before the wanted one

_R = TypeVar("_R", bound=Record)


class StackError(Exception):
    """A stack cannot be used; `lines` holds one sentence for each mistake."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def names() -> list[str]:
    """The shipped stacks, sorted."""
    return stack_files.names(FOLDER)


def load(name: str, lock_dir: Path | None = None) -> Stack:
    """The stack `name` with its lock from `lock_dir`, or else from beside its definition.

    A missing lock leaves the stack unlocked. Raises StackError with one line for each mistake in
    the definition and in the lock together, or when there is no such stack.
    """
    known = names()
    if name not in known:
        raise StackError([f"stack {name!r} found; {', '.join(known)} allowed"])
    lock_path = _lock_path(name, lock_dir)
    lines: list[str] = []
    stack = _read(FOLDER / f"{name}.yaml", Stack, "name", name, lines)
    lock = _read(lock_path, Lock, "stack", name, lines) if lock_path else None
    if stack is not None and lock is not None:
        lines += unfit(stack, lock.model)
    if lines or stack is None:
        raise StackError(lines)
    return stack.model_copy(update={"lock": lock})


def load_adopted(path: Path) -> Stack | None:
    """The stack that a run has written there, None when there is none; raises StackError."""
    if not path.exists():
        return None
    lines: list[str] = []
    stack = _read(path, Stack, "name", path.stem, lines)
    if stack is None:
        raise StackError([*lines, f"{path} was written by a run; remove it, then adopt anew"])
    return stack


def unfit(stack: Stack, model: LockedModel) -> list[str]:
    """Why a stack cannot have this model in its lock, in sentences."""
    return list(_unfit(stack, model))


def _unfit(stack: Stack, model: LockedModel) -> Iterator[str]:
    """A cache's folder belongs to one repository, and its snapshots are links."""
    found, wanted = stack.files.cached_repository, model.repository
    where = f"{FOLDER / stack.name}.yaml: model"
    if found and found != wanted:
        yield f"{where}.directory: a cache of {found} found; one of {wanted}, as locked, expected"
    if found and stack.files.links == "materialise":
        yield f"{where}.links: materialise found; a cache consists of links: follow expected"


def _lock_path(name: str, lock_dir: Path | None) -> Path | None:
    for folder in (lock_dir, FOLDER):
        if folder is not None and (path := Path(folder) / f"{name}{LOCK_SUFFIX}").exists():
            return path
    return None


def _read(path: Path, model: type[_R], name_key: str, name: str, lines: list[str]) -> _R | None:
    """`path` as a `model`, or None with the reasons added to `lines`."""
    read = document.read(path)
    if read.broken:
        lines.append(read.broken)
        return None
    found = mistakes.of(model, read)
    if isinstance(read.data, dict):
        said = read.data.get(name_key)
        if isinstance(said, str) and said != name:
            text = f"{document.shown(said)} found; {name!r}, as in the file's name, expected"
            found.append(Mistake((name_key,), text))
        found += _launcher(read.data)
        if model is Stack:
            ours = list(_reserved(read.data, name))
            # One line for a place, and of a secret none that shows it.
            told = {mistake.loc for mistake in ours}
            found = [*ours, *(m for m in found if m.loc not in told and m.loc[:1] != ("lock",))]
        told = {mistake.loc for mistake in found}
        found += [mistake for mistake in _templates(read.data, ()) if mistake.loc not in told]
    if found:
        lines += read.sentences(found)
        return None
    return model.model_validate(read.data)


def _reserved(data: dict[str, Any], name: str) -> Iterator[Mistake]:
    """What stands in another file, or in none that others read."""
    if "lock" in data:
        text = f"found; {name}{LOCK_SUFFIX} is the lock, `make lock STACK={name}` writes it: "
        yield Mistake(("lock",), text + "take this out")
    yield from secret.literals(data)


def _launcher(data: dict[str, Any]) -> Iterator[Mistake]:
    """Each launcher has its own sections; the other one's say nothing and are refused."""
    needs = {
        "run": _RUN_SECTIONS,
        "compose": _COMPOSE_SECTIONS,
        "adopted": _ADOPTED_SECTIONS,
    }
    launcher = data.get("launcher")
    if launcher not in needs:
        return
    shipped = {"image": "a mapping with repository", "model": "a mapping with directory"}
    for key, text in shipped.items() if launcher != "adopted" else ():
        if key not in data:
            yield Mistake((key,), f"missing; {text} expected")
    for key in needs[launcher]:
        if key in {"adopted", "compose", "container", "env_fabric"} and key not in data:
            yield Mistake((key,), f"missing; launcher {launcher} needs it")
    for other, keys in needs.items():
        for key in keys:
            if other != launcher and key in data:
                yield Mistake((key,), f"found; it belongs to launcher {other}, not {launcher}")


def _templates(value: Any, loc: Loc) -> Iterator[Mistake]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _templates(inner, (*loc, str(key)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _templates(inner, (*loc, index))
    elif isinstance(value, str) and (problem := template.syntax_error(value)):
        yield Mistake(loc, f"{document.shown(value)} found; placeholder syntax: {problem}")
