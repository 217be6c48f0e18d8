"""A layout for engineers: degrees as columns, every other choice as a chip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.option import Topic
from autotuner.core.units import format_bytes
from autotuner.report.words import plain, value_in_words
from autotuner.search.results.axis import AXES, SHARDING_WORDS, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Degree:
    """A parallel degree of a layout, or its micro-batch size, with its short and its full name."""

    letters: str
    """Short name of the degree, as a column heading: ``tp``."""
    name: str
    """Name of the degree in words, for readers who do not know the letters."""
    value: int


def degrees(layout: Layout) -> tuple[Degree, ...]:
    """Return the degrees of a layout in the order of the columns; ``dp`` counts data ranks, sharded or not."""
    return (
        Degree(letters="tp", name="tensor", value=layout.tensor_parallel_degree),
        Degree(letters="pp", name="pipeline", value=layout.pipeline_parallel_degree),
        Degree(letters="dp", name="data", value=layout.data_parallel_degree),
        Degree(letters="cp", name="context", value=layout.context_parallel_degree),
        Degree(letters="ep", name="expert", value=layout.expert_parallel_degree),
        Degree(letters="mb", name="micro-batch", value=layout.micro_batch_size),
    )


_SCHEDULES = {
    PipelineSchedule.GPIPE: "GPipe",
    PipelineSchedule.ONE_F_ONE_B: "1F1B",
    PipelineSchedule.INTERLEAVED_1F1B: "interleaved",
}

_FEWER = {"first_stage_less_layers": "first stage −{}", "last_stage_less_layers": "last stage −{}"}
"""Short words for the layers that a stage has less than an even split would give it."""

_SAID_APART = ("micro_batch_size", "pipeline_schedule", "shard_level", *_FEWER)

_PHRASED = tuple(
    name
    for name, one in OPTIONS.items()
    if one.phrase and not one.qualifies and one.topic is not Topic.DEGREES and name not in _SAID_APART
)


def chips(layout: Layout, shared: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the options of a layout that differ from their defaults as short words (chips); degrees are left out.

    Sharding and the pipeline schedule come first.

    Args:
        layout: The layout.
        shared: Words that are left out, because they are shown once for several layouts.
    """
    all_said = (*_sharding(layout), *_schedule(layout), *_fewer(layout), *_others(layout))
    left_out = frozenset(shared)
    return tuple(chip for chip in all_said if chip not in left_out)


def shared_chips(layouts: Iterable[Layout]) -> tuple[str, ...]:
    """Return the words of options (chips) that all layouts share, to be shown once above a table of the layouts.

    There are none for fewer than two layouts.
    """
    said = [chips(layout) for layout in layouts]
    if len(said) < 2:
        return ()
    return tuple(chip for chip in said[0] if all(chip in other for other in said[1:]))


def _sharding(layout: Layout) -> tuple[str, ...]:
    if layout.shard_level is ShardLevel.NONE:
        return ()
    word, shards, replicas = (
        SHARDING_WORDS[layout.shard_level],
        layout.data_parallel_shard_degree,
        layout.data_parallel_replicate_degree,
    )
    if replicas == 1:
        return (word,)
    return (f"HSDP {replicas}×{shards}" if word == "FSDP" else f"{word} {replicas}×{shards}",)


def _schedule(layout: Layout) -> tuple[str, ...]:
    if layout.pipeline_parallel_degree == 1:
        return ()
    word = _SCHEDULES.get(layout.pipeline_schedule, plain(layout.pipeline_schedule))
    stages = layout.virtual_stages_per_rank
    return (f"{word} ×{stages}" if stages > 1 else word,)


def _fewer(layout: Layout) -> tuple[str, ...]:
    return tuple(short.format(getattr(layout, name)) for name, short in _FEWER.items() if layout.shows(name))


def _others(layout: Layout) -> tuple[str, ...]:
    return tuple(phrase(name, layout) for name in _PHRASED if layout.shows(name))


def phrase(name: str, layout: Layout) -> str:
    """Return an option's value in words, with the options that qualify it: ``recompute full every 2 layers``.

    Args:
        name: Name of the option.
        layout: The layout that has the value.
    """
    one, value = OPTIONS[name], getattr(layout, name)
    text = OPTIONS[name].phrase.format(format_bytes(value) if one.unit == "bytes" else plain(value))
    more = (other for other in OPTIONS if OPTIONS[other].qualifies == name and layout.shows(other))
    return " ".join([text, *(phrase(other, layout) for other in more)])


def option_value(field: str, value: int) -> str:
    """Return a value of an option as a form control shows it: ``ZeRO-1``, ``1F1B``, ``26.2 MB``, ``on``.

    Args:
        field: Name of the option.
        value: Value as the layout stores it.
    """
    one = OPTIONS[field]
    own = one.value_of(value)
    if isinstance(own, ShardLevel):
        return SHARDING_WORDS.get(own, "none")
    if isinstance(own, PipelineSchedule):
        return _SCHEDULES.get(own, plain(own))
    if field == "collective_channels" and not value:
        return "auto"
    return format_bytes(value) if one.unit == "bytes" else value_in_words(own)


def in_short(layout: Layout) -> str:
    """Return a layout in a few letters: the degrees above 1 and the micro-batch size, such as ``tp4 pp4 dp2 mb1``."""
    return " ".join(f"{one.letters}{one.value}" for one in degrees(layout) if one.value > 1 or one.letters == "mb")


_AT_ZERO = {
    "first_stage_less_layers": "a first stage like the others",
    "last_stage_less_layers": "a last stage like the others",
}
"""Words for these options at 0, for which their usual phrase would read oddly."""


def choice_in_words(name: str, value: Value) -> str:
    """Return the value of an option in words: ``tp 4``, ``1 layers fewer on the last stage``.

    Args:
        name: Name of the option in ``AXES``.
        value: The value.
    """
    axis, phrase = AXES[name], OPTIONS[name].phrase if name in OPTIONS else ""
    if value == 0 and name in _AT_ZERO:
        return _AT_ZERO[name]
    return phrase.format(value) if phrase.startswith("{} ") and not axis.words else f"{axis.label} {value}"
