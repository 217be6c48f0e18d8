"""What bench/small_for_large.py takes for a small trial of a large run, and what it counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.backtest.table import Sheet
from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.predict import predict
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.layout import Layout
from bench.small_for_large import Case, families, figures, learn, taught, twins, unfamiliar
from tests.unit.search.sampler.test_full_size import LARGE_LAYOUT, SMALL, SMALL_LAYOUT, TARGET


def sheet(job: Job, layout: Layout, slower: float, *, source: str = "a paper") -> Sheet:
    layouts = LayoutColumns.from_layouts([layout])
    seconds = slower * predict(layouts, job).step_time.total_s
    return Sheet(name=f"{job.cluster.name} {layout}", job=job, layouts=layouts, step_time_s=seconds, source=source)


SMALL_SHEET, LARGE_SHEET = sheet(SMALL, SMALL_LAYOUT, 1.2), sheet(TARGET, LARGE_LAYOUT, 1.2)


def test_a_family_has_several_sizes_of_one_source() -> None:
    assert families([SMALL_SHEET, LARGE_SHEET]) == [[SMALL_SHEET, LARGE_SHEET]]
    assert not families([LARGE_SHEET])
    assert not families([replace(SMALL_SHEET, source="another"), LARGE_SHEET])


def test_a_large_run_is_paired_with_the_smallest_run_of_its_layout() -> None:
    (case,) = twins([LARGE_SHEET, SMALL_SHEET])
    assert case.layouts == [LARGE_LAYOUT]
    assert [trial.stand_in.layout for trial in case.trials] == [SMALL_LAYOUT]
    assert case.times_larger == 16


def test_a_run_of_another_layout_is_no_pair() -> None:
    other = sheet(SMALL, replace(SMALL_LAYOUT, micro_batch_size=2), 1.2)
    assert not list(twins([LARGE_SHEET, other]))


def test_a_family_is_taught_by_runs_on_half_the_ranks_or_fewer() -> None:
    cases = list(taught([LARGE_SHEET, SMALL_SHEET], 4))
    assert {case.job.cluster.world_size for case in cases} == {256}
    assert {len(case.trials) for case in cases} == {1}  # there is but one


def test_an_estimate_after_a_pair_that_was_equally_slow_is_nearer() -> None:
    found = figures(list(twins([LARGE_SHEET, SMALL_SHEET])))
    assert found.num_runs == 1
    assert found.median[0] == pytest.approx(1 - 1 / 1.2)
    assert found.median[1] < found.median[0] / 2
    assert found.median_scaled == pytest.approx(0.0, abs=1e-9)
    assert found.half_width[1] < found.half_width[0]
    assert np.isnan(found.regret[0])  # of one run there is no order


def test_equal_errors_at_both_sizes_make_high_correlations_likely_and_unlike_ones_low_ones() -> None:
    def densities(slower: float) -> np.ndarray:
        (case,) = twins([sheet(TARGET, LARGE_LAYOUT, slower), SMALL_SHEET])
        (density,) = learn([case]).values()
        return density

    alike, unlike = densities(1.2), densities(0.8)
    assert alike[-1, -1] > alike[0, 0]
    assert unlike[-1, -1] < unlike[0, 0]


def test_software_of_one_source_alone_is_taken_for_unknown() -> None:
    tables = {"one": [SMALL_SHEET], "other": [replace(LARGE_SHEET, source="another")]}
    assert unfamiliar(tables) == tables
    (alone,) = unfamiliar({"one": [SMALL_SHEET]})["one"]
    assert alone.job.stack.name.endswith("never compared")


def test_a_run_out_of_memory_is_a_small_trial_that_tells_no_time() -> None:
    ran_out = replace(SMALL_SHEET, step_time_s=np.array([np.nan]))
    case: Case = next(taught([ran_out, LARGE_SHEET], 1, out_of_memory=True))
    (trial,) = case.trials
    assert trial.fits is False
    assert trial.step_time_s is None
    assert not list(taught([ran_out, LARGE_SHEET], 1))
