"""Axis: one choice in which layouts differ, with its name in charts and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from autotuner.core.choices import ShardLevel
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.value import require_one_of

Value = int | str
"""Value of an axis: a number, or a choice as a word."""

SHARDING_WORDS = {ShardLevel.OPTIMIZER: "ZeRO-1", ShardLevel.GRADIENTS: "ZeRO-2", ShardLevel.PARAMETERS: "FSDP"}
"""Trainers' names of the levels that shard anything, such as FSDP."""

_IN_GROUPS = " in groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One layout option, or a combination such as the sharding, by which tables and charts arrange layouts."""

    name: str
    """Name of the axis in URLs: ``tp``, ``recompute``."""
    label: str
    """Label of the axis for people; for a degree, its letters again."""
    words: tuple[str, ...]
    """Words of the values in order, the simplest setting first; empty for an axis of numbers."""
    read: Callable[[Layout], Value]
    """A function that returns the value of a layout."""

    def in_order(self, values: Iterable[Value]) -> tuple[Value, ...]:
        """Return each value once, sorted: numbers from the smallest, words from the simplest (such as ``none``)."""
        if self.words:
            return tuple(sorted(set(values), key=lambda value: self.words.index(str(value))))
        return tuple(sorted(set(values), key=int))


def axis_named(name: str) -> Axis:
    """Return the axis (a layout option that tables and charts vary) with a given name.

    Raises:
        InvalidInput: There is no such axis; the error lists all names.
    """
    require_one_of("choice", name, AXES)
    return AXES[name]


def varied_axes(layouts: Sequence[Layout]) -> tuple[Axis, ...]:
    """Return the axes (layout options) in which at least two of these layouts have different values."""
    return tuple(axis for axis in AXES.values() if len({axis.read(layout) for layout in layouts}) > 1)


def _sharding(layout: Layout) -> str:
    if layout.shard_level is ShardLevel.NONE:
        return "none"
    word = SHARDING_WORDS[layout.shard_level]
    return word if layout.data_parallel_replicate_degree == 1 else word + _IN_GROUPS


def _axes() -> Iterable[Axis]:
    for letters, name in _LETTERS.items():
        yield Axis(name=letters, label=letters, words=(), read=partial(_number, name))
    every = [word + groups for word in SHARDING_WORDS.values() for groups in ("", _IN_GROUPS)]
    yield Axis(name="sharding", label="sharding", words=("none", *every), read=_sharding)
    for name, one in OPTIONS.items():
        if name in (*_LETTERS.values(), *_TOLD_ELSEWHERE):
            continue
        if one.is_number:
            yield Axis(name=name, label=one.label, words=(), read=partial(_number, name))
        else:
            words = {value: one.in_words(value) for value in one.plainest_first or one.values}
            yield Axis(name=name, label=one.label, words=tuple(words.values()), read=partial(_word, name, words))


def _number(name: str, layout: Layout) -> Value:
    return int(getattr(layout, name))


def _word(name: str, words: Mapping[int, str], layout: Layout) -> Value:
    return words[getattr(layout, name)]


_LETTERS = {
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "dp": "data_parallel_degree",
    "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
    "mb": "micro_batch_size",
}
"""Options by the letters that are their column headings. ``dp`` counts all replicas, sharded or not."""

_TOLD_ELSEWHERE = ("data_parallel_replicate_degree", "data_parallel_shard_degree", "shard_level")
"""Fields that have no axis of their own, because ``dp`` and ``sharding`` show them."""

AXES: Mapping[str, Axis] = {axis.name: axis for axis in _axes()}
"""Every axis by its name."""
