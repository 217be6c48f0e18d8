"""Replays: how many trials a sampler needs to find the best layout of a table.

A proposer yields layouts of a ``Replay`` that were not tried yet, each at most once. It sees the measured result of a
layout only after it has yielded it. Our sampler and TPE get the same known results before the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.backtests.measured_table import Sheet
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS
from autotuner.core.trial import PastTrial
from autotuner.costmodel.predict import PredictionColumns, predict
from autotuner.search.sampler.observations import OUT_OF_MEMORY, STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler

Ended: TypeAlias = tuple[TrialState, Sequence[float] | None]
"""State and values with which a trial of Optuna ends."""


Proposer: TypeAlias = "Callable[[Replay, int], Iterator[int]]"
"""A function that yields layouts in the order in which one search tries them. The same seed gives the same order."""


def ours(replay: Replay, seed: int) -> Iterator[int]:
    """Yield, one by one, the layouts that the product's own sampler proposes in a simulated search, as indices.

    The sampler learns each layout's measured result before the next proposal. The proposals end when the sampler
    considers it unlikely that another layout fits in memory.
    """
    sampler = LayoutSampler(replay.layouts, replay.predictions, job=replay.job, seed=seed, past=replay.past)

    def ended(layout: int) -> FrozenTrial:
        ran_out, step_time_s = replay.ran_out(layout), float(replay.step_time_s[layout])
        return create_trial(
            state=TrialState.FAIL if ran_out else TrialState.COMPLETE,
            value=None if ran_out else 1.0,  # negligible compared with the step time
            params=params_of(replay.layouts.row(layout)),
            distributions=sampler.distributions,
            user_attrs={OUT_OF_MEMORY: True} if ran_out else {STEP_TIME_S: step_time_s},
        )

    trials = [ended(layout) for layout in replay.known.tolist()]
    while (proposal := sampler.propose(trials)) is not None:
        yield proposal.row
        trials.append(ended(proposal.row))


def tpe(replay: Replay, seed: int) -> Iterator[int]:
    """Yield, one by one, the layouts that Optuna's default ``TPESampler`` proposes in a replay, as indices.

    A replay is a simulated search. A layout that ran out of memory counts as pruned, and TPE ranks pruned layouts below
    all completed ones.
    """

    def ended(layout: int) -> Ended:
        if replay.ran_out(layout):
            return TrialState.PRUNED, None
        return TrialState.COMPLETE, [float(replay.step_time_s[layout])]

    return moved_proposals(replay, optuna.create_study(sampler=TPESampler(seed=seed)), ended, seed)


def moved_proposals(replay: Replay, study: optuna.Study, ended: Callable[[int], Ended], seed: int) -> Iterator[int]:
    """Yield, one by one, the layouts that an Optuna sampler proposes in a replay (a simulated search), as indices.

    The sampler has one categorical parameter for each layout field that varies. Most combinations of values are not
    layouts of the table. Therefore each proposal is replaced by the untried layout that differs from it in the fewest
    fields (a random one of several), and the sampler gets the result of that layout. This is an advantage over real
    searches, where illegal or repeated proposals cost trials.

    Args:
        replay: The layouts and their measured times. The sampler gets the results of the known layouts first.
        study: An Optuna study with the sampler.
        ended: Function that returns the state and the values of the trial of a layout.
        seed: Seed for the choice among layouts that differ in equally many fields.
    """
    varying = np.flatnonzero(np.ptp(replay.codes, axis=0))
    codes, names = replay.codes[:, varying], np.array(tuple(OPTIONS))[varying].tolist()
    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(np.unique(codes[:, field]).tolist()) for field, name in enumerate(names)
    }
    generator = np.random.default_rng(seed)

    def tell(layout: int, attributes: Mapping[str, Any]) -> None:
        state, values = ended(layout)
        params = dict(zip(names, codes[layout].tolist(), strict=True))
        moved = create_trial(
            state=state, values=values, params=params, distributions=distributions, system_attrs=dict(attributes)
        )
        study.add_trial(moved)

    for layout in replay.known.tolist():
        tell(layout, {})
    untried = replay.open
    while untried.size:
        trial = study.ask(distributions)
        study.tell(trial, state=TrialState.FAIL)  # samplers ignore it; the replacing layout is reported instead
        distance = (codes[untried] != [trial.params[name] for name in names]).sum(axis=1)
        layout = int(generator.choice(untried[distance == distance.min()]))
        yield layout
        tell(layout, study.trials[trial.number].system_attrs)  # which generation of NSGA-II it belongs to
        untried = untried[untried != layout]


def chance(replay: Replay, seed: int) -> Iterator[int]:
    """Yield the layouts of a replay (a simulated search) that may be proposed, as indices in random order."""
    yield from np.random.default_rng(seed).permutation(replay.open).tolist()


PROPOSERS: Mapping[str, Proposer] = MappingProxyType({"ours": ours, "tpe": tpe, "random": chance})
"""Proposers by their names in reports."""


_NEAR_BEST = 1.02
"""Step time, relative to the best one, at which a search counts as finished: at most 2 % longer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Replay:
    """A simulated search over a sheet (the measured runs of one job): measured results take the place of trials.

    If a layout was run several times, its step time is the median of the runs that ended with a step time.
    """

    job: Job
    layouts: LayoutColumns
    codes: Integers
    """Layouts as integers, of shape (layouts, layout fields)."""
    predictions: PredictionColumns
    step_time_s: Floats
    """Measured step time of each layout; NaN if every run of the layout ran out of memory."""
    known: Integers
    """Indices of layouts whose results a search knows before the start. They are neither proposed nor judged."""
    layout_of_row: Integers
    """Index of the layout for each row of the sheet."""
    past: tuple[PastTrial, ...] = ()
    """Trials of other sheets that our sampler knows before the start."""

    @classmethod
    def of(cls, sheet: Sheet) -> Replay:
        """Return a simulated search over a sheet (the measured runs of one job). No result is known at the start."""
        every = np.stack([np.asarray(getattr(sheet.layouts, name), dtype=np.int64) for name in OPTIONS], axis=1)
        codes, first, layout_of_row = np.unique(every, axis=0, return_index=True, return_inverse=True)
        layouts = sheet.layouts.take(first)
        by_layout = sheet.step_time_s[np.argsort(layout_of_row, kind="stable")]
        runs = np.split(by_layout, np.cumsum(np.bincount(layout_of_row))[:-1])
        return cls(
            job=sheet.job,
            layouts=layouts,
            codes=codes,
            predictions=predict(layouts, sheet.job),
            step_time_s=np.array([_median(step_time_s) for step_time_s in runs]),
            known=np.array([], dtype=np.int64),
            layout_of_row=layout_of_row,
        )

    def knowing(self, num_layouts: int, seed: int) -> Replay:
        """Return this simulated search with the results of ``num_layouts`` of its layouts known at the start.

        The sampler knows the measured times of these layouts and may not propose them. The seed decides which layouts
        they are.
        """
        drawn = np.random.default_rng(seed).permutation(len(self))
        return replace(self, known=drawn[:num_layouts])

    def __len__(self) -> int:
        return len(self.layouts)

    @property
    def open(self) -> Integers:
        """Indices of the layouts that a sampler may propose: those whose results are not known at the start."""
        return np.setdiff1d(np.arange(len(self)), self.known)

    @property
    def judged_rows(self) -> Booleans:
        """A mask over the measured runs: True for runs that are compared with predictions.

        The results of their layouts are not known at the start of the search.
        """
        return ~np.isin(self.layout_of_row, self.known)

    @property
    def best(self) -> int:
        """Index of the fastest layout among those that a sampler may propose, by measured step time.

        At least one layout that may be proposed must have a step time.
        """
        return int(self.open[np.nanargmin(self.step_time_s[self.open])])

    def ran_out(self, layout: int) -> bool:
        """Return True if the layout ran out of memory in the measured runs, so that a trial of it fails."""
        return bool(np.isnan(self.step_time_s[layout]))

    def is_near_best(self, layout: int) -> bool:
        """Return True if the layout's step time is within 2 % of the best one, so that a search may stop after it."""
        return bool(self.step_time_s[layout] <= _NEAR_BEST * self.step_time_s[self.best])

    def walk(self, proposals: Iterable[int]) -> list[int]:
        """Return the layouts that a search tries: the proposals up to the first one that is near the best layout.

        If none is near it, these are all proposals.
        """
        tried = []
        for layout in proposals:
            tried.append(layout)
            if self.is_near_best(layout):
                break
        return tried


def _median(step_time_s: Floats) -> float:
    ended = step_time_s[~np.isnan(step_time_s)]
    return float(np.median(ended)) if ended.size else np.nan
