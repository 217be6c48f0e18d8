from __future__ import annotations

from api.dashboard.views.sweep_choices import EffectsView, HeatView, ParallelView
from api.dashboard.views.sweep_points import trial_points
from autotuner.domain.layouts.choice import Recompute
from autotuner.domain.runs.trial import Trial, TrialState
from autotuner.search.results.choices import choices
from autotuner.search.results.grid import grid
from tests.api.dashboard.views.test_sweep_points import trial
from tests.builders import cpu_layout, failure, measurement, sweep_request


def sweep() -> list[Trial]:
    """Every pair of two micro-batches and two kinds of recomputation, of which one failed and one never ran."""
    layouts = [
        cpu_layout(micro_batch_size=size, recompute=recompute)
        for size, recompute in ((1, Recompute.NONE), (1, Recompute.FULL), (2, Recompute.NONE))
    ]
    times = (2.0, 2.5)
    ended = [
        trial(number, layout=layout, measurement=measurement(step_time_s=seconds, mfu=0.8 / seconds))
        for number, (layout, seconds) in enumerate(zip(layouts, times, strict=False))
    ]
    return [*ended, trial(2, TrialState.FAILED, layout=layouts[2], failure=failure())]


def test_cells_say_the_best_failures_and_what_was_not_tried() -> None:
    heat = HeatView.of(grid(sweep_request(), sweep(), "mb", "recompute"), root="/at")
    cells = {cell.words: (cell.said, cell.class_, cell.href) for row in heat.cells for cell in row}
    assert cells == {
        "mb 1, recompute full: 32.0 % MFU, best of 1": ("32.0", "h0", "/at/trials/tr-1"),
        "mb 1, recompute none: 40.0 % MFU, best of 1": ("40.0", "h4", "/at/trials/tr-0"),
        "mb 2, recompute full: not tried": ("–", "hx", ""),
        "mb 2, recompute none: failed": ("failed", "hx", "/at/trials/tr-2"),
    }


def test_effects_are_named_by_the_change() -> None:
    view = EffectsView.of(choices(sweep_request(), sweep()))
    assert [row.name for row in view.rows] == ["recompute full → none"]
    assert round(view.rows[0].median, 3) == 0.25
    assert view.effects is not None
    assert view.importance is None


def test_a_sweep_without_pairs_says_so() -> None:
    view = EffectsView.of(choices(sweep_request(), []))
    assert (view.effects, view.importance, view.rows) == (None, None, ())


def test_only_choices_that_differ_have_an_axis() -> None:
    trials = sweep()[:2]
    points = trial_points(trials)
    view = ParallelView.of(points, [one.layout for one in trials], choices(sweep_request(), trials))
    assert view is not None
    assert [axis.name for axis in view.axes] == ["recompute", "memory", "mfu"]
    assert view.left_out == ()


def test_a_sweep_without_results_has_no_lines() -> None:
    assert ParallelView.of((), [], choices(sweep_request(), [])) is None
