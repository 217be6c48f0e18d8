from __future__ import annotations

import re
from typing import Any

from api.examples.trials import ranking_page
from api.schemas import Estimated, SmallTrialView
from autotuner.cli.views.advice import MATHEMATICS
from autotuner.cli.views.rankings import prediction_table, ranking_table, reached_beside_predicted
from autotuner.domain.layouts.choice import GradientSync, Precision
from autotuner.domain.layouts.layout import OPTIONS, Layout
from autotuner.domain.runs.metric import Metric
from autotuner.domain.runs.objective import Objective
from autotuner.domain.wire import to_dict
from tests.builders import estimate, measurement, small_trial
from tests.unit.cli.views.printed import predicted, predictions, printed


def test_a_prediction_is_printed_with_its_intervals_and_how_sure_it_is_to_fit() -> None:
    text = printed(prediction_table(predictions(predicted(1)), title="all"), 160)
    for said in ("40.0 ± 4.8 %", "1.36 s ± 12 %", "5.2 MB", "97 %", "compute 74 %, tp 7 %, dp 15 %, bubble 4 %"):
        assert said in text
    assert "not validated" not in text


def test_what_a_reader_should_know_stands_under_the_table_in_sentences() -> None:
    answer = predictions(predicted(1)) | {"caveats": ["never compared: context parallelism", "calibrated on 2 runs"]}
    text = printed(prediction_table(answer, title="all"), 300)
    assert "Never compared: context parallelism. Calibrated on 2 runs." in text


def unranked(**changes: Any) -> dict[str, Any]:
    return predicted(1, Layout(), **changes) | {"rank": None}


def test_where_nothing_fits_the_table_gives_way_to_what_is_missing_and_what_would_help() -> None:
    lacks: dict[str, Any] = {
        "missing_bytes": 12e9,
        "nearest": unranked(fits=False),
        "remedies": [
            {"change": "activations offloaded", "missing_bytes": 0, "candidate": unranked()},
            {"change": "AdamW's moments in bf16", "missing_bytes": 2e9, "candidate": unranked(fits=False)},
        ],
        "larger": {"num_accelerators": 16, "num_nodes": 2, "best": unranked()},
    }
    answer = predictions() | {"shortfall": lacks}
    lines = printed(prediction_table(answer, title="0 of 12 legal layouts fit"), 200).splitlines()
    assert lines[:2] == ["0 of 12 legal layouts fit", "nothing fits: the nearest layout lacks 12 GB (mb1 flash bf16)"]
    assert lines[2].startswith("with activations offloaded it fits: mb1 flash bf16 (376 token/s ± 12 %, fits 97 %)")
    assert lines[3] == "even with AdamW's moments in bf16, 2 GB are missing"
    assert lines[4].startswith("the smallest cluster that does: 16 of them on 2 nodes, mb1 flash bf16")
    larger = printed(prediction_table(predictions() | {"shortfall": lacks | {"larger": None}}, title=""), 200)
    assert "no larger cluster" in larger


def test_what_changes_the_mathematics_is_marked_and_the_best_that_does_not_stands_below() -> None:
    answer = predictions(predicted(1, Layout(precision=Precision.FP8))) | {"unchanged": unranked()}
    lines = printed(prediction_table(answer, title="all"), 160).splitlines()
    rows = [line.split()[:4] for line in lines if line.strip().startswith(("1*", "–  "))]
    assert rows == [["1*", "mb1", "flash", "fp8"], ["–", "mb1", "flash", "bf16"]]
    assert "its losses may differ" in " ".join(lines)
    plain = printed(prediction_table(predictions(predicted(1)), title="all"), 160)
    assert "losses" not in plain


def test_the_mark_says_which_option_changes_the_mathematics() -> None:
    lossy = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)
    text = " ".join(printed(prediction_table(predictions(predicted(1, lossy)), title="all"), 200).split())
    assert "* exchanges less than the whole gradients, so its losses may differ. Compare losses" in text
    both = predictions(predicted(1, lossy), predicted(2, Layout(precision=Precision.FP8)))
    text = " ".join(printed(prediction_table(both, title="all"), 200).split())
    assert "* multiplies in fewer bits or exchanges less than the whole gradients, so" in text


def test_every_option_that_changes_the_mathematics_has_words_under_the_table() -> None:
    assert {name for name, one in OPTIONS.items() if one.changes_mathematics} == set(MATHEMATICS)


