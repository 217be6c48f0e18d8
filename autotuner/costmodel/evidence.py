"""Evidence: which parts of a prediction were compared with measured runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from autotuner.catalog.hardware import core_times, is_as_catalogued
from autotuner.catalog.software import Compared, comparisons, model_kind, pooled_scatter
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import ShardLevel
from autotuner.core.columns import Booleans, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, SHARD_WORDS
from autotuner.core.model import TransformerSpec
from autotuner.core.option import Kind, OptionSpec


class Where(IntEnum):
    """The closest measured runs that a formula was compared with: on the job's stack and device, on others, or none.

    ``HERE``: with the job's software stack on its device. ``ELSEWHERE``: with other software, or on another device.
    ``NOWHERE``: never. A greater value means less trust.
    """

    HERE = 0  # with this stack on this device
    ELSEWHERE = 1  # with other software, or on another device
    NOWHERE = 2


# ---------------------------------------------------------------- what a layout may have
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A property of a layout, such as context parallelism, that has a formula of its own in the cost model.

    This formula may, or may not, have been compared with measured runs.
    """

    word: str
    """Word of the property in a layout's name, without a number: ``cp``, ``flash_3``. The catalog counts measured runs
    by it."""
    name: str
    """Text for the property in answers: ``context parallelism``, ``flash_3 attention``."""
    option: str
    """Name of the field of ``Layout``."""
    value: int | None
    """Value of the field that has the property; None: any value except ``plain``."""
    plain: int
    """Value of the field in a layout without the property."""
    beside: str
    """Degree that must be above 1 for the property to count; empty: none."""
    parts: tuple[str, ...]
    """Parts of ``StepTime`` whose formula the property selects."""

    def of(self, x: LayoutColumns) -> Booleans:
        """Return a mask over the layouts: True where a layout has this property."""
        column = getattr(x, self.option)
        has: Booleans = column != self.plain if self.value is None else column == self.value
        return has & (getattr(x, self.beside) > 1) if self.beside else has


_NAMES: Mapping[str, str] = {
    "data_parallel_replicate_degree": "replicas",
    "shard_level": "sharded {}",
}
"""Names of properties that differ from the words of their option."""


def _subjects() -> Iterator[Subject]:
    for name, one in OPTIONS.items():
        match one.kind:
            case Kind.DEGREE if name != "data_parallel_shard_degree":  # the shard level already covers this option
                yield _subject(name, one, _NAMES.get(name, f"{one.label} parallelism"))
            case Kind.SWITCH:
                yield _subject(name, one, one.phrase or one.label)
            # options of batches, and options of stages that the schedule covers, have no formula
            case Kind.COUNT if not one.is_split:
                yield _subject(name, one, one.label)
            case Kind.CHOICE:
                yield from _subjects_of_choice(name, one)


def _subjects_of_choice(name: str, one: OptionSpec) -> Iterator[Subject]:
    phrase = _NAMES.get(name) or one.phrase or f"{one.label} {{}}"
    for value in one.values:
        is_said = value != one.default or one.always_shown or one.shown_beside
        if is_said:
            yield _subject(name, one, phrase.format(one.to_plain(value)), value)


def _subject(option: str, one: OptionSpec, name: str, value: int | None = None) -> Subject:
    return Subject(
        word=_word(one, value),
        name=name,
        option=option,
        value=value,
        plain=one.default,
        beside=one.shown_beside,
        parts=one.step_parts,
    )


def _word(one: OptionSpec, value: int | None) -> str:
    if isinstance(value, ShardLevel):
        return SHARD_WORDS[value]
    return one.word.removesuffix("{}") if value is None else one.word.format(value)


SUBJECTS = tuple(_subjects())
"""All properties of layouts, in the order of the options."""

NAMES: Mapping[str, str] = {subject.word: subject.name for subject in SUBJECTS}
"""Text in answers for each property, by its word in a layout's name."""

