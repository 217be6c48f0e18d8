from __future__ import annotations

from markupsafe import Markup

from api.dashboard.charts.spread import Spread
from api.dashboard.charts.step_bars import step_bars
from autotuner.search.explain.step_parts import PartKind, StepPart, StepParts
from tests.api.dashboard.charts.drawn import each, number, words


def part(name: str, kind: PartKind, predicted_s: float | None, measured_s: float | None) -> StepPart:
    return StepPart(name=name, kind=kind, predicted_s=predicted_s, measured_s=measured_s, limit="")


def step(*parts: StepPart) -> StepParts:
    measured = [one.measured_s for one in parts if one.measured_s is not None]
    return StepParts(
        parts=parts,
        predicted_s=sum(one.predicted_s or 0.0 for one in parts),
        measured_s=sum(measured) if measured else None,
        recompute_s=0.0,
        rank=0 if measured else None,
    )


BOTH = step(
    part("forward", "forward", 40.0, 42.0),
    part("backward", "backward", 90.0, 80.0),
    part("pipeline idle", "idle", 2.0, 3.0),
    part("anything else", "other", None, 1.0),
)


def drawn(parts: StepParts, reached: Spread | None = None) -> Markup:
    predicted = Spread.within_factor(parts.predicted_s, 0.2)
    return step_bars(parts, predicted=predicted, reached=reached, reached_name="simulated")


def test_measured_blocks_are_ink_and_predicted_ones_pencil_on_one_axis() -> None:
    picture = drawn(BOTH)
    pencilled, both = list(each(picture, "backward pencilled")), list(each(picture, "backward"))
    assert (len(pencilled), len(both)) == (2, 4)  # for a desk and for a phone
    per_second = [number(block, "width") / seconds for block, seconds in zip(both[:2], (90.0, 80.0), strict=True)]
    assert abs(per_second[0] - per_second[1]) < 0.01  # a tenth of a pixel of rounding


def test_what_idles_is_hatched_and_what_no_law_explains_has_no_predicted_block() -> None:
    picture = drawn(BOTH)
    assert len(list(each(picture, "idle"))) == 4
    assert len(list(each(picture, "other"))) == 2
    assert not list(each(picture, "other pencilled"))


def test_a_block_says_its_name_and_seconds_where_they_fit() -> None:
    told = words(drawn(BOTH))
    assert "backward 80 s" in told
    assert "simulated" in told
    assert not any("anything else" in text for text in told)


def test_a_prediction_alone_is_one_bar_with_its_interval() -> None:
    alone = step(part("forward", "forward", 40.0, None), part("backward", "backward", 90.0, None))
    picture = drawn(alone)
    assert len(list(each(picture, "forward"))) == len(list(each(picture, "forward pencilled"))) == 2
    assert list(each(picture, "p-band"))
    assert "A step by part on one axis: predicted 130 s" in picture


def test_the_interval_of_the_timed_steps_is_a_whisker_below() -> None:
    assert not list(each(drawn(BOTH), "m-line"))
    assert len(list(each(drawn(BOTH, Spread.within(126.0, 1.0)), "m-line"))) == 2
