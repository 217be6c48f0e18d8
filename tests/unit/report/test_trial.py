"""Reports of trials: one, ranked ones, compared ones, and their timelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core import documents
from autotuner.core.choices import Precision
from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.objective import Objective
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.report.charts import Dots, Intervals, Line, Stretch
from autotuner.report.comparison import comparison_report
from autotuner.report.html import Html
from autotuner.report.lanes import Lanes, Window
from autotuner.report.rank_groups import ranks_section
from autotuner.report.ranking import Asked, ranking, ranking_report
from autotuner.report.report import Link, Quantity, Report, Section, Source, Table
from autotuner.report.timelines import link_timelines_section, timeline_section
from autotuner.report.trial import TrialResult, trial_report
from autotuner.report.trial_parts import loss_curves, step_series
from autotuner.search.explain.communication import rank_groups
from autotuner.search.explain.explanation import explain, trial_parts
from autotuner.search.explain.link_timelines import link_timelines
from autotuner.search.explain.timeline import predicted_timeline
from autotuner.search.results.failures import failures
from autotuner.search.results.layout_comparison import LayoutCandidate, side_by_side
from autotuner.search.results.reached import ranked_times
from autotuner.search.results.trial_query import TableQuery
from autotuner.search.results.trial_table import TableRow, ranked_rows
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    estimate,
    failure,
    measurement,
    prediction,
    present,
    proxy_trial,
    step_report,
    step_timeline,
    sweep_request,
    tiny_job,
    trial,
)
from tests.unit.report.surfaces import surfaces

# ---------------------------------------------------------------- trial
LAYOUT = cpu_layout(data_parallel_replicate_degree=2)
SIMULATED = measurement(is_simulated=True)


def result(one: Trial, request: SweepRequest | None = None) -> TrialResult:
    """A trial that is the only one of its sweep."""
    request = request or sweep_request()
    died = failures(request, [one])
    return TrialResult(
        trial=one,
        sweep=Sweep(id="sw-test", request=request, state=RunState.COMPLETE, created_at=0.0),
        times=ranked_times(Objective(), [one]),
        parts=trial_parts(one, request),
        explanation=explain(one.layout, request.trial_job),
        failure=died[0] if died else None,
        now=100.0,
    )


def test_a_measured_trial_shows_what_it_reached_beside_what_was_predicted_on_every_surface() -> None:
    one = trial(LAYOUT, measurement=measurement(mfu=0.4123, tokens_per_s=1234.0, environment={"torch": "9.8.7"}))
    for shown in surfaces(trial_report(result(one))):
        for words in (
            "rank 1 of 1",
            "MFU, measured",
            "41.2",
            "1.23 ktokens/s",
            "Predicted, s",
            "Effects of single changes",
        ):
            assert words in shown
        assert "9.8.7" in shown
        assert str(LAYOUT) in shown


def test_a_simulated_trial_is_never_called_measured() -> None:
    request = sweep_request(job=tiny_job(cluster=cpu_cluster(engine="simulated")))
    one = trial(LAYOUT, measurement=SIMULATED)
    for shown in surfaces(trial_report(result(one, request))):
        assert "MFU, simulated" in shown
        assert "Simulated: nothing ran" in shown
        assert "MFU, measured" not in shown


def test_a_failed_trial_shows_why_it_died_what_to_do_and_its_log() -> None:
    one = trial(LAYOUT, state=TrialState.FAILED, failure=failure(log_tail="tried to allocate 1.2 GB"))
    for shown in surfaces(trial_report(result(one))):
        assert "What to do:" in shown
        assert "tried to allocate 1.2 GB" in shown
        assert "MFU, predicted" in shown


def test_a_proxy_trial_shows_its_estimate_and_its_own_measurement_apart() -> None:
    request = sweep_request(job=tiny_job(8), trial_cluster=cpu_cluster(2))
    layout = cpu_layout(tensor_parallel_degree=2, data_parallel_replicate_degree=4)
    one = trial(layout, proxy=proxy_trial(measurement=measurement(mfu=0.77)), estimate=estimate(mfu=0.1875))
    for shown in surfaces(trial_report(result(one, request))):
        for words in ("MFU, estimated", "18.8", "2 of 8", "Its step time, measured", "the proxy trial"):
            assert words in shown
        assert "MFU, measured" not in shown
        assert "77.0" not in shown


def test_steps_are_soft_while_they_warm_up_and_amber_where_nothing_ran() -> None:
    steps = [step_report(k, is_warmup=k < 2) for k in range(1000)]
    found = step_series(steps, SIMULATED)
    dots = next(mark.dots for mark in found.marks if isinstance(mark, Dots))
    assert len(dots) <= 400
    assert (dots[0].look, dots[-1].look) == ("soft", "simulated")
    assert next(mark for mark in found.marks if isinstance(mark, Stretch)).label == "warm-up"


def test_a_loss_curve_ends_at_the_first_loss_that_is_no_number() -> None:
    gate = GateResult(
        outcome=GateOutcome.FAILED,
        detail="found",
        reference=cpu_layout(),
        tolerance=0.02,
        candidate_losses=((3.0, 2.0, float("nan"), 1.0),),
        reference_losses=((3.0, 2.5, 2.0),),
    )
    chart = loss_curves(gate)
    assert chart is not None
    assert [len(mark.points) for mark in chart.marks if isinstance(mark, Line)] == [3, 2]
    assert loss_curves(replace(gate, candidate_losses=((float("nan"),),), reference_losses=())) is None


# ---------------------------------------------------------------- ranking
REQUEST = sweep_request()


def trials(*mfus: float, relative_error: float = 0.12) -> Sequence[Trial]:
    return [
        Trial(
            id=f"sw-1-000{number}",
            sweep_id="sw-1",
            number=number,
            state=TrialState.COMPLETE,
            layout=cpu_layout(tensor_parallel_degree=2, micro_batch_size=2**number),
            prediction=prediction(relative_error=relative_error),
            measurement=measurement(
                mfu=mfu, step_time_s=0.125 / mfu, tokens_per_s=4096 * mfu, step_time_interval_s=0.01
            ),
        )
        for number, mfu in enumerate(mfus)
    ]


def rows(*mfus: float) -> tuple[TableRow, ...]:
    return ranked_rows(REQUEST, trials(*mfus))


def test_a_ranking_carries_the_same_figures_on_every_surface() -> None:
    found = rows(0.25, 0.125)
    for text in surfaces(ranking_report(REQUEST, found, "measured")):
        for figure in ("25.0 ± 0.5", "12.5 ± 0.1", "40.0 ± 4.8", "1.02", "0.51", "10.0"):
            assert figure in text
        assert "ktokens/s" in text
        assert "not validated on this stack and device" in text
    written = documents.write(found[0].trial)
    assert written["measurement"]["mfu"] == 0.25
    assert written["measurement"]["tokens_per_s"] == 1024.0
    assert written["prediction"]["mfu"] == 0.4


def test_a_terminal_and_markdown_have_layouts_in_words_and_step_times_and_a_page_has_degrees() -> None:
    terminal, page, markdown = surfaces(ranking_report(REQUEST, rows(0.25, 0.125), "measured"))
    for text in (terminal, markdown):
        assert "tp2 mb2 math fp32" in text
        assert "step, s" in text
    assert "step, s" not in page
    assert "mb" in page


@pytest.mark.parametrize("source", ["simulated", "measured"])
def test_figures_that_nothing_measured_are_amber_and_predictions_pencil(source: Source) -> None:
    simulated = [
        replace(trial, measurement=replace(trial.measurement, is_simulated=source == "simulated"))
        for trial in trials(0.2, 0.1)
        if trial.measurement
    ]
    report = ranking_report(REQUEST, ranked_rows(REQUEST, simulated), source)
    page = str(Html().sections(report))
    assert f"main {source}" in page
    assert 'class="number predicted"' in page
    assert ("m-dot simulated" in page) == (source == "simulated")
    assert ("no trial ran" in surfaces(report)[0]) == (source == "simulated")


def test_a_wide_interval_is_given_by_its_ends_in_its_column_alone() -> None:
    found = ranked_rows(REQUEST, trials(0.25, 0.125, relative_error=1.0))
    for text in surfaces(ranking_report(REQUEST, found, "measured")):
        assert "20.0 to 80.0" in text
        assert "25.0 ± 0.5" in text


def test_ranks_that_noise_can_explain_are_marked() -> None:
    terminal, page, _ = surfaces(ranking_report(REQUEST, rows(0.25, 0.2499), "measured"))
    assert "Ranks 1–2 (=) are tied" in terminal
    assert "2=" in terminal
    assert "likely best" in terminal
    assert "= tied with the first," in page


def test_a_page_asks_for_rows_in_an_order_and_every_link_keeps_what_was_asked() -> None:
    asked = Asked(
        query=TableQuery.read("mb>1", "mb"),
        page=1,
        address=Link("", "sweeps", "sw-1", query={"where": "mb>1", "sort": "mb", "down": "tp"}),
    )
    found = ranking(REQUEST, rows(0.25, 0.125, 0.2), source="measured", asked=asked)
    assert list(found.table.trials) == [1, 2]
    assert (found.first, found.total, found.num_rows) == (1, 2, 3)
    head = next(column for column in found.table.columns if column.name == "mb")
    assert head.order == "ascending"
    assert head.sort is not None
    assert head.sort.query == {"where": "mb>1", "sort": "-mb", "down": "tp"}
    [(words, without, num_rows)] = found.filters
    assert (words, dict(without.query), num_rows) == ("mb>1", {"sort": "mb", "down": "tp"}, 3)


def test_a_layout_that_is_not_numerically_equivalent_shows_the_result_of_its_gate() -> None:
    [trial] = trials(0.2)
    found = measurement(precision_flop_per_s=1e11)
    lossy = replace(trial, layout=cpu_layout(precision=Precision.FP8), measurement=found)
    for text in surfaces(ranking_report(REQUEST, ranked_rows(REQUEST, [lossy]), "measured")):
        assert "loss not gated" in text
        assert "50.0 % of fp8" in text


# ---------------------------------------------------------------- comparison
JOB = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:16"),
    workload=Workload(seq_len=8192, global_batch_size=128),
)


FIRST, SECOND = "fsdp8 tp2 mb1 sp flash bf16", "fsdp16 mb1 recompute-full flash bf16"


def candidates(*words: str) -> list[LayoutCandidate]:
    layouts = [Layout.parse(one) for one in words]
    return [
        LayoutCandidate(layout=one, job=JOB, prediction=predict_one(one, JOB), of=str(one), name="a layout")
        for one in layouts
    ]


def reported(*words: str) -> Report:
    of = candidates(*words)
    return comparison_report(side_by_side(of), of)


def test_a_comparison_shows_figures_differences_and_parts_on_every_surface() -> None:
    of = candidates(FIRST, SECOND)
    found = side_by_side(of)
    report = comparison_report(found, of)
    for shown in surfaces(report):
        assert report.headline in shown
        assert all(format_seconds(part.seconds) in shown for one in found.items for part in one.parts if part.seconds)
        for one in (item.figures for item in found.items):
            assert format_rate(one.tokens_per_s, "tokens/s") in shown
            assert format_seconds(one.step_time_s) in shown
            assert format_bytes(one.peak_bytes or 0.0) in shown
        assert "recompute" in shown
    assert [section.key for section in report.sections] == ["differs", "figures", "time", "shifts", "memory"]


def test_json_carries_the_figures_of_the_report() -> None:
    of = candidates(FIRST, SECOND)
    found = side_by_side(of)
    written = documents.write(found)
    shown = comparison_report(found, of)["figures"]
    assert shown is not None
    (table,) = shown.blocks
    assert isinstance(table, Table)
    numbers = [{cell.value for cell in row if isinstance(cell, Quantity)} for row in table.rows]
    for item, row in zip(written["items"], numbers, strict=True):
        assert {item["figures"][name] for name in ("mfu", "step_time_s", "tokens_per_s", "peak_bytes")} <= row


def test_one_layout_of_one_job_differs_in_nothing() -> None:
    report = reported(FIRST, FIRST)
    for shown in surfaces(report):
        assert "Nothing: they are the same layout of the same job." in shown
        assert "Same in all: tp 2" in shown


def test_a_failed_trial_has_predicted_figures_and_says_why() -> None:
    of = candidates(FIRST, SECOND)
    died = replace(
        of[0], trial=trial(of[0].layout, state=TrialState.FAILED, failure=failure(message="no memory is left"))
    )
    (shown, *_) = surfaces(comparison_report(side_by_side([died, of[1]]), [died, of[1]]))
    assert "no memory is left" in shown
    assert "predicted" in shown


def test_the_list_of_shifts_goes_from_the_slowest_to_the_fastest_layout() -> None:
    found = side_by_side(candidates(FIRST, SECOND))
    section = reported(FIRST, SECOND)["shifts"]
    assert section is not None
    (picture,) = section.blocks
    assert isinstance(picture, Intervals)
    first, *falls, last = picture.rows
    assert first.value == found.at(found.slowest or "").step_s
    assert abs(falls[-1].value - last.value) < 1e-3 * last.value
    assert all(row.look == ("gain" if row.end_text.startswith("−") else "loss") for row in falls)


# ---------------------------------------------------------------- timelines
PIPELINE = cpu_layout(pipeline_parallel_degree=2)


def shown(section: Section) -> tuple[str, str, str]:
    return surfaces(Report(headline="one section", sections=(section,)))


def lanes_of(section: Section) -> Lanes:
    return next(block for block in section.blocks if isinstance(block, Lanes))


def test_a_recorded_step_stands_above_the_predicted_one_unless_one_is_asked_for_alone() -> None:
    expected = predicted_timeline(PIPELINE, tiny_job())
    both = present(timeline_section(expected, step_timeline()))
    assert lanes_of(both).is_measured
    assert lanes_of(both).thin is expected.timeline
    alone = present(timeline_section(expected, step_timeline(), shown="predicted"))
    assert not lanes_of(alone).is_measured
    assert timeline_section(None, None) is None
    for text in shown(both):
        assert "Thick blocks were measured" in text
        assert "rank 0, pipeline rank 0, measured" in text
        assert "rank 0, pipeline rank 0, predicted" in text


def test_slow_links_show_what_they_add_and_healthy_ones_show_nothing() -> None:
    job = tiny_job(cluster=cpu_cluster(4))
    layout: Layout = cpu_layout(pipeline_parallel_degree=4)
    assert link_timelines_section(link_timelines(layout, job)) is None
    late = LinkHealth(ends=(2, 3), delay_s=0.06)
    slow = replace(job, cluster=replace(job.cluster, link_health=(late,)))
    for text in shown(present(link_timelines_section(link_timelines(layout, slow)))):
        assert "link 2_3 60 ms late" in text
        assert "difference" in text
        assert "+" in text


def test_groups_of_a_rank_show_what_each_sends_and_every_rank_leads_to_its_own() -> None:
    layout = cpu_layout(tensor_parallel_degree=2)
    section = ranks_section(rank_groups(layout, tiny_job(), 1), lambda rank: f"?rank={rank}#ranks")
    for text in shown(section):
        assert "The groups of rank 1" in text
        assert "tensor" in text
        assert "Predicted: bytes that pass over a rank's link in a step" in text


def test_a_window_is_two_shares_of_the_step() -> None:
    assert str(Window.parse("0.25-0.5").closer) == "0.3125-0.4375"
    assert Window.parse(None).is_whole
    for wrong in ("0.5-0.25", "a-b", "0-2"):
        with pytest.raises(InvalidInput, match="two numbers from 0 to 1"):
            Window.parse(wrong)