def current(**changes: Any) -> dict[str, Any]:
    """What runs today, as the service answers it."""
    told: dict[str, Any] = {"label": "mb1 flash bf16", "layout": to_dict(Layout()), "candidate": unranked()}
    return told | {"reasons": [], "best": None, "unchanged": None} | changes


def test_what_runs_today_stands_beneath_the_best_with_the_gain_and_what_differs() -> None:
    gain = {"gain": 0.234, "change": "micro-batch 1 → 2"}
    today = current(best=gain, unchanged={"gain": -0.01, "change": "sharding none → optimizer"})
    rows = [predicted(1, Layout(micro_batch_size=2, precision=Precision.FP8))]
    answer = predictions(*rows) | {"current": today, "unchanged": unranked()}
    lines = [" ".join(line.split()) for line in printed(prediction_table(answer, title="all"), 160).splitlines()]
    assert [line.split()[0] for line in lines if " mb" in line] == ["1*", "–", "now"]
    assert "now → 1: 23.4 % more tokens per second (predicted); it changes micro-batch 1 → 2" in lines
    assert "now → –: 1.0 % fewer tokens per second (predicted); it changes sharding none → optimizer" in lines


def test_what_runs_today_and_is_the_best_is_called_so() -> None:
    answer = predictions(predicted(1)) | {"current": current(best={"gain": 0.0, "change": ""})}
    assert "now → 1: the same layout" in printed(prediction_table(answer, title="all"), 160)


def test_what_cannot_run_here_today_is_told_with_every_reason_beside_the_best() -> None:
    one = {"rule": "world-size", "field": "tensor_parallel_degree", "message": "too many ranks", "nearest": 4}
    answer = predictions(predicted(1)) | {"current": current(candidate=None, reasons=[one, one | {"nearest": None}])}
    lines = printed(prediction_table(answer, title="all"), 160).splitlines()
    at = lines.index("What runs today cannot run here: mb1 flash bf16")
    assert lines[at + 1 : at + 3] == [
        "  tensor_parallel_degree: too many ranks; nearest legal value: 4",
        "  tensor_parallel_degree: too many ranks",
    ]


def test_where_nothing_fits_what_runs_today_is_told_with_how_likely_it_fits() -> None:
    lacks = {"missing_bytes": 12e9, "nearest": unranked(fits=False), "remedies": [], "larger": None}
    answer = predictions() | {
        "shortfall": lacks,
        "current": current(candidate=unranked(fits=False, fit_probability=0.2)),
    }
    text = printed(prediction_table(answer, title="none"), 160)
    assert "what runs today: mb1 flash bf16 is predicted to need 5.2 MB: does not fit, 80 % sure" in text


def test_options_that_were_not_searched_are_named_with_what_they_would_give() -> None:
    one = {"change": "schedule 1f1b → zbv", "saved_share": 0.031, "candidate": unranked()}
    text = printed(prediction_table(predictions(predicted(1)) | {"not_searched": [one]}, title="all"), 200)
    assert "Options outside the search that would shorten the first row's step: schedule 1f1b → zbv (−3.1 %)." in text
    assert "none shortens the first row's step" in printed(
        prediction_table(predictions(predicted(1)), title="all"), 200
    )


def test_the_peak_that_mfu_is_a_share_of_is_said_once() -> None:
    text = " ".join(printed(prediction_table(predictions(predicted(1), predicted(2)), title="all"), 100).split())
    assert text.count("MFU is a share of 989 TFLOP/s per rank, the bf16 peak") == 1


def test_the_ranking_names_each_trial_by_the_end_of_its_id() -> None:
    (item,) = to_dict(ranking_page())["items"]
    text = printed(ranking_table([item], Objective()), 100)
    assert re.search(rf"^ 1 +{item['id'].split('-')[-1]} ", text, re.MULTILINE)


def test_the_ranking_has_the_prediction_with_its_interval_under_the_measurement() -> None:
    lines = printed(ranking_table(to_dict(ranking_page())["items"], Objective()), 100).splitlines()
    at = next(index for index, line in enumerate(lines) if "43.0 %" in line)
    assert "(47.0 ± 5.6 %)  (4.65 s ± 12 %)  (40.5 GB)" in lines[at + 1]