LATENT, LINEAR = "latent attention", "linear attention"
"""Kinds of attention that a model may have, as properties of the model."""

KIND_PARTS = ("matrix_s", "pointwise_s", "expert_communication_s")
"""Parts of a step whose formulas depend on the kind of the model."""

_ATTENTION_PARTS = ("matrix_s", "attention_s")


# ---------------------------------------------------------------- what was compared, for one job
NameColumn: TypeAlias = npt.NDArray[np.object_]
"""One tuple of names for each of many layouts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """The comparisons of the cost model with measured runs that say how far predictions for a job can be trusted.

    The catalog has these comparisons. Each belongs to one software stack, one device and one kind of model.
    """

    stack: str
    """Name of the stack."""
    device: str
    """Name of the accelerator; empty if the device differs from the catalog's entry of that name."""
    kind: str
    """Kind of the model: with or without experts."""
    attention: tuple[str, ...]
    """Kinds of attention that the model has: ``LATENT``, ``LINEAR`` or both."""

    @classmethod
    def of(cls, job: Job) -> Evidence:
        """Return the comparisons with measured runs that apply to this job's software, accelerator and model."""
        accelerator = job.cluster.accelerator
        device = accelerator.name if is_as_catalogued(accelerator) or _is_profiled_core(accelerator) else ""
        return _evidence(job.stack.name, device, model_kind(job.model), _attention(job.model))

    @classmethod
    def of_names(cls, stack: str, device: str, model: TransformerSpec | None) -> Evidence:
        """Return the comparisons that apply to a stack and an accelerator of the catalog.

        Without a model, they are those of all kinds of models, and only ``here``, ``base`` and ``less_known`` have a
        meaning.
        """
        return _evidence(stack, device, model_kind(model) if model else "", _attention(model) if model else ())

    @cached_property
    def here(self) -> tuple[Compared, ...]:
        """The catalog's comparisons with measured runs of this stack on this device.

        If any of them used this kind of model (with or without experts), only these are returned. Otherwise all are
        returned.
        """
        entries = [one for one in comparisons().values() if (one.stack, one.device) == (self.stack, self.device)]
        return tuple([one for one in entries if one.model == self.kind] or entries)

    @cached_property
    def base(self) -> Where:
        """The closest comparison with measured runs on this device, whatever their software stack, model and layout.

        ``HERE``: runs of this stack on this device. ``ELSEWHERE``: only runs of another stack on this device.
        ``NOWHERE``: no run on this device.
        """
        if self.here:
            return Where.HERE
        return Where.ELSEWHERE if any(one.device == self.device for one in comparisons().values()) else Where.NOWHERE

    @cached_property
    def of_kind(self) -> Where:
        """The closest comparison with measured runs of this kind of model (with or without experts).

        ``HERE``: runs of this stack on this device. ``ELSEWHERE``: only runs of another stack, or on another device.
        ``NOWHERE``: no runs.
        """
        if any(one.model == self.kind for one in self.here):
            return Where.HERE
        return Where.ELSEWHERE if any(one.model == self.kind for one in comparisons().values()) else Where.NOWHERE

    def of_option(self, word: str) -> Where:
        """Return the closest comparison (``Where``) with runs that used a property of layouts or kind of attention.

        Args:
            word: Word of the property in a layout's name, such as ``cp``; or the kind of attention, ``LATENT`` or
                ``LINEAR``.
        """
        if any(word in one.options for one in self.here):
            return Where.HERE
        return Where.ELSEWHERE if any(word in one.options for one in comparisons().values()) else Where.NOWHERE

    def scatter(self, bits: str) -> float | None:
        """Return the standard deviation of log(measured / predicted) that remains unexplained among measured runs.

        The runs are of this kind of model on this stack and device. If there are none, they are of this kind of model
        on all stacks and devices.

        Args:
            bits: Width of the numbers in matrix products: ``BITS_8`` or ``BITS_16``.

        Returns:
            None if no comparison has numbers of this width.
        """
        here = next((one.scatter for one in self.here if one.model == self.kind), {})
        return here.get(bits, pooled_scatter(self.kind).get(bits))

    @cached_property
    def of_parts(self) -> Mapping[str, Where]:
        """The closest comparison for each part of a step time whose formula depends on the kind of model, by part name.

        The comparison says where the part's formula was checked with measured runs. For parts that are missing in this
        mapping, ``base`` is the closest comparison.
        """
        parts = dict.fromkeys(KIND_PARTS, self.of_kind)
        for name in self.attention:
            where = self.of_option(name)
            parts |= {part: max(where, parts.get(part, self.base)) for part in _ATTENTION_PARTS}
        return {part: max(where, self.base) for part, where in parts.items()}

    @cached_property
    def less_known(self) -> tuple[tuple[Subject, Where], ...]:
        """The properties of layouts whose formulas were checked against runs less closely than ``base``, or never.

        Each property comes with the closest comparison of its formula.
        """
        places = ((subject, self.of_option(subject.word)) for subject in SUBJECTS)
        return tuple((subject, where) for subject, where in places if where > self.base or where == Where.NOWHERE)

    @cached_property
    def never(self) -> tuple[str, ...]:
        """The names of all properties never compared with measured runs: first the job's, then those of layouts."""
        of_layouts = (subject.name for subject, where in self.less_known if where == Where.NOWHERE)
        return (*self.never_of_job, *of_layouts)

    @cached_property
    def never_of_job(self) -> tuple[str, ...]:
        """The names of the job's properties (kind of model or attention) never compared with measured runs."""
        found = [self.kind] if self.of_kind == Where.NOWHERE else []
        return (*found, *(name for name in self.attention if self.of_option(name) == Where.NOWHERE))

    def compared(self, x: LayoutColumns) -> tuple[Booleans, NameColumn]:
        """Return which layouts were fully compared with measured runs, and each layout's properties that never were.

        The first result is a mask. It is True if all formulas of the layout were compared with measured runs of this
        stack on this device. The second result has a tuple of names for each layout: the properties of the layout that
        were compared with no runs at all.
        """
        first = len(self.never_of_job)
        validated = np.full(len(x), max(self.base, *self.of_parts.values()) == Where.HERE)
        bits = np.full(len(x), (1 << first) - 1, dtype=np.int64)  # bit n says that a layout has ``never[n]``
        for subject, where in self.less_known:
            if (has := subject.of(x)).any():  # most properties occur in no layout of a space
                validated &= ~has
                bits |= np.where(has, 1 << first, 0) if where == Where.NOWHERE else 0
            first += where == Where.NOWHERE
        assert first < 64, "more subjects than bits"
        return validated, self._names(bits)

    def _names(self, bits: Integers) -> NameColumn:
        combinations, which = np.unique(bits, return_inverse=True)
        names = np.empty(len(combinations), dtype=np.object_)
        for place, one in enumerate(combinations.tolist()):
            names[place] = tuple(name for number, name in enumerate(self.never) if one >> number & 1)
        column: NameColumn = names[which]
        return column


def _attention(model: TransformerSpec) -> tuple[str, ...]:
    """Return the kinds of attention of the model whose formulas are compared with runs on their own."""
    has = {LATENT: model.latent_attention is not None, LINEAR: model.num_linear_layers > 0}
    return tuple(name for name in has if has[name])


def _is_profiled_core(accelerator: Accelerator) -> bool:
    """Return True if the device is a CPU whose rates were measured by a profile of this machine."""
    return accelerator.kind == "cpu" and accelerator.core not in (None, core_times())


@cache
def _evidence(stack: str, device: str, kind: str, attention: tuple[str, ...]) -> Evidence:
    return Evidence(stack=stack, device=device, kind=kind, attention=attention)
