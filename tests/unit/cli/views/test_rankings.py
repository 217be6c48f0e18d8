from __future__ import annotations

import re
from typing import Any

from api import examples
from autotuner.cli.views.rankings import prediction_table, ranking_table
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.wire import to_dict
from tests.builders import measurement
from tests.unit.cli.views.printed import predicted, printed


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


def test_the_ranking_has_the_prediction_with_its_interval_under_the_measurement() -> None:
    lines = printed(ranking_table(to_dict(examples.ranking_page())["items"]), 100).splitlines()
    at = next(index for index, line in enumerate(lines) if "43.0 %" in line)
    assert "(47.0 ± 5.6 %)  (4.65 s ± 12 %)  (40.5 GB)" in lines[at + 1]


def test_the_ranking_says_what_was_extrapolated_or_disturbed_and_how_far_equal_runs_differ() -> None:
    item: dict[str, Any] = to_dict(examples.ranking_page())["items"][0]
    careful = to_dict(measurement(noise_floor=0.02, num_disturbed=1, extrapolated_from=(2, 4)))
    text = " ".join(printed(ranking_table([item | {"measured": careful}]), 200).split())
    assert "Equal runs differ by up to 2 %. 1 extrapolated from fewer layers. 1 disturbed runs thrown away." in text
    assert "Equal runs" not in printed(ranking_table([item | {"measured": to_dict(measurement())}]), 200)


def test_one_wide_interval_has_the_whole_column_written_by_its_ends() -> None:
    items = [predicted(1), predicted(2, Layout(), relative_error=0.5)]
    text = printed(prediction_table(items, title="all"), 160)
    assert "40.0 %, 36 to 45 %" in text
    assert "40.0 %, 27 to 60 %" in text
    assert "40.0 ±" not in text


def test_what_does_not_fit_is_given_by_how_likely_it_is_to() -> None:
    cell = printed(prediction_table([predicted(1, fits=False, fit_probability=0.001)], title="all"), 160)
    assert "<1 %" in cell
    assert "does not fit" not in cell


def test_a_measured_step_and_its_prediction_have_intervals_in_one_unit() -> None:
    item: dict[str, Any] = to_dict(examples.ranking_page())["items"][0]
    measured = to_dict(measurement(step_time_s=0.5, step_time_interval_s=0.0125))
    text = printed(ranking_table([item | {"measured": measured}]), 200)
    assert "500 ms ± 2.5 %" in text
