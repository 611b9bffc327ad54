"""A YAML text as nodes that a constructor can take: bounded, without circles, of plain types.

What a person can get wrong in a text costs a line, never a traceback and never more than a second:
depth and number of nodes are limited while they are read, aliases are counted as often as they are
used (a few lines of them can stand for a billion), and a value that its type cannot hold
(`2026-13-45`, `0x_`, `!!int abc`) is named where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

# libyaml parses a lock file of 120 shards some ten times faster; both loaders carry line marks.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Choices of this project: the deepest file here has 5 levels, the largest lock about 1000 nodes; a
# lock of 3000 files has 24,000.
DEPTH = 40
NODES = 30_000
_MANY = f"more than {NODES} values"
_STARTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_PREFIX = "tag:yaml.org,2002:"
_SCALARS = frozenset(
    _PREFIX + word for word in ("str", "int", "float", "bool", "null", "timestamp")
)
_TEXT = _PREFIX + "str"

# Where a node stands, and what is to be said of it.
Tell = Callable[[tuple[str | int, ...], yaml.Node, str], None]


class Unusable(Exception):
    """The whole text cannot be used; the line (from 1) and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def composed(text: str) -> tuple[Any, yaml.Node | None]:
    """(loader, root node or None for an empty text); raises Unusable or yaml.YAMLError."""
    depth = 0
    # A pass of its own: composing goes down as deep as the text does.
    for count, event in enumerate(yaml.parse(text, LOADER)):
        depth += isinstance(event, _STARTS) - isinstance(event, _ENDS)
        if depth > DEPTH or count > NODES:
            much = f"nested deeper than {DEPTH} levels" if depth > DEPTH else _MANY
            raise Unusable(event.start_mark.line + 1 if event.start_mark else 1, much)
    loader = LOADER(text)
    node = loader.get_single_node()
    if node is not None:
        uncircled(node, set(), set())
        if expanded(node, {}) > NODES:
            raise Unusable(1, f"its aliases stand for {_MANY}")
    return loader, node


def children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def uncircled(node: yaml.Node, above: set[int], done: set[int]) -> None:
    """Put a marked scalar in the place of an alias that stands inside of what it names."""
    if id(node) in done:
        return
    above.add(id(node))

    def cut(one: yaml.Node) -> yaml.Node:
        if id(one) in above:
            what = "mapping" if isinstance(one, yaml.MappingNode) else "list"
            return yaml.ScalarNode("!circle", f"a {what}", one.start_mark, one.end_mark)
        uncircled(one, above, done)
        return one

    if isinstance(node, yaml.MappingNode):
        node.value = [(cut(key), cut(value)) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        node.value = [cut(one) for one in node.value]
    above.discard(id(node))
    done.add(id(node))


def expanded(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes there are when every alias is written out."""
    if id(node) not in known:
        known[id(node)] = 1 + sum(expanded(one, known) for one in children(node))
    return known[id(node)]


def made_plain(loader: Any, node: yaml.Node, loc: tuple[str | int, ...], tell: Tell) -> None:
    """Tell of every value that its type cannot hold; it stays as text, so that all else is read."""
    if isinstance(node, yaml.ScalarNode):
        why = _unmade(loader, node)
        if why:
            tell(loc, node, why)
            node.tag = _TEXT
        return
    wanted = _PREFIX + ("map" if isinstance(node, yaml.MappingNode) else "seq")
    if node.tag != wanted:
        tell(loc, node, "a tag found; plain keys, values and lists expected")
        node.tag = wanted
    if isinstance(node, yaml.SequenceNode):
        for index, one in enumerate(node.value):
            made_plain(loader, one, (*loc, index), tell)
        return
    pairs = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            why = "found a list or a mapping as a key"
            raise yaml.constructor.ConstructorError(None, None, why, key.start_mark)
        here = loc
        if key.tag != _PREFIX + "merge":
            key.tag = _TEXT  # `on`, `1` and dates are words where a key stands
            here = (*loc, key.value)
        elif not _mergeable(value):
            tell(loc, key, "<< found; a mapping behind it expected")
            continue
        made_plain(loader, value, here, tell)
        pairs.append((key, value))
    node.value = pairs


def _unmade(loader: Any, node: yaml.ScalarNode) -> str | None:
    """Why a scalar cannot become a value."""
    if node.tag == "!circle":
        return f"{node.value} found; one that does not hold itself expected"
    if node.tag == _TEXT:
        return None
    try:
        if node.tag in _SCALARS:
            # Thousands of digits become a number that cannot be shown.
            str(loader.construct_object(node))
            return None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        loader.recursive_objects.pop(node, None)  # it is not being made any more
    return "{} found; no value of its type, put it in quotes to make it text"


def _mergeable(value: yaml.Node) -> bool:
    ones = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return all(isinstance(one, yaml.MappingNode) for one in ones)
