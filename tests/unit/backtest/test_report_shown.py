from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotuner.backtest.report import MIN_MEASURED, NUM_DRAWS, replays, same_cluster
from autotuner.costmodel.uncertainty import cluster_deviation
from tests.unit.backtest.sheets import JOB, LAYOUTS, PREDICTED_S, sheet

FEW = LAYOUTS.take(slice(3))
SMALL = sheet(PREDICTED_S[:3] * 2, FEW)


def test_without_runs_to_show_the_sheet_is_as_it_is() -> None:
    (replay,) = replays(sheet(), [SMALL], 0)
    assert replay.known.size == 0
    assert replay.job is JOB


def test_a_large_sheet_gives_up_rows_of_its_own() -> None:
    drawn = replays(sheet(), [SMALL], len(LAYOUTS) - MIN_MEASURED)
    assert [replay.known.size for replay in drawn] == [len(LAYOUTS) - MIN_MEASURED] * NUM_DRAWS


def test_a_small_sheet_keeps_its_rows_and_learns_the_cluster_from_other_sheets() -> None:
    for replay in replays(SMALL, [sheet(PREDICTED_S * 2)], 4):
        assert replay.known.size == 0
        assert replay.job.calibration is not None
        assert replay.job.calibration.num_runs == 4
        assert replay.job.calibration.factor > 1.0
        assert replay.job.calibration.deviation < cluster_deviation(JOB)


def test_a_small_sheet_that_is_alone_gives_up_its_own_rows() -> None:
    assert all(replay.known.size == 1 for replay in replays(SMALL, [], 1))
    out_of_memory = sheet(np.full(3, np.nan), FEW)
    assert all(replay.known.size == 1 for replay in replays(SMALL, [out_of_memory], 1))


def test_the_draws_differ_and_each_is_the_same_every_time() -> None:
    slower = sheet(PREDICTED_S * np.linspace(1, 3, len(LAYOUTS)))
    factors = [replay.job.calibration.factor for replay in replays(SMALL, [slower], 1) if replay.job.calibration]
    again = [replay.job.calibration.factor for replay in replays(SMALL, [slower], 1) if replay.job.calibration]
    assert factors == again
    assert len(set(factors)) > 1


def test_a_cluster_is_known_by_its_source() -> None:
    assert same_cluster(sheet(), sheet())
    assert not same_cluster(sheet(), sheet(source="another"))


def test_sheets_of_more_nodes_are_of_one_kind_of_cluster_and_those_of_another_network_are_not() -> None:
    larger = replace(JOB, cluster=replace(JOB.cluster, num_nodes=2))
    assert same_cluster(sheet(), sheet(job=larger))
    thinner = replace(JOB, cluster=replace(JOB.cluster, oversubscription=2.0))
    assert not same_cluster(sheet(), sheet(job=thinner))
