"""How soon searches find the Pareto front of published sheets: our sampler, NSGA-II, TPE and random search.

``python -m research.front_replay [--seeds N]`` replays sheets of more than 10 layouts, of which at least 8 were
measured, and whose front has two or more. It prints the part of the front's hypervolume that is reached after ten
trials, and the number of trials until 95 % of it (40 if more are needed). Step times are those of the tables. Power and
complexity are modelled, since no table has them. The reference point lies a tenth of the front's range below its worst.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from types import MappingProxyType
from typing import Self

import numpy as np
import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from autotuner.backtests.measured_table import Sheet
from autotuner.backtests.replay import Ended, Replay, chance, moved_proposals
from autotuner.backtests.report import MIN_MEASURED
from autotuner.core.columns import Floats
from autotuner.core.objective import Metric, Objective
from autotuner.costmodel.resource_cost import predicted_resource_costs
from autotuner.search.sampler.observations import OUT_OF_MEMORY, STEP_TIME_S, params_of
from autotuner.search.sampler.optuna_sampler import LayoutSampler
from autotuner.search.sampler.pareto import Frontier, non_dominated, reference_below
from autotuner.search.sampler.propose import FrontFactors
from autotuner.service.observing import silence_optuna
from research.fit_stacks import FITS, sheets_of

METRICS = (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)

NUM_TRIALS = 10

MOST_TRIALS = 40

ENOUGH = 0.95


@dataclass(frozen=True, eq=False, kw_only=True)
class FrontReplay:
    """A replay of a published sweep in which a search looks for the Pareto front of several metrics.

    Step times are measured. The other metrics (power, complexity) are modelled, because no published table has them.
    """

    replay: Replay
    metrics: tuple[Metric, ...]
    values: Floats
    """Logarithms of the values, shape (layouts, metrics); NaN where a layout ran out of memory."""
    whole: Frontier
    """The Pareto front of all layouts; its reference point lies a tenth of its range below its worst."""

    @classmethod
    def of(cls, replay: Replay, metrics: Sequence[Metric]) -> Self:
        """Return the replay with the values of all metrics.

        At least two of its layouts must not have run out of memory.
        """
        resource_costs = predicted_resource_costs(replay.layouts, replay.job, replay.predictions)
        factors = FrontFactors.of(metrics, replay.job, resource_costs, len(replay))
        values = factors.values(np.arange(len(replay)), np.log(replay.step_time_s))
        values[np.isnan(replay.step_time_s)] = np.nan
        ran = values[~np.isnan(replay.step_time_s)]
        whole = Frontier.of(ran, reference_below(ran))
        return cls(replay=replay, metrics=tuple(metrics), values=values, whole=whole)

    @property
    def num_on_front(self) -> int:
        """Return the number of layouts on the Pareto front, which no other layout dominates in the metrics."""
        return int(non_dominated(self.values[~np.isnan(self.replay.step_time_s)]).sum())

    def volume_share(self, tried: Sequence[int]) -> float:
        """Return how much of the Pareto front's hypervolume the tried layouts dominate, as a fraction 0..1.

        ``tried`` has the numbers of the layouts.
        """
        ran = [layout for layout in tried if not self.replay.ran_out(layout)]
        return Frontier.of(self.values[ran], self.whole.reference).volume / self.whole.volume

    def volume_shares(self, proposals: Iterator[int], num_trials: int) -> list[float]:
        """Return the ``volume_share`` after 1, 2, ..., ``num_trials`` trials of a search.

        If the search proposes fewer layouts, the last value is repeated.
        """
        tried = list(islice(proposals, num_trials))
        shares = [self.volume_share(tried[: count + 1]) for count in range(len(tried))]
        return shares + [shares[-1]] * (num_trials - len(tried))


FrontProposer = Callable[[FrontReplay, int], Iterator[int]]
"""Function that yields layouts in the order in which it would try them; the same seed gives the same order."""


def ours(front: FrontReplay, seed: int) -> Iterator[int]:
    """Yield the layouts that the product's own sampler tries, in order, as numbers of layouts in the replay.

    The sampler learns from each trial. It ends early if no layout that is left is likely to fit in memory.
    """
    replay, objective = front.replay, Objective(front=front.metrics)
    sampler = LayoutSampler(replay.layouts, replay.predictions, job=replay.job, objective=objective, seed=seed)
    trials: list[optuna.trial.FrozenTrial] = []
    while (proposal := sampler.propose(trials)) is not None:
        yield proposal.row
        ran_out = replay.ran_out(proposal.row)
        ended = create_trial(
            state=TrialState.FAIL if ran_out else TrialState.COMPLETE,
            values=None if ran_out else [1.0] * len(front.metrics),  # negligible beside the step time
            params=params_of(replay.layouts.row(proposal.row)),
            distributions=sampler.distributions,
            user_attrs={OUT_OF_MEMORY: True} if ran_out else {STEP_TIME_S: float(replay.step_time_s[proposal.row])},
        )
        trials.append(ended)


def _by_optuna(sampler: Callable[[int], BaseSampler]) -> FrontProposer:
    """Return a proposer that uses an Optuna sampler and moves its proposals to layouts of the sheet.

    A layout that ran out of memory is reported to the sampler as worse than all others in every metric, because the
    samplers learn nothing from a trial without values.
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
"""Proposers by their names in reports: with their defaults, and set up to choose from what they learned within ten
trials."""