def test_the_ranking_says_what_was_extrapolated_or_disturbed_and_how_far_equal_runs_differ() -> None:
    item: dict[str, Any] = to_dict(ranking_page())["items"][0]
    careful = to_dict(measurement(noise_floor=0.02, num_disturbed=1, extrapolated_from=(2, 4)))
    text = " ".join(printed(ranking_table([item | {"measured": careful}], Objective()), 200).split())
    assert "Repeats of one trial differ by up to 2 %. 1 extrapolated from fewer layers. 1 run did not count" in text
    plain = printed(ranking_table([item | {"measured": to_dict(measurement())}], Objective()), 200)
    assert "Repeats of one trial" not in plain


def test_one_wide_interval_has_the_whole_column_written_by_its_ends() -> None:
    items = [predicted(1), predicted(2, Layout(), relative_error=0.5)]
    text = printed(prediction_table(predictions(*items), title="all"), 160)
    assert "40.0 %, 36 to 45 %" in text
    assert "40.0 %, 27 to 60 %" in text
    assert "40.0 ±" not in text


def test_what_does_not_fit_is_given_by_how_likely_it_is_to() -> None:
    cell = printed(prediction_table(predictions(predicted(1, fits=False, fit_probability=0.001)), title="all"), 160)
    assert "<1 %" in cell
    assert "does not fit" not in cell


def test_a_measured_step_and_its_prediction_have_intervals_in_one_unit() -> None:
    item: dict[str, Any] = to_dict(ranking_page())["items"][0]
    measured = to_dict(measurement(step_time_s=0.5, step_time_interval_s=0.0125))
    text = printed(ranking_table([item | {"measured": measured}], Objective()), 200)
    assert "500 ms ± 2.5 %" in text


def ranked(rank: int, probability_best: float, *, tied: bool, **more: Any) -> dict[str, Any]:
    item: dict[str, Any] = to_dict(ranking_page())["items"][0]
    return item | {"rank": rank, "probability_best": probability_best, "tied_with_best": tied} | more


def test_what_cannot_be_told_from_the_first_is_marked_with_how_likely_it_is_the_best() -> None:
    items = [ranked(1, 0.6, tied=True), ranked(2, 0.397, tied=True), ranked(3, 0.003, tied=False)]
    text = printed(ranking_table(items, Objective()), 100)
    assert "Ranks 1–2 (=) are tied" in text
    rows = [line.split() for line in text.splitlines() if re.match(r" *\d=? +\d{4} ", line)]
    assert [(row[0], "".join(row[-2:])) for row in rows] == [("1=", "60%"), ("2=", "40%"), ("3", "<1%")]


def test_a_clear_first_has_neither_marks_nor_a_column_of_probabilities() -> None:
    text = printed(ranking_table([ranked(1, 0.99, tied=True), ranked(2, 0.01, tied=False)], Objective()), 100)
    assert "=" not in text
    assert "chance" not in text


def test_a_ranking_of_all_sweeps_cannot_say_what_is_tied() -> None:
    item = ranked(1, 0.0, tied=False) | {"probability_best": None, "tied_with_best": None}
    assert "tied" not in printed(ranking_table([item, item], Objective()), 100)


def test_the_loss_gate_stands_under_a_layout_that_changes_the_mathematics_alone() -> None:
    items = [ranked(1, 1.0, tied=True, gate_outcome="passed"), ranked(2, 0.0, tied=False, gate_outcome="not_gated")]
    text = printed(ranking_table(items, Objective()), 100)
    assert "loss gate passed" in text
    assert "loss not gated" in text
    assert "1 not gated: what such a layout learns was compared with nothing" in " ".join(text.split())
    assert "gate" not in printed(ranking_table([ranked(1, 1.0, tied=True)], Objective()), 100)


def test_the_utilization_of_the_precision_stands_beside_mfu_where_its_peak_is_another() -> None:
    item = ranked(1, 1.0, tied=True)
    layout = item["layout"] | {"precision": "fp8"}
    own = item["measured"]["mfu"] / 2
    fast = item | {"layout": layout, "measured_precision_utilization": own}
    assert "21.5 % of fp8" in printed(ranking_table([fast], Objective()), 100)
    alike = item | {"measured_precision_utilization": item["measured"]["mfu"]}
    assert "of bf16" not in printed(ranking_table([alike], Objective()), 100)


