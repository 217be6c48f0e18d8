"""What the page of a trial shows, as values."""

from __future__ import annotations

from dataclasses import replace

from api.dashboard.charts.spread import Spread
from api.dashboard.charts.window import Window
from api.dashboard.views.launch_flags import FlagsView
from api.dashboard.views.looked_at import LookedAt
from api.dashboard.views.permalink import Permalink
from api.dashboard.views.trial_heading import change_rows, figures, place_of
from api.dashboard.views.trial_parts import MemoryView, StepView
from api.schemas import LayoutExplanation, TrialView
from autotuner.domain.layouts.choice import AttentionKernel
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.trainer import ExportFormat
from autotuner.domain.runs.trial import Trial, TrialState
from autotuner.ports import RankedTime
from autotuner.search.explain.explanation import explain
from autotuner.search.explain.trial_parts import TrialParts, stage_peaks, trial_parts
from tests.builders import big_job, breakdown, cpu_layout, measurement, prediction, sweep_request

PIPELINE = Layout(tensor_parallel_degree=8, pipeline_parallel_degree=8, sequence_parallel=True)
ALL = Window.parse(None)


def trial() -> Trial:
    return Trial(
        id="sw-a-0000",
        sweep_id="sw-a",
        number=0,
        state=TrialState.COMPLETE,
        layout=cpu_layout(data_parallel_replicate_degree=2),
        prediction=prediction(relative_error=0.1),
        measurement=measurement(breakdown=breakdown(forward_s=0.1, backward_s=0.3, other_s=0.05)),
    )


def parts() -> TrialParts:
    return trial_parts(trial(), sweep_request())


def test_the_rows_of_a_step_are_its_parts_in_one_unit_and_last_the_whole() -> None:
    view = StepView.of(parts().step, predicted=Spread.within(1.36, None), reached=None, reached_name="measured")
    assert view.unit == "s"
    assert {row.name: row.measured for row in view.rows}["backward"] == "0.300"
    assert (view.rows[-1].name, view.rows[-1].measured, view.rows[-1].predicted) == ("step", "0.450", "1.360")
    assert view.rows[-1].limit == "predicted 202 % longer than the divided step"


def test_what_no_law_explains_has_a_dash_and_counts_as_predicted_to_take_nothing() -> None:
    view = StepView.of(parts().step, predicted=Spread.within(1.36, None), reached=None, reached_name="measured")
    row = next(row for row in view.rows if row.name == "anything else")
    assert (row.predicted, row.difference) == ("–", "+0.050")


def test_memory_says_where_the_fullest_stage_stands_to_the_limit() -> None:
    stages = stage_peaks(PIPELINE, big_job(), tuple(int(1e9) * (1 + rank) for rank in range(64)))
    view = MemoryView.of(replace(parts(), stages=stages, limit_bytes=60e9), wide=632)
    assert view.said == "Stage 7 was measured to hold 64 GB, 4 GB above the limit of 60 GB."
    assert [row.name for row in view.rows[:2]] == ["stage 0", "stage 1"]
    assert (view.rows[7].peak, view.rows[7].rank, view.rows[7].free, view.rows[7].is_over) == (
        "64 GB",
        63,
        "−4 GB",
        True,
    )
    assert "logits" in view.parts


def test_memory_without_a_pipeline_is_that_of_each_rank() -> None:
    view = MemoryView.of(parts(), wide=632)
    assert view.rows[0].name == "each rank"
    assert view.said.startswith("Each rank was measured to hold 10 MB")


def test_the_figures_of_a_measured_trial_stand_beside_its_prediction() -> None:
    found = figures(TrialView.of(trial()), "simulated", 85.5e9)
    assert [(one.name, one.kind) for one in found[:2]] == [("MFU", "simulated"), ("MFU, predicted", "predicted")]
    assert found[0].first
    assert found[-1].spread == "of 85.5 GB"
    untried = figures(TrialView.of(replace(trial(), measurement=None)), "measured", None)
    assert {one.kind for one in untried} == {"predicted"}


def test_a_place_says_what_the_ranking_cannot_tell_apart() -> None:
    times = [
        RankedTime(trial_id=f"t{i}", step_time_s=0.5 + 0.001 * i, step_time_interval_s=0.01, noise_floor=None)
        for i in range(2)
    ]
    first, second = place_of("t0", times), place_of("t1", times)
    assert first is not None
    assert second is not None
    assert (second.rank, second.num_ranked, second.best_id) == (2, 2, "t0")
    assert "likely the fastest" in first.said
    assert second.said.startswith("tied with the first")
    assert place_of("another", times) is None


def test_every_change_leads_to_its_layout_by_hand() -> None:
    explanation = LayoutExplanation.of(explain(PIPELINE, big_job()), big_job().model)
    at = Permalink(model="llama-3-70b", cluster="h100:64", seq_len=4096, global_batch_size=256)
    rows = change_rows(explanation, at)
    assert len(rows) == len(explanation.helpful) + len(explanation.too_large) > 0
    assert all(row.address.startswith("/explore?model=llama-3-70b&") for row in rows)
    assert all(row.saved.startswith(("−", "+", "0.0")) for row in rows)


def test_flags_are_first_those_of_the_sweep_s_trainer_else_what_was_asked_for() -> None:
    request, layout = sweep_request(), cpu_layout()
    plain = FlagsView.of(request, layout, LookedAt(window=ALL))
    asked = FlagsView.of(request, layout, LookedAt(window=ALL, format=ExportFormat.MEGATRON_LM))
    assert plain is not None
    assert asked is not None
    assert plain.export.format is ExportFormat.TORCHTITAN
    assert asked.export.format is ExportFormat.MEGATRON_LM


def test_an_address_keeps_what_else_is_looked_at() -> None:
    looked_at = LookedAt(format=ExportFormat.NEMO, show="measured", window=Window.parse("0.25-0.5"), rank=3)
    assert looked_at.rank_at(5) == "?format=nemo&show=measured&zoom=0.25-0.5&rank=5#ranks"
    assert looked_at.timeline_at("both", ALL) == "?format=nemo&rank=3#timeline"
    assert looked_at.format_at(ExportFormat.TORCHTITAN).startswith("?format=torchtitan&show=measured")
    assert LookedAt(window=ALL).rank_at(0) == "?#ranks"


def test_launch_flags_say_why_no_script_starts_a_trial_that_would_be_refused() -> None:
    kernel = cpu_layout(data_parallel_replicate_degree=2, attention_kernel=AttentionKernel.FLASH_3)
    view = FlagsView.of(sweep_request(), kernel, LookedAt(window=ALL, format=ExportFormat.SBATCH))
    assert view is not None
    assert "refuse" in view.export.usage
    assert not view.export.text
    assert "trial-runs-attention-kernel" in {reason.rule for reason in view.export.unsaid}
