"""The ranking of a sweep: terminal, page, Markdown and JSON carry the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotuner.core import documents
from autotuner.core.choices import Precision
from autotuner.core.trial import Trial, TrialState
from autotuner.report.html import Html
from autotuner.report.ranking import Asked, ranking, ranking_report
from autotuner.report.report import Link, Source
from autotuner.search.results.trial_query import TableQuery
from autotuner.search.results.trial_table import TableRow, ranked_rows
from tests.builders import cpu_layout, measurement, prediction, sweep_request
from tests.unit.report.surfaces import surfaces

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
    assert ("nothing ran" in surfaces(report)[0]) == (source == "simulated")


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


def test_what_is_not_equivalent_says_what_its_gate_found() -> None:
    [trial] = trials(0.2)
    found = measurement(precision_flop_per_s=1e11)
    lossy = replace(trial, layout=cpu_layout(precision=Precision.FP8), measurement=found)
    for text in surfaces(ranking_report(REQUEST, ranked_rows(REQUEST, [lossy]), "measured")):
        assert "loss not gated" in text
        assert "50.0 % of fp8" in text
