"""What pydantic has against a document, in the words of the schema's own field descriptions."""

from __future__ import annotations

import difflib
import typing
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from inventory.document import Document, Loc, Mistake, shown

# Nobody reads more, and looking for what each was meant to be takes its time.
_MOST = 200


class Record(BaseModel):
    """Base of every schema class here: unknown keys are mistakes, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_json(self) -> dict[str, Any]:
        """Plain data of this record; pyinfra's `debug-inventory --json` looks for this name."""
        return self.model_dump(mode="json")


def reason(text: str) -> PydanticCustomError:
    """An error for validators: `text` follows "... found; " in the printed line."""
    return PydanticCustomError("reason", "{text}", {"text": text})


def of(model: type[BaseModel], read: Document) -> list[Mistake]:
    """All mistakes of a document as a `model`; of one place, what YAML itself says goes first."""
    told = {mistake.loc for mistake in read.mistakes}
    found = check(model, read.data)
    return [*read.mistakes, *(mistake for mistake in found if mistake.loc not in told)]


def check(model: type[BaseModel], data: Any) -> list[Mistake]:
    """Everything pydantic has against `data` as a `model`, each as one mistake."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        details = [detail for detail in found if detail["type"] != "cross"]
        return [_mistake(model, detail) for detail in _without_echoes(model, details[:_MOST])]
    return []


def _without_echoes(model: type[BaseModel], details: list[ErrorDetails]) -> list[ErrorDetails]:
    """One line for each mistake.

    No second one for the key that a misspelt key should have been, nor for a list that pydantic
    finds too short because one of its items is wrong.
    """
    meant = {
        (*detail["loc"][:-1], _meant_key(model, detail["loc"]))
        for detail in details
        if detail["type"] == "extra_forbidden"
    }
    inside = {detail["loc"][:depth] for detail in details for depth in range(len(detail["loc"]))}
    return [
        detail
        for detail in details
        if not (detail["type"] == "missing" and detail["loc"] in meant)
        and not (detail["type"] == "too_short" and detail["loc"] in inside)
    ]


def _mistake(model: type[BaseModel], detail: ErrorDetails) -> Mistake:
    loc: Loc = tuple(detail["loc"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        return Mistake(loc, _unknown_key(model, loc))
    allowed = describe(model, loc)
    if kind == "missing":
        return Mistake(loc, f"missing; {allowed or 'a value'} expected")
    found = shown(detail["input"])
    if kind == "reason":
        return Mistake(loc, f"{found} found; {detail['ctx']['text']}")
    if allowed:
        return Mistake(loc, f"{found} found; {allowed} allowed")
    return Mistake(loc, f"{found} found; {detail['msg']}")


def _unknown_key(model: type[BaseModel], loc: Loc) -> str:
    meant = _meant_key(model, loc)
    if meant:
        return f"unknown key; did you mean {meant}?"
    return f"unknown key; allowed here: {', '.join(_known_keys(model, loc))}"


def _known_keys(model: type[BaseModel], loc: Loc) -> list[str]:
    return sorted(_model_at(model, loc[:-1]).model_fields)


def _meant_key(model: type[BaseModel], loc: Loc) -> str | None:
    close = difflib.get_close_matches(str(loc[-1]), _known_keys(model, loc), n=1)
    return close[0] if close else None


def describe(model: type[BaseModel], loc: Loc) -> str:
    """What the schema says of the value at `loc`: the nearest field's description, or ""."""
    names = [part for part in loc if isinstance(part, str)]
    while names:
        owner = _model_at(model, tuple(names[:-1]))
        info = owner.model_fields.get(names[-1])
        if info is not None:
            return info.description or ""
        names.pop()  # inside a mapping: its own field speaks for its keys
    return "a mapping of keys and values"


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel]:
    """The schema class in force at `loc`; the deepest one known when `loc` leads into data."""
    current = model
    for part in loc:
        if not isinstance(part, str):
            continue
        info = current.model_fields.get(part)
        inner = _inner_model(info.annotation) if info else None
        if inner is None:
            return current
        current = inner
    return current


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        inner = _inner_model(argument)
        if inner is not None:
            return inner
    return None
