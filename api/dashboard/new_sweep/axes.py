"""The axes of the space in the form: what suits the job, everything, or the values that somebody chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from api.dashboard.views.layouts import option_value
from autotuner.core.layout import OPTIONS
from autotuner.core.option import Kind, OptionSpec
from autotuner.core.space import SearchSpace

SUITS, EVERY, CHOSEN = "suits", "all", "chosen"
"""How an axis is set: nothing is said, every value is named, or those that were chosen."""

_USUAL = (
    *("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree", "expert_parallel_degree"),
    *("data_parallel_shard_degree", "shard_level", "micro_batch_size", "recompute", "pipeline_schedule"),
    *("sequence_parallel", "precision", "attention_kernel", "compiled"),
)

_LETTERS = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
    "micro_batch_size": "mb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis.

    Attributes:
        name: The field of a layout.
        letters: As columns of layouts are headed; empty for others.
        values: Of a switch or a choice, as JSON has them, with their words; empty for a number.
        takes_all: Whether a space can ask for every value.
        is_usual: Whether people choose it often.
    """

    name: str
    label: str
    letters: str
    values: tuple[tuple[str, str], ...]
    takes_all: bool
    is_usual: bool

    @property
    def path(self) -> str:
        """Of the input that says how it is set, and of its values in the body."""
        return f"space.{self.name}"

    @property
    def option(self) -> OptionSpec:
        """All that is known of the field."""
        return OPTIONS[self.name]

    def in_words(self, values: Sequence[int] | None) -> str:
        """Values as people say them."""
        if values is None:
            return "every legal value"
        return ", ".join(option_value(self.name, value) for value in values)

    def read(self, how: str, given: Sequence[str]) -> Any:
        """The values as the body has them."""
        if how == EVERY:
            return [_json(value) for value, _ in self.values] if self.values else None
        if self.values:
            return [_json(value) for value in given]
        return [_integer(part) for text in given for part in text.replace(",", " ").split()]


def axis_values(axis: Axis, values: Sequence[int] | None, suiting: Sequence[int] | None) -> tuple[str, tuple[str, ...]]:
    """How an axis with such values is set in the form, beside what suits the job."""
    if values == suiting:
        return SUITS, ()
    if values is None:
        return EVERY, ()
    said = tuple(_text(axis.option.to_plain(axis.option.value_of(value))) for value in values)
    if axis.values and set(said) == {value for value, _ in axis.values}:
        return EVERY, ()
    return CHOSEN, said if axis.values else (", ".join(said),)


def _axis(name: str) -> Axis:
    one = OPTIONS[name]
    values = tuple((_text(one.to_plain(value)), option_value(name, value)) for value in one.values)
    has_no_bounds = one.kind == Kind.DEGREE or one.searched is None
    return Axis(
        name=name,
        label=one.label,
        letters=_LETTERS.get(name, ""),
        values=values,
        takes_all=bool(values) or has_no_bounds,
        is_usual=name in _USUAL,
    )


def _text(value: int | str) -> str:
    """A value as a form has it."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _json(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


def _integer(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


_NAMES = tuple(each.name for each in fields(SearchSpace))  # type: ignore[arg-type]  # a dataclass at run time

AXES: Mapping[str, Axis] = {name: _axis(name) for name in (*_USUAL, *(each for each in _NAMES if each not in _USUAL))}
"""Every axis by its field, those that people choose often first."""
