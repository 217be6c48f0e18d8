"""PairEffect: the effect of one choice, from pairs of measured layouts that differ in nothing else.

The method is that of arXiv 2311.05610, for any sweep: two measured layouts that differ only in recomputation show the
cost of recomputation. All such pairs together give an effect with a number of pairs and a size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.layout import OPTIONS, RANK_DEGREES, Layout
from autotuner.core.trial import Trial

MeasuredLayouts = tuple[LayoutColumns, Floats]
"""Layouts of one job, and the measured step time of each in seconds; NaN if it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEffect:
    """The measured effect on throughput of changing one option, over all pairs of layouts that are equal otherwise."""

    subject: str
    """Name of the changed choice: ``recompute``, or ``tensor → pipeline`` for ranks that moved from one axis to the
    other."""
    before: str
    """Value before the change; empty for ranks that moved, and if there are no pairs."""
    after: str
    """Value after the change."""
    num_pairs: int
    """Number of pairs of measured layouts that differ only in this choice."""
    num_faster: int
    """Number of pairs that trained faster after the change."""
    median_gain: float | None
    """Median relative gain of throughput (and so of MFU) over the pairs; below 0 for a loss. Null without pairs, as are
    the next two fields."""
    least_gain: float | None
    """Gain of the pair with the smallest gain."""
    greatest_gain: float | None
    """Gain of the pair with the largest gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRules:
    """Measured effects of single options on throughput, from pairs of layouts that differ in nothing else."""

    num_measured: int
    """Number of layouts with a measured step time."""
    items: tuple[PairEffect, ...]
    """Effects, one for each choice and change. The choices of arXiv 2311.05610 are included even without pairs."""

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> Self:
        """Return the measured effects of single options on throughput, from the trials of a sweep.

        Only trials that measured the full-size layout count; repeats of a layout are left out.
        """
        whole = [trial for trial in trials if trial.repeats is None]
        measured = tuple((trial.layout, trial.measurement.step_time_s) for trial in whole if trial.measurement)
        return cls(num_measured=len(measured), items=_effects_of(measured))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAxis:
    """A way in which two otherwise equal layouts can differ: in one option, or in two parallel degrees."""

    subject: str
    fields: tuple[str, ...]
    """Fields of ``Layout`` that must all differ in a pair, while all other fields are equal. The first field orders the
    pair."""
    rank: Callable[[int], int]
    """A function that returns the position of a value of the first field. The smaller position comes before the
    change."""
    stepwise: bool
    """True if a value is compared only with the next measured value, and not with every later one."""

    def values(self, before: int, after: int) -> tuple[str, str]:
        """Return the values of the option before and after the change, as words.

        If two degrees differ, both texts are empty, because the effects of all such pairs are counted together.

        Args:
            before: Value of the first field before the change.
            after: Value of the first field after the change.
        """
        if len(self.fields) == 2:
            return "", ""
        one = OPTIONS[self.fields[0]]
        return one.in_words(before), one.in_words(after)


_SIX = ("recompute", "fused norm", "attention", "micro-batch", "tensor → pipeline", "sequence parallel")
"""Choices that arXiv 2311.05610 studied. Each gets an answer, even if no pair was measured."""


@lru_cache(maxsize=32)
def _effects_of(measured: tuple[tuple[Layout, float], ...]) -> tuple[PairEffect, ...]:
    """Return the effects in measured step times.

    The result is cached, because a page requests it at each event of its sweep.
    """
    layouts = LayoutColumns.from_layouts(layout for layout, _ in measured)
    return pair_effects([(layouts, np.array([seconds for _, seconds in measured], dtype=np.float64))])


def pair_effects(measured: Iterable[MeasuredLayouts]) -> tuple[PairEffect, ...]:
    """Return the effect of every option that differs in some pair of measured layouts.

    A pair consists of two layouts of the same job that differ in one option only, or in two parallel degrees only (one
    is smaller and the other is larger). The effects of all jobs are pooled. The six options of arXiv 2311.05610 come
    first.

    Args:
        measured: For each job, its layouts and their step times. If a layout has several step times, only their median
            counts. Times that are NaN are left out.
    """
    gains: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for layouts, step_time_s in measured:
        codes, seconds = _distinct(layouts, step_time_s)
        for axis in _AXES:
            for before, after in _pairs(codes, axis):
                first = _COLUMN[axis.fields[0]]
                values = axis.values(int(codes[before, first]), int(codes[after, first]))
                gains[axis.subject, *values].append(float(seconds[before] / seconds[after] - 1))
    found = [_effect(*key, values) for key, values in gains.items()]
    missing = [_effect(subject, "", "", []) for subject in _SIX if subject not in {one.subject for one in found}]
    places = {subject: place for place, subject in enumerate(_SIX)}
    every = (*found, *missing)
    return tuple(sorted(every, key=lambda one: (places.get(one.subject, len(_SIX)), one.subject, -one.num_pairs)))


# ---------------------------------------------------------------- pairs
def _distinct(layouts: LayoutColumns, step_time_s: Floats) -> tuple[Integers, Floats]:
    """Return each distinct layout once, as integers (layouts, fields), with the median of its step times."""
    known = np.flatnonzero(np.isfinite(step_time_s))
    codes = np.stack([np.asarray(getattr(layouts, name), dtype=np.int64)[known] for name in OPTIONS], axis=1)
    each, which = np.unique(codes, axis=0, return_inverse=True)
    medians = [float(np.median(step_time_s[known][which.ravel() == index])) for index in range(len(each))]
    return each, np.array(medians, dtype=np.float64)


def _pairs(codes: Integers, axis: PairAxis) -> Iterator[tuple[int, int]]:
    """Yield pairs of rows, before and after, that differ in every field of the axis and in no other field."""
    if not len(codes):
        return
    columns = [_COLUMN[name] for name in axis.fields]
    others: npt.NDArray[np.int64] = np.delete(codes, columns, axis=1)
    _, group, sizes = np.unique(others, axis=0, return_inverse=True, return_counts=True)
    for index in np.flatnonzero(sizes > 1):
        rows: list[int] = np.flatnonzero(group.ravel() == index).tolist()
        rows.sort(key=lambda row: axis.rank(int(codes[row, columns[0]])))
        for before, after in pairwise(rows) if axis.stepwise else combinations(rows, 2):
            if (codes[before, columns] != codes[after, columns]).all():
                yield before, after


def _axes() -> Iterator[PairAxis]:
    for name, one in OPTIONS.items():
        if name not in RANK_DEGREES:  # a job fixes the product of the degrees, so that no degree differs alone
            rank = one.plainest_first.index if one.plainest_first else int
            yield PairAxis(subject=one.label, fields=(name,), rank=rank, stepwise=one.is_number)
    for source, target in combinations(RANK_DEGREES, 2):
        subject = f"{OPTIONS[source].label} → {OPTIONS[target].label}"
        yield PairAxis(subject=subject, fields=(source, target), rank=int.__neg__, stepwise=True)
    sharding = ("shard_level", "data_parallel_shard_degree", "data_parallel_replicate_degree")
    yield PairAxis(subject=OPTIONS["shard_level"].label, fields=sharding, rank=int, stepwise=False)


_AXES = tuple(_axes())

_COLUMN = {name: column for column, name in enumerate(OPTIONS)}
"""Columns of the codes by the options' names."""


def _effect(subject: str, before: str, after: str, gains: list[float]) -> PairEffect:
    return PairEffect(
        subject=subject,
        before=before,
        after=after,
        num_pairs=len(gains),
        num_faster=sum(gain > 0 for gain in gains),
        median_gain=float(np.median(gains)) if gains else None,
        least_gain=min(gains, default=None),
        greatest_gain=max(gains, default=None),
    )
