from __future__ import annotations

import pytest

from api.dashboard import words
from api.dashboard.scatter import scatter
from api.views import trial_view
from autotuner.domain.choice import Recompute, ShardLevel
from autotuner.domain.layout import Layout
from autotuner.store.memory import MemoryStore
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, failure, measurement


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (cpu_layout(), "one rank · micro-batch 1 · fp32 · math attention"),
        (
            cpu_layout(tensor_parallel_degree=2, sequence_parallel=True, recompute=Recompute.FULL),
            "tensor 2 · micro-batch 1 · sequence parallel · recompute full · fp32 · math attention",
        ),
        (
            Layout(
                pipeline_parallel_degree=4,
                data_parallel_replicate_degree=2,
                data_parallel_shard_degree=8,
                shard_level=ShardLevel.PARAMETERS,
                reshard_after_forward=True,
                micro_batch_size=2,
            ),
            "pipeline 4 · data 2 · fully sharded data 8 · schedule 1f1b · micro-batch 2 · reshard after forward · "
            "bf16 · flash attention",
        ),
    ],
)
def test_a_layout_is_said_in_words(layout: Layout, text: str) -> None:
    assert words.in_words(layout) == text


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_unknown_is_a_dash(value: float | None) -> None:
    assert {words.percent(value), words.seconds(value), words.num_bytes(value), words.token_rate(value)} == {"–"}


def test_an_unknown_error_is_called_unvalidated() -> None:
    assert words.expected_error(None) == "unvalidated"
    assert words.expected_error(0.124) == "± 12 %"


@pytest.mark.parametrize(("value", "text"), [(0.2, "0 s"), (59.6, "1 min"), (3725.0, "1 h 2 min 5 s")])
def test_a_duration_is_said_in_hours_minutes_and_seconds(value: float, text: str) -> None:
    assert words.duration(value) == text


def test_a_right_prediction_lies_on_the_diagonal_inside_the_picture() -> None:
    driver = StoreDriver(store=MemoryStore())
    sweep = driver.sweep()
    trials = [driver.ended(sweep, 0, measurement(mfu=0.4)), driver.ended(sweep, 1, measurement(mfu=0.2))]
    picture = scatter([trial_view(trial) for trial in trials])
    assert picture is not None
    right, slow = picture.points  # both predicted at 0.4
    assert right.x == 100 - right.y
    assert slow.y > right.y
    assert [mark.mfu for mark in picture.marks] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert all(0 <= value <= 100 for point in picture.points for value in (point.x, point.y))


def test_without_a_measurement_there_is_no_picture() -> None:
    driver = StoreDriver(store=MemoryStore())
    failed = driver.ended(driver.sweep(), 0, failure())
    assert scatter([]) is None
    assert scatter([trial_view(failed)]) is None
