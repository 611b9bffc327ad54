"""Whether a regular expression can be left alone with a log: one that explodes never comes back.

Read from Python's own parse of it. Refused is what backtracks more than a few times over a line:
a repeat with a choice, a repeat or an optional part inside, look-arounds, back-references, and more
than two repeats in a row that may take the same characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_sre: Any = getattr(re, "_parser")  # noqa: B009 - typed nowhere
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_STRANGE = frozenset({"ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS"})
MOST_CHARS = 500
# A repeat whose ends lie further apart counts as one without an end.
_SPAN = 8
# With the search itself, which may begin anywhere: 500 characters to the third power.
_IN_A_ROW = 2
_PROBES = [chr(code) for code in range(256)] + ["\u0661", "\u6a21"]


def trouble(text: str) -> str | None:
    """Why `text` is no regular expression for lines of a log, or None."""
    if len(text) > MOST_CHARS:
        return f"is longer than {MOST_CHARS} characters"
    try:
        re.compile(text)
        tree = _sre.parse(text)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        return f"is no regular expression ({error})"
    return _explodes(tree)


def counts(text: str) -> bool:
    """Whether the one group of a sound expression is a number, there whenever a line matches."""
    if re.compile(text).groups != 1:
        return False
    for operation, argument in _top(_sre.parse(text)):
        if operation == "SUBPATTERN" and argument[0] == 1:
            return len(argument[3]) == 1 and _is_number(*argument[3][0])
    return False


def _top(tree: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Parts that every match has, groups without a number opened."""
    for operation, argument in tree:
        if str(operation) == "SUBPATTERN" and argument[0] is None:
            yield from _top(argument[3])
        else:
            yield str(operation), argument


def _is_number(operation: Any, argument: Any) -> bool:
    if str(operation) not in _REPEATS or argument[0] < 1 or len(argument[2]) != 1:
        return False
    only = _takes(*argument[2][0])
    return bool(only) and all(one.isdecimal() for one in only)


def _explodes(tree: Any) -> str | None:
    parts = list(_flat(tree, False))
    for kind, _ in parts:
        if kind == "strange":
            return "looks around or back; a plain expression expected"
        if kind == "nested":
            return "repeats something that can match in several ways; it could take for ever"
    if _row(parts) > _IN_A_ROW:
        return "has too many repeats in a row that take the same characters; it could take for ever"
    return None


def _flat(tree: Any, inside: bool) -> Iterator[tuple[str, frozenset[str]]]:
    """(repeat, maybe repeat, once, nested or strange; the characters it may take), in order."""
    for operation, argument in tree:
        name = str(operation)
        if name in _STRANGE:
            yield "strange", frozenset()
        elif name in _REPEATS:
            low, high, body = argument
            varies = low != high
            if inside and varies:
                yield "nested", frozenset()
            within = list(_flat(body, inside or high > 1))
            if varies and int(high) - int(low) > _SPAN:
                taken = frozenset().union(*(chars for _, chars in within))
                yield from (one for one in within if one[0] in {"nested", "strange"})
                yield ("repeat" if low else "maybe repeat"), taken
            else:
                yield from within if low else _perhaps(within)
        elif name == "BRANCH":
            if inside:
                yield "nested", frozenset()
            for branch in argument[1]:
                yield from _perhaps(_flat(branch, inside))
        elif name in {"SUBPATTERN", "ATOMIC_GROUP"}:
            yield from _flat(argument[3] if name == "SUBPATTERN" else argument, inside)
        elif name != "AT":
            yield "once", _takes(operation, argument)


def _perhaps(
    parts: Iterable[tuple[str, frozenset[str]]],
) -> Iterator[tuple[str, frozenset[str]]]:
    """Parts that a match may do without: they keep no two repeats apart."""
    for kind, chars in parts:
        if kind != "once":
            yield ("maybe repeat" if kind == "repeat" else kind), chars


def _takes(operation: Any, argument: Any) -> frozenset[str]:
    """Which of the probes one element takes, asked of the expression itself."""
    state = _sre.State()
    state.str = ""
    made = _sre.SubPattern(state, [(operation, argument)])
    matches = re._compiler.compile(made).fullmatch  # type: ignore[attr-defined]
    return frozenset(one for one in _PROBES if matches(one))


def _row(parts: list[tuple[str, frozenset[str]]]) -> int:
    """The longest row of repeats, each of which can take what the one before it can, with all that
    stands between them."""
    longest = 0
    alive: list[tuple[int, frozenset[str]]] = []
    for kind, chars in parts:
        row = 1 + max((n for n, one in alive if one & chars), default=0)
        if not kind.startswith("maybe"):
            alive = [(n, one) for n, one in alive if one & chars]
        if kind.endswith("repeat"):
            alive.append((row, chars))
            longest = max(longest, row)
    return longest
