from __future__ import annotations

from dataclasses import replace

from api.dashboard.charts.stage_memory import MEMORY_PARTS, StageBar, stage_memory
from tests.api.dashboard.charts.drawn import one
from tests.builders import prediction

MEMORY = prediction().memory


def test_each_part_is_a_block_and_the_allowance_is_hatched() -> None:
    bar = StageBar(name="stage 0", parts=dict.fromkeys(MEMORY_PARTS, 1e9))
    drawn = stage_memory([bar], 10e9)
    for part in MEMORY_PARTS[:-1]:
        assert f'class="{part}"' in drawn
    assert 'class="hatch"' in drawn


def test_a_bar_says_what_is_left_below_the_limit_and_what_lies_above_it() -> None:
    bars = [StageBar(name=f"stage {i}", parts={"parameters": size}) for i, size in enumerate((6e9, 12e9))]
    drawn = stage_memory(bars, 10e9)
    assert "4 GB free" in drawn
    assert "2 GB over" in drawn
    assert "the fullest 12 GB of 10 GB" in drawn


def test_a_limit_that_no_bar_comes_near_is_left_out_of_the_axis() -> None:
    small = StageBar(name="stage 0", parts={"parameters": 5e6})
    assert "limit" not in stage_memory([small], 4e9)
    assert "MB" in stage_memory([small], 4e9)


def test_a_measured_peak_stands_on_the_predicted_parts() -> None:
    bar = StageBar.of("stage 0", MEMORY, measured_bytes=0.9 * MEMORY.total_bytes)
    drawn = stage_memory([bar], 2 * MEMORY.total_bytes)
    assert 'class="mark"' in drawn
    assert "mark" not in stage_memory([replace(bar, measured_bytes=None)], 2 * MEMORY.total_bytes)


def test_a_measured_peak_at_the_end_of_the_axis_is_named_before_its_mark_and_not_over_what_is_free() -> None:
    bars = [StageBar(name="stage 0", parts={"parameters": 5e9}, measured_bytes=size) for size in (5e9, 10e9)]
    inside, at_end = (one(stage_memory([bar], 10e9, wide=632), "strong halo") for bar in bars)
    assert inside.get("text-anchor") is None
    assert at_end.get("text-anchor") == "end"
