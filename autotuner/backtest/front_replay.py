"""FrontReplay: a measured sheet as the trials of a search for a front, and how soon searches find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Self

import numpy as np
import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from autotuner.backtest.replay import Ended, Replay, chance, moved_proposals
from autotuner.core.columns import Floats
from autotuner.core.objective import Metric, Objective
from autotuner.costmodel.resource_cost import predicted_footprints
from autotuner.search.pareto import Frontier, non_dominated, reference_below
from autotuner.search.sampler.observations import OUT_OF_MEMORY, STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.propose import FrontWorths


@dataclass(frozen=True, eq=False, kw_only=True)
class FrontReplay:
    """A replay whose layouts are compared by several metrics.

    Step times are measured; what layouts take beside time is modelled, since no published sheet tells it.

    Attributes:
        values: Log values, shape (layouts, metrics); NaN where a layout ran out of memory.
        whole: The front of all layouts, above a reference a tenth of its range below its worst.
    """

    replay: Replay
    metrics: tuple[Metric, ...]
    values: Floats
    whole: Frontier

    @classmethod
    def of(cls, replay: Replay, metrics: Sequence[Metric]) -> Self:
        """The replay, of which two layouts at least must have run."""
        footprints = predicted_footprints(replay.layouts, replay.job, replay.predictions)
        worths = FrontWorths.of(metrics, replay.job, footprints, len(replay))
        values = worths.values(np.arange(len(replay)), np.log(replay.step_time_s))
        values[np.isnan(replay.step_time_s)] = np.nan
        ran = values[~np.isnan(replay.step_time_s)]
        whole = Frontier.of(ran, reference_below(ran))
        return cls(replay=replay, metrics=tuple(metrics), values=values, whole=whole)

    @property
    def num_on_front(self) -> int:
        """Layouts that no other beats."""
        return int(non_dominated(self.values[~np.isnan(self.replay.step_time_s)]).sum())

    def volume_share(self, tried: Sequence[int]) -> float:
        """Part of the whole front's hypervolume that these layouts dominate."""
        ran = [layout for layout in tried if not self.replay.ran_out(layout)]
        return Frontier.of(self.values[ran], self.whole.reference).volume / self.whole.volume

    def volume_shares(self, proposals: Iterator[int], num_trials: int) -> list[float]:
        """The same after each of the first trials; a search that ends keeps what it has."""
        tried = list(islice(proposals, num_trials))
        shares = [self.volume_share(tried[: count + 1]) for count in range(len(tried))]
        return shares + [shares[-1]] * (num_trials - len(tried))


FrontProposer = Callable[[FrontReplay, int], Iterator[int]]
"""Yields layouts in the order in which it would try them; the same seed gives the same order."""


def ours(front: FrontReplay, seed: int) -> Iterator[int]:
    """The sampler of a sweep; ends early when it holds that no other layout is likely to fit."""
    replay, objective = front.replay, Objective(front=front.metrics)
    sampler = LayoutSampler(replay.layouts, replay.predictions, job=replay.job, objective=objective, seed=seed)
    trials: list[optuna.trial.FrozenTrial] = []
    while (proposal := sampler.propose(trials)) is not None:
        yield proposal.row
        ran_out = replay.ran_out(proposal.row)
        ended = create_trial(
            state=TrialState.FAIL if ran_out else TrialState.COMPLETE,
            values=None if ran_out else [1.0] * len(front.metrics),  # count for nothing beside the step time
            params=params_of(replay.layouts.row(proposal.row)),
            distributions=sampler.distributions,
            user_attrs={OUT_OF_MEMORY: True} if ran_out else {STEP_TIME_S: float(replay.step_time_s[proposal.row])},
        )
        trials.append(ended)


def _by_optuna(sampler: Callable[[int], BaseSampler]) -> FrontProposer:
    """A sampler of Optuna, its proposals moved to layouts of the sheet.

    A layout that ran out of memory is told as worse than all others in everything: neither sampler would learn from a
    trial without values.
    """

    def proposals(front: FrontReplay, seed: int) -> Iterator[int]:
        worst = np.nanmin(front.values, axis=0) - 1.0

        def ended(layout: int) -> Ended:
            values = worst if front.replay.ran_out(layout) else front.values[layout]
            return TrialState.COMPLETE, values.tolist()

        directions = [StudyDirection.MAXIMIZE] * len(front.metrics)
        study = optuna.create_study(directions=directions, sampler=sampler(seed))
        return moved_proposals(front.replay, study, ended, seed)

    return proposals


def _by_chance(front: FrontReplay, seed: int) -> Iterator[int]:
    return chance(front.replay, seed)


FRONT_PROPOSERS: Mapping[str, FrontProposer] = MappingProxyType(
    {
        "ours": ours,
        "nsga2": _by_optuna(lambda seed: NSGAIISampler(seed=seed)),
        "nsga2-of-5": _by_optuna(lambda seed: NSGAIISampler(seed=seed, population_size=5)),
        "tpe": _by_optuna(lambda seed: TPESampler(seed=seed)),
        "tpe-after-5": _by_optuna(lambda seed: TPESampler(seed=seed, n_startup_trials=5)),
        "random": _by_chance,
    }
)
"""By their names in reports: as they come, and so that they choose by what they learnt within the first ten trials."""
