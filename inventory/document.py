"""Read a YAML document and name every mistake in it by file, line, key and value.

Shared by the owner's file (inventory) and the stack definitions (stacks), so that both speak the
same line style::

    inventory/sparks.yaml:12: fabric.mtu: 90000 found; 1280 to 9216 allowed
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from inventory import nodes

_SHOWN_CHARS = 60
_LINE_CHARS = 1000
_MOST_LINES = 100
# A lock of 3000 files takes about 500 KB.
_MOST_BYTES = 1 << 20

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Mistake:
    """One thing wrong at `loc` (keys and list indexes from the top of the document)."""

    loc: Loc
    text: str


@dataclass
class Document:
    """Plain data of one YAML file with the line each key stands on.

    `lines` maps a location to its line, counted from 1; `mistakes` holds what the file as YAML
    already got wrong (duplicate keys); `broken` is set when there is no data to go on with.
    """

    path: Path
    data: Any = None
    lines: dict[Loc, int] = field(default_factory=dict)
    origins: dict[Loc, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    broken: str | None = None

    def sentence(self, mistake: Mistake) -> str:
        """One line: place, dotted key, what is wrong. A missing key stands on its parent's line."""
        key = dotted(mistake.loc)
        place = self._place(mistake.loc)
        return plain(f"{place}: {key}: {mistake.text}" if key else f"{place}: {mistake.text}")

    def sentences(self, mistakes: Iterable[Mistake]) -> list[str]:
        """The lines of all `mistakes`, in the order of the file, each once."""
        ordered = sorted(mistakes, key=lambda mistake: self._line(mistake.loc))
        said = list(dict.fromkeys(self.sentence(mistake) for mistake in ordered))
        more = len(said) - _MOST_LINES
        return [*said[:_MOST_LINES], f"and {more} more"] if more > 0 else said

    def override(self, dotted_key: str, text: str) -> None:
        """Put the YAML scalar `text` at `dotted_key` (`fabric.mtu`), as if the file said so."""
        loc: Loc = tuple(dotted_key.split("."))
        try:
            value = yaml.load(text, Loader=nodes.LOADER)  # noqa: S506  (a safe loader)
        except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError):
            value = text
        self.origins[loc] = f"override {dotted_key}={text}"
        target = self.data
        for key in loc[:-1]:
            if not isinstance(target, dict):
                return
            target = target.setdefault(key, {})
        if isinstance(target, dict):
            target[loc[-1]] = value

    def note(self, loc: Loc, node: yaml.Node, text: str) -> None:
        """A mistake of the value at `node`, which is shown where `text` has {}."""
        self.lines.setdefault(loc, node.start_mark.line + 1)
        found = shown(node.value) if "{}" in text else ""
        self.mistakes.append(Mistake(loc, text.replace("{}", found)))

    def _line(self, loc: Loc) -> int:
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)

    def _place(self, loc: Loc) -> str:
        if loc in self.origins:
            return self.origins[loc]
        return f"{shown_path(self.path)}:{self._line(loc)}"


def read(path: Path) -> Document:
    """Parse `path`; never raises for what a person can get wrong in a file.

    Absent, unreadable or syntactically wrong files come back with `broken` set to the whole line
    to print.
    """
    document = Document(path)
    where = shown_path(path)
    try:
        text = _text(path)
    except FileNotFoundError:
        document.broken = f"{where}: no such file; a YAML file expected"
        return document
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "not UTF-8 text"
        document.broken = f"{where}: cannot be read ({reason})"
        return document
    try:
        loader, node = nodes.composed(text)
        if node is None:
            document.broken = f"{where}: empty; keys and values expected"
            return document
        _note_lines(document, node, (), set())
        nodes.made_plain(loader, node, (), document.note)
        document.data = loader.construct_document(node)
    except nodes.Unusable as error:
        document.broken = f"{where}:{error.line}: {error}; a file of keys and values expected"
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        context = getattr(error, "context", None)
        detail = f"{context}, {problem}" if context else problem
        document.broken = plain(f"{where}:{line}: YAML syntax: {detail}")
    return document


def _text(path: Path) -> str:
    """A regular file of a size that a person writes; raises OSError or ValueError with a reason."""
    # Without blocking: a pipe would wait for its writer before it could be refused.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("not a regular file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
    return content.decode("utf-8-sig")


def _note_lines(document: Document, node: yaml.Node, loc: Loc, seen: set[int]) -> None:
    """Record the line of every key below `node`, and every key that is there twice."""
    document.lines.setdefault(loc, node.start_mark.line + 1)
    if id(node) in seen:  # an alias; following it again could go round for ever
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):  # told of by made_plain
                continue
            here = (*loc, key.value)
            line = key.start_mark.line + 1
            if here in document.lines:
                first = document.lines[here]
                text = f"key is there twice, first on line {first}; one value expected"
                document.mistakes.append(Mistake(here, text))
            document.lines[here] = line
            _note_lines(document, value, here, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            document.lines[(*loc, index)] = value.start_mark.line + 1
            _note_lines(document, value, (*loc, index), seen)


def without(data: Any, locs: Iterable[Loc]) -> Any:
    """A copy of plain `data` in which the values at `locs` are left out (list places: None)."""
    bad = set(locs)
    return _pruned(data, (), bad)


def _pruned(data: Any, loc: Loc, bad: set[Loc]) -> Any:
    if isinstance(data, Mapping):
        return {
            key: _pruned(value, (*loc, str(key)), bad)
            for key, value in data.items()
            if (*loc, str(key)) not in bad
        }
    if isinstance(data, list):
        return [
            None if (*loc, index) in bad else _pruned(value, (*loc, index), bad)
            for index, value in enumerate(data)
        ]
    return data


def dotted(loc: Sequence[str | int]) -> str:
    """`("workers", 0, "name")` -> `workers[0].name`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{plain(part, _SHOWN_CHARS)}"
    return text.removeprefix(".")


def plain(text: str, most: int = _LINE_CHARS) -> str:
    """`text` for a terminal: what it cannot show is written out, and the middle of a long one goes.

    Whatever stands in a file, its owner's terminal obeys none of it.
    """
    if len(text) > most:
        half = (most - 3) // 2
        text = f"{text[:half]}...{text[-half:]}"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def shown(value: Any) -> str:
    """`value` as it is put into a message: short, on one line, and no Python type names."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        # Before repr, which would write out all of it.
        text = repr(value[:_SHOWN_CHARS])
        cut = len(value) > _SHOWN_CHARS or len(text) > _SHOWN_CHARS
        return text[: _SHOWN_CHARS - 3] + "..." if cut else text
    try:
        return plain(str(value), _SHOWN_CHARS)
    except ValueError:  # more digits than Python writes out
        return "a number of thousands of digits"


def shown_path(path: Path) -> str:
    """`path` relative to the current folder when it is below it, as a person would type it."""
    relative = os.path.relpath(path)
    return plain(str(path) if relative.startswith("..") else relative)