def test_a_sweep_for_tokens_shows_their_rate_in_the_place_of_mfu() -> None:
    text = printed(ranking_table([ranked(1, 1.0, tied=True)], Objective(metric=Metric.TOKENS_PER_S)), 100)
    assert text.startswith("ranking by measured token rate")
    assert "token/s ± 12 %" in text
    assert "MFU" not in text


def test_an_interval_ends_at_the_peak_of_the_precision_not_at_that_of_the_reference() -> None:
    fast = predicted(1, mfu=0.9, precision_utilization=0.45, relative_error=0.5)
    assert "90.0 %, 60 to 135 %" in printed(prediction_table(predictions(fast), title="all"), 100)


def estimated_trial() -> dict[str, Any]:
    """A ranked trial that ran on two of eight ranks."""
    item = to_dict(ranking_page())["items"][0]
    small = to_dict(SmallTrialView.of(small_trial(), measurement()))
    return {**item, "measured": None, "small": small, "estimated": to_dict(Estimated.of(estimate()))}


def test_what_is_estimated_says_so_and_from_how_many_of_how_many_ranks() -> None:
    text = printed(ranking_table([estimated_trial()], Objective()), 200)
    assert "ranking by estimated MFU" in text
    assert "estimated from a trial on 2 of 8 ranks: ran tp2 mb1 math fp32, 4 layers" in text
    assert "parts that it ran as they are make 75 % of the step" in text
    assert "18.8 ± 2.3 %" in text
    assert "625 ms ± 12 %" in text
    assert "estimated from trials on fewer ranks, never measured, ± the 80 % interval" in text
    assert "ranking by measured" not in text


def test_a_line_of_a_small_trial_says_how_its_value_came_about() -> None:
    line = reached_beside_predicted(estimated_trial(), Objective(metric=Metric.TOKENS_PER_S))
    assert line.startswith("token rate 819 token/s ± 12 % estimated from a trial on 2 of 8 ranks, ")


def faulty_trial(**changes: Any) -> dict[str, Any]:
    """Return a trial of 43 % healthy MFU that ran at half the speed under its sweep's fault trace."""
    item: dict[str, Any] = to_dict(ranking_page())["items"][0]
    healthy = item["measured"]
    robust = {
        "step_time_s": 2 * healthy["step_time_s"],
        "mfu": healthy["mfu"] / 2,
        "tokens_per_s": healthy["tokens_per_s"] / 2,
        "num_steps": 20,
        "stretches": [],
    }
    expected = item["predicted"]
    slowed = {"robust_step_s": 4 * expected["step_time_s"], "robust_mfu": expected["mfu"] / 4}
    return item | {"measured": healthy | {"robust": robust}, "predicted": expected | slowed} | changes


def test_under_a_fault_trace_rows_and_brackets_of_the_ranking_hold_the_robust_mfu() -> None:
    text = printed(ranking_table([faulty_trial()], Objective(under_faults=True)), 120)
    assert "21.5 %" in text  # half of the 43.0 % that its healthy steps measured
    assert "(11.8 ± 1.4 %)" in text  # a quarter of the 47.0 ± 5.6 % that its healthy steps were predicted
    assert "43.0" not in text
    assert "47.0" not in text


def test_under_a_fault_trace_the_line_of_a_trial_holds_the_robust_rates() -> None:
    line = reached_beside_predicted(faulty_trial(), Objective(under_faults=True))
    assert line == "robust MFU 21.5 % measured, 11.8 ± 1.4 % predicted"
    item = faulty_trial()
    rate = reached_beside_predicted(item, Objective(metric=Metric.TOKENS_PER_S, under_faults=True))
    halved = item["measured"] | {"tokens_per_s": item["measured"]["tokens_per_s"] / 2}
    quartered = item["predicted"] | {"tokens_per_s": item["predicted"]["tokens_per_s"] / 4}
    healthy = reached_beside_predicted(
        item | {"measured": halved, "predicted": quartered}, Objective(metric=Metric.TOKENS_PER_S)
    )
    assert rate.removeprefix("robust ") == healthy


def test_under_a_fault_trace_the_share_of_a_precisions_own_peak_is_robust_too() -> None:
    item = faulty_trial(measured_precision_utilization=0.25)
    assert "12.5 % of" in printed(ranking_table([item], Objective(under_faults=True)), 120)
    assert "25.0 % of" in printed(ranking_table([item], Objective()), 120)
