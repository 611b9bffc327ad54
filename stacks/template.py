"""Placeholders in stack definitions: Jinja2, sandboxed, and a misspelt name is an error.

A placeholder names a value and may pass it through one of a few filters. Loops, calls and
arithmetic have no use here and could take for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined,
    autoescape=False,  # arguments of a program, not HTML
    keep_trailing_newline=True,
)
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Getattr, nodes.Getitem),
    *(nodes.Filter, nodes.Const, nodes.Concat, nodes.CondExpr, nodes.If, nodes.Compare),
    *(nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Test, nodes.Keyword),
)
_FILTERS = frozenset({"default", "first", "int", "join", "last", "length", "lower", "upper"})
_MOST_CHARS = 100_000

# What render.py fills in, as it might be: what docker says of a name depends on it.
_SAMPLE: Mapping[str, Any] = {
    "stack": "stack",
    "rank": 0,
    "world": 2,
    "head_fabric_address": "10.0.0.1",
    "fabric": {
        "interface": "bond0",
        "address": "10.0.0.1",
        "cidr": "10.0.0.0/24",
        "hcas": ["rocep1s0f0"],
        "ucx": ["rocep1s0f0:1"],
    },
    "model_dir": "/srv/models",
    "model": {"directory": "model"},
    "ports": {"api": 8000, "rendezvous": 25000},
    "serve": {"model_name": "model"},
}


def fill(text: str, values: Mapping[str, Any]) -> str:
    """`text` with its placeholders replaced; raises ValueError that quotes the text."""
    try:
        return _ENVIRONMENT.from_string(text).render(values)
    except Exception as error:  # an expression can fail in as many ways as Python itself
        raise ValueError(f"{text!r}: {error}") from None


def sampled(text: str) -> str:
    """`text` filled with values as they might be; raises ValueError, also for a misspelt name."""
    problem = syntax_error(text)
    if problem:
        raise ValueError(problem)
    return fill(text, _SAMPLE)


def syntax_error(text: str) -> str | None:
    """What is wrong with the syntax of `text` as a template, or None."""
    if len(text) > _MOST_CHARS:
        return f"longer than {_MOST_CHARS} characters"
    try:
        tree = _ENVIRONMENT.parse(text) if "{" in text else nodes.Template([])
        return next((why for one in tree.find_all(nodes.Node) if (why := _too_much(one))), None)
    except TemplateError as error:
        return error.message
    except (RecursionError, ValueError, OverflowError):
        return "nested too deeply, or a number of thousands of digits"


def _too_much(node: nodes.Node) -> str | None:
    if not isinstance(node, _ALLOWED):
        return f"{type(node).__name__} is no placeholder; names and filters expected"
    if isinstance(node, nodes.Filter) and node.name not in _FILTERS:
        return f"no filter {node.name[:40]!r} here; {', '.join(sorted(_FILTERS))} allowed"
    return None
