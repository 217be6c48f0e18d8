from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from api import examples, views
from autotuner.cli.views.explanation import explanation_view, measurement_view
from autotuner.cli.views.rankings import prediction_table, ranking_table
from autotuner.cli.views.sweeps import sweep_view
from autotuner.domain.choice import PipelineSchedule, Recompute
from autotuner.domain.layout import Layout
from autotuner.domain.wire import to_dict
from tests.builders import breakdown, measurement, prediction

LONG = Layout(
    tensor_parallel_degree=8,
    pipeline_parallel_degree=16,
    virtual_stages_per_rank=5,
    pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
    sequence_parallel=True,
    recompute=Recompute.SELECTIVE,
)


def predicted(rank: int, layout: Layout = LONG, **changes: Any) -> dict[str, Any]:
    likely: dict[str, Any] = {"relative_error": 0.12, "fit_probability": 0.97, "validated": True}
    item: dict[str, Any] = to_dict(views.predicted_layout(rank, layout, prediction(**likely | changes)))
    return item


def printed(view: RenderableType, width: int) -> str:
    console = Console(width=width, markup=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


@pytest.mark.parametrize("width", [80, 160])
def test_no_number_and_no_word_of_a_layout_is_cut_off(width: int) -> None:
    views = (
        prediction_table([predicted(1), predicted(2, Layout())], title="all"),
        ranking_table(to_dict(examples.ranking_page())["items"]),
        explanation_view(to_dict(examples.explanation())),
        measurement_view(to_dict(examples.trial_detail())["measured"]),
    )
    for view in views:
        text = printed(view, width)
        assert "…" not in text
        assert max(len(line) for line in text.splitlines()) <= width


def test_a_prediction_is_printed_with_its_intervals_and_how_sure_it_is_to_fit() -> None:
    text = printed(prediction_table([predicted(1)], title="all"), 160)
    for said in ("40.0 ± 4.8 %", "1.36 s ± 12 %", "5.2 MB", "97 %", "comp 74 %, tp 7 %, dp 15 %, bubble 4 %"):
        assert said in text
    assert "not validated" not in text


def test_an_error_that_is_an_assumption_is_called_so() -> None:
    text = printed(prediction_table([predicted(1, validated=False)], title="all"), 120)
    assert "not validated on this device" in text


def test_where_nothing_fits_that_is_said_in_place_of_an_empty_table() -> None:
    text = printed(prediction_table([], title="0 of 12 legal layouts fit"), 100)
    assert "0 of 12 legal layouts fit\nnothing fits" in text
    assert "MFU" not in text


def test_the_ranking_names_each_trial_by_the_end_of_its_id() -> None:
    (item,) = to_dict(examples.ranking_page())["items"]
    text = printed(ranking_table([item]), 100)
    assert re.search(rf"^ 1 +{item['id'].split('-')[-1]} ", text, re.MULTILINE)


def test_the_ranking_of_a_running_sweep_begins_below_its_progress() -> None:
    sweep = to_dict(examples.sweep_detail()) | {"state": "running"}
    lines = printed(sweep_view(sweep, to_dict(examples.ranking_page())["items"], []), 100).splitlines()
    assert any(line.startswith("ranking by measured MFU") for line in lines)


def test_the_ranking_has_the_prediction_with_its_interval_under_the_measurement() -> None:
    lines = printed(ranking_table(to_dict(examples.ranking_page())["items"]), 100).splitlines()
    at = next(index for index, line in enumerate(lines) if "43.0 %" in line)
    assert "(47.0 ± 5.6 %)  (4.65 s ± 12 %)  (40.5 GB)" in lines[at + 1]


def test_a_measured_trial_is_printed_with_its_interval_its_facts_and_its_parts() -> None:
    text = printed(measurement_view(to_dict(measurement(breakdown=breakdown(forward_s=0.1, backward_s=0.3)))), 100)
    for said in ("step 500 ms quartiles 10 ms apart, MFU 25.0 %", "steps: 5 measured", "rank 0 went, 400 ms"):
        assert said in text
    assert [line.split() for line in text.rstrip().splitlines()[-2:]] == [
        ["300", "ms", "75", "%", "backward"],
        ["100", "ms", "25", "%", "forward"],
    ]


def test_a_measured_trial_without_a_breakdown_is_printed_too() -> None:
    assert "under the profiler" not in printed(measurement_view(to_dict(measurement())), 100)


def test_the_ranking_says_what_was_extrapolated_or_disturbed_and_how_far_equal_runs_differ() -> None:
    item: dict[str, Any] = to_dict(examples.ranking_page())["items"][0]
    careful = to_dict(measurement(noise_floor=0.02, num_disturbed=1, extrapolated_from=(2, 4)))
    text = " ".join(printed(ranking_table([item | {"measured": careful}]), 200).split())
    assert "Equal runs differ by up to 2 %. 1 extrapolated from fewer layers. 1 disturbed runs thrown away." in text
    assert "Equal runs" not in printed(ranking_table([item | {"measured": to_dict(measurement())}]), 200)


def test_an_emulated_trial_is_shown_beside_those_without_a_rank() -> None:
    (item, *_) = to_dict(examples.ranking_page())["items"]
    emulated = {**item, "layout": {**item["layout"], "precision": "fp8_emulated"}}
    text = printed(sweep_view(to_dict(examples.sweep_detail()), [], [emulated]), 200)
    assert "emulated, not ranked" in text
    assert "emulated" not in printed(sweep_view(to_dict(examples.sweep_detail()), [], [item]), 200)
