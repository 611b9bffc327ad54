"""Placeholders in stack definitions: Jinja2, sandboxed, and a misspelt name is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined,
    autoescape=False,  # arguments of a program, not HTML
    keep_trailing_newline=True,
)


def fill(text: str, values: Mapping[str, Any]) -> str:
    """`text` with its placeholders replaced; raises ValueError that quotes the text."""
    try:
        return _ENVIRONMENT.from_string(text).render(values)
    except Exception as error:  # an expression can fail in as many ways as Python itself
        raise ValueError(f"{text!r}: {error}") from None


def syntax_error(text: str) -> str | None:
    """What is wrong with the syntax of `text` as a template, or None."""
    try:
        _ENVIRONMENT.parse(text)
    except TemplateError as error:
        return error.message
    return None
