from __future__ import annotations

import re

from api.dashboard.views.address import Address
from api.dashboard.views.metric_front import MetricFrontView
from autotuner.domain.runs.metric import Metric
from tests.builders import big_job, sweep_request
from tests.unit.search.results.test_front import FAST, FRUGAL, MIDDLE, REQUEST, WORSE

TRIALS = (FAST, MIDDLE, FRUGAL, WORSE)


def looked(**chosen: str) -> MetricFrontView:
    found = MetricFrontView.of(REQUEST, TRIALS, Address(chosen=tuple(chosen.items())))
    assert found is not None
    return found


def test_a_sweep_that_asked_for_no_front_shows_one_only_where_the_address_does() -> None:
    request = sweep_request(job=big_job())
    assert MetricFrontView.of(request, TRIALS, Address()) is None
    asked = MetricFrontView.of(request, TRIALS, Address(chosen=(("metrics", "mfu,tokens_per_joule"),)))
    assert asked is not None
    assert len(asked.rows) == 3


def test_the_first_metric_is_drawn_against_each_other_one() -> None:
    assert len(looked().pictures) == 1
    more = looked(metrics="mfu,tokens_per_joule,simplicity")
    assert len(more.pictures) == 2
    assert "MFU against simplicity: 4 layouts with a result" in more.pictures[1]


def test_the_front_is_in_ink_with_steps_between_and_what_is_behind_is_dim() -> None:
    (drawn,) = looked().pictures
    wide = drawn.split("hide-wide")[0]
    assert wide.count('class="m-dot"') + wide.count('class="m-dot win"') == 3
    assert wide.count('class="m-dot soft"') == 1
    assert wide.count('class="m-front"') == 1
    assert re.search(r"trial 3: 18\.2 % MFU, 0\.227 token/J", wide)


def test_the_weights_of_the_address_choose_what_is_green_and_stay_chosen() -> None:
    fast, frugal = looked(profile="mfu=4"), looked(profile="mfu=0.5,tokens_per_joule=4")
    assert [[row.point.is_first for row in view.rows] for view in (fast, frugal)] == [
        [True, False, False],
        [False, False, True],
    ]
    energy = next(choice for choice in frugal.choices if choice.metric is Metric.TOKENS_PER_JOULE)
    assert [said for _, said, is_it in energy.weights if is_it] == ["4"]


def test_a_weight_that_no_form_offers_is_offered_where_the_address_says_it() -> None:
    choice = looked(profile="mfu=7").choices[0]
    assert ("mfu=7", "7", True) in choice.weights


def test_what_an_address_cannot_ask_for_is_said_beside_the_choices() -> None:
    found = looked(metrics="mfu,tokens_per_dollar")
    assert found.front is None
    assert "price_per_accelerator_hour" in found.refused
    assert [choice.metric for choice in found.choices] == [
        *(Metric.MFU, Metric.TOKENS_PER_S, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    ]


def test_values_stand_with_their_units_and_without_the_names_of_their_columns() -> None:
    assert looked().rows[0].values == ("40.0 %", "0.25 token/J")


def test_a_form_that_is_refused_keeps_what_was_chosen() -> None:
    found = looked(metrics="simplicity", profile="simplicity=4")
    assert found.refused.startswith("weights of simplicity: needs a rate")
    assert found.refused.endswith("nearest: mfu")
    (kept,) = (choice for choice in found.choices if choice.is_chosen)
    assert kept.metric is Metric.SIMPLICITY
    assert [said for _, said, is_it in kept.weights if is_it] == ["4"]
