from __future__ import annotations

import re
from dataclasses import replace

from markupsafe import Markup

from api.dashboard.charts.timeline import timeline_picture
from api.dashboard.charts.window import WHOLE, Window
from autotuner.domain.layouts.choice import PipelineSchedule, ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.timeline import Fold, RankTimeline, StepTimeline
from autotuner.search.explain.timeline import predicted_timeline
from tests.builders import big_job

LAYOUT = Layout(
    tensor_parallel_degree=8,
    pipeline_parallel_degree=4,
    data_parallel_shard_degree=2,
    shard_level=ShardLevel.OPTIMIZER,
    sequence_parallel=True,
)
PREDICTED = predicted_timeline(LAYOUT, big_job()).timeline


def stretched(timeline: StepTimeline, factor: float) -> StepTimeline:
    """The same step as if all took so much longer."""

    def rank(one: RankTimeline) -> RankTimeline:
        return replace(
            one,
            start_s=tuple(factor * seconds for seconds in one.start_s),
            end_s=tuple(factor * seconds for seconds in one.end_s),
        )

    folds = tuple(replace(one, start_s=factor * one.start_s, end_s=factor * one.end_s) for one in timeline.folds)
    return replace(timeline, step_s=factor * timeline.step_s, ranks=tuple(map(rank, timeline.ranks)), folds=folds)


def drawn(window: Window = WHOLE) -> Markup:
    return timeline_picture(stretched(PREDICTED, 1.05), PREDICTED, window, is_measured=True)


def xs(picture: str, look: str) -> list[tuple[float, float]]:
    """Left end and width of every block of a look."""
    paths = re.findall(rf'<path d="([^"]*)" class="{look}"', picture)
    return [(float(x), float(wide)) for d in paths for x, wide in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)", d)]


def test_every_stage_has_a_lane_and_a_thin_predicted_one_under_it() -> None:
    picture = drawn()
    assert [f">stage {stage}<" in picture for stage in range(5)] == [True] * 4 + [False]
    assert len(re.findall('class="forward pencilled"', picture)) == 4
    assert ">predicted<" in picture


def test_its_name_says_what_it_shows_and_it_needs_no_style_and_no_id() -> None:
    picture = drawn()
    assert 'role="img"' in picture
    assert "Timeline of a measured step of" in picture
    assert "512 micro-batches" in picture
    assert "style=" not in picture
    assert " id=" not in picture


def test_micro_batches_are_numbered_from_one_where_the_number_fits() -> None:
    picture = drawn()
    assert ">1</text>" in picture
    assert ">512</text>" in picture
    assert ">0</text>" not in picture


def test_a_fold_is_a_zigzag_that_says_how_many_micro_batches_it_hides() -> None:
    (fold,) = PREDICTED.folds
    assert drawn().count('class="fold"') == 1
    assert f">{fold.num_micro_batches} micro-batches alike, " in drawn()


def test_blocks_lie_inside_the_picture_however_close_one_looks() -> None:
    for window in (WHOLE, Window(0.0, 0.1), Window(0.45, 0.55), Window(0.97, 1.0)):
        blocks = xs(drawn(window), "forward") + xs(drawn(window), "backward") + xs(drawn(window), "idle")
        assert all(x >= 100 and x + wide <= 1296 - 10 for x, wide in blocks)


def test_looking_closer_makes_a_block_as_much_wider() -> None:
    whole, close = xs(drawn(), "forward")[0], xs(drawn(Window(0.0, 0.25)), "forward")[0]
    assert close[0] == whole[0]
    assert 3.9 < close[1] / whole[1] < 4.2  # four times, and the hair between blocks stays


def test_idle_time_is_hatched_and_nothing_else_lies_there() -> None:
    picture = timeline_picture(PREDICTED, None, is_measured=False)
    idle = re.findall(r'<path d="([^"]*)" class="idle"', picture)
    assert len(idle) == 4
    assert picture.count('class="hatch"') == 4


def test_a_step_that_folds_elsewhere_is_not_drawn_under_another() -> None:
    otherwise = replace(PREDICTED, folds=(*PREDICTED.folds, Fold(start_s=152.8, end_s=152.9, num_micro_batches=4)))
    assert "pencilled" not in timeline_picture(PREDICTED, otherwise, is_measured=True)


def test_without_a_pipeline_lanes_are_ranks() -> None:
    alone = replace(LAYOUT, pipeline_parallel_degree=1, data_parallel_shard_degree=8)
    picture = timeline_picture(predicted_timeline(alone, big_job()).timeline, None, is_measured=False)
    assert ">rank 0<" in picture


def test_the_picture_of_sixteen_stages_weighs_less_than_100_kb() -> None:
    deep = replace(
        LAYOUT,
        tensor_parallel_degree=4,
        pipeline_parallel_degree=16,
        data_parallel_shard_degree=1,
        shard_level=ShardLevel.NONE,
    )
    assert len(timeline_picture(predicted_timeline(deep, big_job()).timeline, None, is_measured=False)) < 100_000


def test_later_stages_of_a_rank_are_told_from_its_first() -> None:
    interleaved = replace(LAYOUT, pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B, virtual_stages_per_rank=2)
    picture = timeline_picture(predicted_timeline(interleaved, big_job()).timeline, None, is_measured=False)
    assert 'class="forward later"' in picture
    assert ">stages 0, 4<" in picture
