"""How soon searches find the front of published sheets: ours beside NSGA-II, TPE and chance.

``python -m bench.front_replay [--seeds N]`` replays sheets of more than 10 layouts, 8 of them measured, whose front has
two or more. It prints the part of the front's hypervolume that is reached after ten trials, and the trials until
95 % of it (40 where that takes longer). Step times are those of the tables; power and complexity are modelled, since
no table tells them. The reference lies a tenth of the front's range below its worst.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

from autotuner.backtest.front_replay import FRONT_PROPOSERS, FrontReplay
from autotuner.backtest.replay import Replay
from autotuner.backtest.report import MIN_MEASURED
from autotuner.backtest.table import Sheet
from autotuner.core.columns import Floats
from autotuner.core.objective import Metric
from autotuner.service.observing import silence_optuna
from bench.fit_stacks import FITS, sheets_of

METRICS = (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)

NUM_TRIALS = 10

MOST_TRIALS = 40

ENOUGH = 0.95


def main() -> None:
    """Replay every sheet and print each, and the means."""
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
    """Part of the hypervolume after each trial, of shape (seeds, trials) for every search."""
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
    """Mean share after ten trials, and mean trials until enough of it, of every search."""
    return " ".join(f"{100 * one[:, NUM_TRIALS - 1].mean():7.1f} % {_trials(one):6.1f}" for one in shares)


def _trials(shares: Floats) -> float:
    """Mean number of trials up to and with the first that is enough."""
    is_enough = shares >= ENOUGH
    first = np.where(is_enough.any(axis=1), is_enough.argmax(axis=1) + 1, shares.shape[1])
    return float(first.mean())


if __name__ == "__main__":
    main()
