"""Shown: which measured runs a model is given before a sheet is judged, and what they leave of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from autotuner.backtest.replay import Replay
from autotuner.backtest.table import Sheet
from autotuner.costmodel.calibrate import MeasuredRuns, calibrated

MIN_MEASURED = 8
"""Measured rows below which an order of layouts says little."""

NUM_DRAWS = 5
"""How often the runs shown are drawn."""


def same_cluster(left: Sheet, right: Sheet) -> bool:
    """Whether both are of one source and one kind of cluster: accelerators, nodes, network and software."""
    return _cluster_of(left) == _cluster_of(right)


def _cluster_of(sheet: Sheet) -> tuple[object, ...]:
    cluster = sheet.job.cluster
    links = cluster.intra_node_link, cluster.inter_node_link, cluster.oversubscription
    return sheet.source, cluster.accelerator, *links, sheet.job.stack


def replays(sheet: Sheet, others: Sequence[Sheet], num_shown: int) -> list[Replay]:
    """The sheet after ``num_shown`` measured runs on its cluster were shown to the model, drawn five times anew.

    A sheet that is large enough to be ranked without them gives them up itself, and so does one that is alone. To any
    other sheet, runs of ``others`` are shown, which teach how fast the cluster is: all of its own rows stay.
    """
    if not num_shown:
        return [Replay.of(sheet)]
    measured = [other for other in others if not other.out_of_memory.all()]
    replay = Replay.of(sheet)
    if not measured or len(replay) >= num_shown + MIN_MEASURED:
        return [replay.knowing(num_shown, seed) for seed in range(NUM_DRAWS)]
    drawn = (list(_drawn(measured, num_shown, seed)) for seed in range(NUM_DRAWS))
    return [Replay.of(replace(sheet, job=calibrated(sheet.job, runs))) for runs in drawn]


def _drawn(sheets: Sequence[Sheet], count: int, seed: int) -> Iterator[MeasuredRuns]:
    """So many measured runs of all sheets, by chance."""
    owner = np.concatenate([np.full(len(sheet), number) for number, sheet in enumerate(sheets)])
    row = np.concatenate([np.arange(len(sheet)) for sheet in sheets])
    measured = np.flatnonzero(~np.concatenate([sheet.out_of_memory for sheet in sheets]))
    chosen = np.random.default_rng(seed).permutation(measured)[:count]
    for number in np.unique(owner[chosen]).tolist():
        sheet, rows = sheets[number], row[chosen[owner[chosen] == number]]
        yield MeasuredRuns(job=sheet.job, layouts=sheet.layouts.take(rows), step_time_s=sheet.step_time_s[rows])
