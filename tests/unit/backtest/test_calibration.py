from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.backtest.calibration import calibrated
from autotuner.backtest.replay import Replay
from tests.unit.backtest.sheets import JOB, LAYOUTS, PREDICTED_S, sheet


def test_without_known_layouts_the_predictions_are_believed() -> None:
    replay = Replay.of(sheet(PREDICTED_S * 2))
    believed = calibrated(replay)
    assert believed.step_time_s.tolist() == replay.predictions.step_time.total_s.tolist()
    assert believed.relative_error.tolist() == replay.predictions.relative_error.tolist()
    assert believed.fits.tolist() == replay.predictions.fits.tolist()


def test_known_step_times_move_those_of_other_layouts_towards_them() -> None:
    replay = Replay.of(sheet(PREDICTED_S * 2)).knowing(4, seed=0)
    others = replay.open
    ratio = calibrated(replay).step_time_s[others] / replay.predictions.step_time.total_s[others]
    assert ratio.min() > 1.0
    # four of sixteen cannot tell which parts are slow, so some factors come out too large and others too small
    assert np.median(np.abs(np.log(ratio / 2))) < np.log(2) / 2


def test_known_step_times_that_were_predicted_well_narrow_the_intervals_of_others() -> None:
    replay = Replay.of(sheet()).knowing(4, seed=0)
    others = replay.open
    assert (calibrated(replay).relative_error[others] < replay.predictions.relative_error[others]).all()


def test_a_known_run_out_of_memory_refuses_layouts_that_need_as_much() -> None:
    peaks = Replay.of(sheet()).predictions.memory.total_bytes
    accelerator = replace(JOB.cluster.accelerator, memory_bytes=int(peaks.max() * 1.01))
    edge = replace(JOB, cluster=replace(JOB.cluster, accelerator=accelerator))
    replay = Replay.of(sheet(np.full(len(LAYOUTS), np.nan), job=edge))
    assert calibrated(replay).fits.all()
    assert not calibrated(replay.knowing(4, seed=0)).fits[peaks.argmax()]


def test_nothing_is_learnt_about_time_from_runs_out_of_memory() -> None:
    replay = Replay.of(sheet(np.full(len(LAYOUTS), np.nan))).knowing(4, seed=0)
    assert calibrated(replay).step_time_s == pytest.approx(replay.predictions.step_time.total_s)  # exp(log(x))
