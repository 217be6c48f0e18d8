from __future__ import annotations

from dataclasses import replace

from api.dashboard.charts.window import WHOLE, Window
from api.dashboard.views.timelines import Shown, TimelineView, timeline_view
from autotuner.domain.runs.timeline import StepTimeline
from autotuner.search.explain.timeline import PredictedTimeline, predicted_timeline
from tests.api.dashboard.charts.test_timeline import LAYOUT, PREDICTED, stretched
from tests.builders import big_job

EXPECTED: PredictedTimeline = predicted_timeline(LAYOUT, big_job())
MEASURED: StepTimeline = stretched(PREDICTED, 1.05)


def address(shown: Shown, window: Window) -> str:
    return f"?timeline={shown}&zoom={window}"


def view(measured: StepTimeline | None, shown: Shown = "both", window: Window = WHOLE) -> TimelineView:
    found = timeline_view(EXPECTED, measured, address, shown=shown, window=window)
    assert found is not None
    return found


def test_there_is_no_view_of_nothing() -> None:
    assert timeline_view(None, None, address, window=WHOLE) is None


def test_a_prediction_alone_is_drawn_thick_and_says_that_it_is_one() -> None:
    found = view(None)
    assert found.choices == ()
    assert "pencilled" not in found.picture
    assert "Predicted by the schedule simulator" in found.caption
    assert all(not row.is_measured for row in found.rows)


def test_beside_a_measurement_one_may_look_at_either_or_both() -> None:
    assert [(link.name, link.is_on) for link in view(MEASURED).choices] == [
        ("Both", True),
        ("Measured", False),
        ("Predicted", False),
    ]
    assert [row.is_measured for row in view(MEASURED).rows] == [True] * 4 + [False] * 4
    assert [row.is_measured for row in view(MEASURED, "measured").rows] == [True] * 4
    assert [row.is_measured for row in view(MEASURED, "predicted").rows] == [False] * 4


def test_every_lane_tells_its_seconds_and_parts_that_nobody_has_are_no_column() -> None:
    found = view(None)
    assert found.heads == ("forward", "backward", "send", "gradient sync", "optimizer", "idle")
    assert found.rows[0].name == "rank 0, pipeline rank 0"
    assert found.rows[0].cells[0] == "51.9 s"


def test_the_key_names_each_colour_once() -> None:
    assert dict(view(None).key) == {
        "forward": "forward",
        "backward": "backward",
        "communication": "send, gradient sync",
        "optimizer": "optimizer",
        "idle": "idle",
    }


def test_ways_to_look_elsewhere_keep_what_is_shown_and_lead_somewhere() -> None:
    assert [link.name for link in view(None).moves] == ["Closer"]
    moves = {link.name: link.address for link in view(MEASURED, "measured", Window(0.25, 0.5)).moves}
    assert moves == {
        "Closer": "?timeline=measured&zoom=0.3125-0.4375",
        "Farther": "?timeline=measured&zoom=0.125-0.625",
        "Earlier": "?timeline=measured&zoom=0.125-0.375",
        "Later": "?timeline=measured&zoom=0.375-0.625",
        "Whole step": "?timeline=measured&zoom=0-1",
    }


def test_it_says_how_far_simulator_and_prediction_lie_apart_where_anybody_could_tell() -> None:
    assert "simulated step is" not in view(None).caption
    apart = replace(EXPECTED, apart=-0.023)
    found = timeline_view(apart, None, address, window=WHOLE)
    assert found is not None
    assert "The simulated step is 2 % shorter than the predicted one." in found.caption


def test_a_deep_pipeline_says_that_its_middle_is_left_out() -> None:
    ends = replace(PREDICTED, ranks=(PREDICTED.ranks[0], PREDICTED.ranks[-1]))
    found = timeline_view(replace(EXPECTED, timeline=ends), None, address, window=WHOLE)
    assert found is not None
    assert "Shown are the first and the last 1 pipeline ranks." in found.caption
    assert "first and the last" not in view(None).caption