def main() -> None:
    """Replay the search for the Pareto front on every published sheet, and print how fast each sampler finds the front.

    A sheet consists of the measured runs of one job. The last line has the means over all sheets.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    sheets = [sheet for table in _tables() for sheet in sheets_of(table)]
    with ProcessPoolExecutor(asked.processes, get_context("fork")) as pool:
        found = [one for one in pool.map(partial(_searched, num_seeds=asked.seeds), sheets) if one]
    heads = " ".join(f"{name:>16}" for name in FRONT_PROPOSERS)
    sys.stdout.write(f"{'sheet':44} {'layouts':>7} {'front':>5}  {heads}\n")
    for name, num_layouts, num_on_front, shares in found:
        sys.stdout.write(f"{name[:44]:44} {num_layouts:7} {num_on_front:5}  {_line(shares)}\n")
    every = [np.concatenate([shares[place] for _, _, _, shares in found]) for place in range(len(FRONT_PROPOSERS))]
    sys.stdout.write(f"{'all':44} {sum(one[1] for one in found):7} {'':5}  {_line(every)}\n")


Found = tuple[str, int, int, Sequence[Floats]]


def _tables() -> list[str]:
    return list(dict.fromkeys(table for one in FITS for table in one.tables))


def _searched(sheet: Sheet, num_seeds: int) -> Found | None:
    """Return the part of the hypervolume after each trial, of shape (seeds, trials), for every search."""
    silence_optuna()
    replay = Replay.of(sheet)
    if np.isfinite(replay.step_time_s).sum() < MIN_MEASURED or len(replay) <= NUM_TRIALS:
        return None
    if not replay.job.cluster.accelerator.power_w:
        return None
    front = FrontReplay.of(replay, METRICS)
    if front.num_on_front < 2:
        return None
    shares = [
        np.array([front.volume_shares(search(front, seed), MOST_TRIALS) for seed in range(num_seeds)])
        for search in FRONT_PROPOSERS.values()
    ]
    return sheet.name, len(replay), front.num_on_front, shares


def _line(shares: Sequence[Floats]) -> str:
    """Return a line with the mean share after ten trials and the mean trials until enough, for every search."""
    return " ".join(f"{100 * one[:, NUM_TRIALS - 1].mean():7.1f} % {_trials(one):6.1f}" for one in shares)


def _trials(shares: Floats) -> float:
    """Return the mean number of trials up to and including the first one that reaches enough."""
    is_enough = shares >= ENOUGH
    first = np.where(is_enough.any(axis=1), is_enough.argmax(axis=1) + 1, shares.shape[1])
    return float(first.mean())


if __name__ == "__main__":
    main()
