from __future__ import annotations

from api.dashboard.views.address import Address
from api.dashboard.views.ranking import Ranking, RowsOf, ranking
from autotuner.domain.jobs.fault_trace import FaultTrace
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.metric import Metric
from autotuner.domain.runs.objective import Objective, Weight
from autotuner.domain.runs.trial import Trial
from autotuner.search.table.row import TableRow
from tests.builders import sweep_request, tiny_job
from tests.unit.search.table.rows import rows, trial, untried

TRIALS = (
    trial(0, "tp2 mb1 recompute-full", mfu=0.2, step_time_s=0.5, step_time_interval_s=0.005),
    trial(1, "tp2 mb2", mfu=0.4, step_time_s=0.25, step_time_interval_s=0.0025),
    trial(2, "tp2 mb4", mfu=0.3, step_time_s=0.33, step_time_interval_s=0.0033),
)


def shown(every: tuple[TableRow, ...], rows_of: RowsOf = "ranked", **chosen: str) -> Ranking:
    """The table as an address with these choices has it."""
    best = every[0] if every and rows_of == "ranked" else None
    address = Address(chosen=tuple(chosen.items()))
    return ranking(sweep_request(), every, address, rows_of=rows_of, kind="measured", best=best, explored=_explored)


def _explored(layout: Layout) -> str:
    return f"/explore?layout={layout}"


def of_trials(*trials: Trial, **chosen: str) -> Ranking:
    return shown(rows(*(trials or TRIALS)), "ranked", **chosen)


def heads(table: Ranking) -> list[str]:
    return [head.name for head in table.heads]


def test_what_identifies_a_layout_stands_before_its_figures() -> None:
    table = of_trials()
    assert heads(table)[: table.identifying] == ["rank", "tp", "pp", "dp", "mb"]
    assert heads(table)[table.identifying :] == [
        *("mfu", "mfu_drawn", "predicted_mfu", "tokens_per_s", "peak_bytes"),
        "trial",
    ]


def test_columns_that_say_nothing_are_left_out_unless_somebody_chose_them() -> None:
    assert "price_per_million_tokens" not in heads(of_trials())
    assert "ep" in heads(of_trials(columns="ep,mfu,price"))
    assert "price_per_million_tokens" in heads(of_trials(columns="ep,mfu,price"))


def test_a_figure_has_its_interval_and_its_kind() -> None:
    (best, *_) = of_trials().rows
    mfu = next(cell for cell in best.cells if cell.label == "MFU, %")
    predicted = next(cell for cell in best.cells if cell.label == "predicted, %")
    assert (mfu.text, mfu.spread, mfu.kind) == ("40.0", "± 0.4", "measured")
    assert (predicted.text, predicted.spread, predicted.kind) == ("40.0", "± 4.0", "predicted")


def test_heads_sort_by_the_best_end_first_and_then_by_the_other() -> None:
    by_mfu = next(head for head in of_trials().heads if head.name == "mfu")
    assert (by_mfu.href, by_mfu.direction) == ("?sort=-mfu#ranking", "")
    again = next(head for head in of_trials(sort="-mfu").heads if head.name == "mfu")
    assert (again.href, again.direction) == ("?sort=mfu#ranking", "descending")
    by_degree = next(head for head in of_trials().heads if head.name == "tp")
    assert by_degree.href == "?sort=tp#ranking"


def test_each_condition_can_be_dropped_and_says_how_many_rows_there_are_without_it() -> None:
    table = of_trials(where="mb>1 recompute=full")
    assert table.rows == ()
    assert [(one.name, one.num_rows) for one in table.filters] == [("mb>1", 1), ("recompute=full", 2)]
    assert table.filters[0].href == "?where=recompute%3Dfull#ranking"


def test_what_cannot_be_read_is_told_and_nothing_is_left_out() -> None:
    table = of_trials(where="mb>1", sort="speed")
    assert table.problem is not None
    assert (table.problem.field, table.total) == ("sort", 3)


def test_pages_begin_where_the_last_ended_and_a_page_too_far_is_the_last() -> None:
    many = tuple(untried(f"tp2 mb{number}") for number in range(1, 121))
    first, last = shown(many, "untried"), shown(many, "untried", page="99")
    assert (first.first, first.last, first.previous, first.next) == (1, 50, "", "?page=2#ranking")
    assert (last.first, last.last, last.previous, last.next) == (101, 120, "?page=2#ranking", "")
    assert shown(many, "untried", page="1; DROP TABLE").first == 1


def test_layouts_that_nothing_ran_are_pencil_and_lead_to_where_they_are_explored() -> None:
    table = shown((untried("tp2 mb2"),), "untried")
    (row,) = table.rows
    assert {cell.kind for cell in row.cells} <= {"deg", "predicted", "plot", "number"}
    assert (row.trial_id, row.href) == (None, "/explore?layout=tp2 mb2 flash bf16")
    assert "mfu" not in heads(table)


def test_the_same_rows_are_asked_of_the_rest_service() -> None:
    assert of_trials(where="mb>1", sort="-mfu", page="2").api_query == "?where=mb%3E1&sort=-mfu"
    assert shown((untried(),), "untried", rows="untried").api_query == "?rows=untried"


def test_ties_are_marked_and_the_first_is_not_tied_with_itself() -> None:
    close = trial(3, "tp2 mb8", mfu=0.4, step_time_s=0.2501, step_time_interval_s=0.0025)
    table = of_trials(*TRIALS, close)
    assert [row.is_tied for row in table.rows] == [True, True, False, False]
    assert table.has_ties
    assert not of_trials().has_ties


def test_under_a_fault_trace_what_ranks_stands_before_the_healthy_figure_and_can_be_sorted_by() -> None:
    request = sweep_request(
        job=tiny_job(4), fault_trace=FaultTrace.parse("7;2_3;0.06"), objective=Objective(under_faults=True)
    )
    every = rows(*TRIALS)
    table = ranking(
        request, every, Address(chosen=()), rows_of="ranked", kind="measured", best=every[0], explored=_explored
    )
    assert heads(table)[table.identifying :][:2] == ["robust_mfu", "mfu"]
    assert [choice.name for choice in table.sorts][:2] == ["-robust_mfu", "-predicted_robust_mfu"]


def test_where_more_than_speed_counts_its_value_stands_first_and_all_that_counts_has_a_column() -> None:
    profile = (Weight(metric=Metric.MFU, weight=2), Weight(metric=Metric.SIMPLICITY, weight=1))
    request = sweep_request(objective=Objective(profile=profile))
    address = Address(chosen=())
    every = rows(*TRIALS)
    table = ranking(request, every, address, rows_of="ranked", kind="measured", best=every[0], explored=_explored)
    figures = heads(table)[table.identifying :]
    assert figures[:2] == ["value", "mfu"]
    assert figures[-2:] == ["complexity", "trial"]
    assert table.sorts[0].name == "-value"
    untried_table = ranking(
        request, (untried(),), address, rows_of="untried", kind="measured", best=None, explored=_explored
    )
    assert "value" in heads(untried_table)
