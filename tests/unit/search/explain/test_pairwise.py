from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import AttentionKernel, Recompute, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.search.explain.pairwise import Insight, MeasuredLayouts, insights

BASE = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=2, data_parallel_replicate_degree=8)


def measured(*runs: tuple[Layout, float]) -> MeasuredLayouts:
    return LayoutColumns.from_layouts(layout for layout, _ in runs), np.array([seconds for _, seconds in runs])


def statement(found: tuple[Insight, ...], subject: str, before: str = "", after: str = "") -> Insight:
    (one,) = [i for i in found if (i.subject, i.before, i.after) == (subject, before, after)]
    return one


def test_a_pair_that_differs_in_one_choice_states_the_throughput_gained() -> None:
    full = replace(BASE, recompute=Recompute.FULL)
    one = statement(insights([measured((full, 1.3), (BASE, 1.0))]), "recompute", "full", "none")
    assert (one.num_pairs, one.num_faster) == (1, 1)
    assert one.median_gain == one.least_gain == one.greatest_gain == pytest.approx(0.3)  # 1.3 / 1.0 in binary
    assert one.statement == "recompute full → none: +30.0 % throughput, one pair"


def test_many_pairs_state_count_median_and_range() -> None:
    runs = []
    for size, gain in ((1, 1.1), (2, 1.2), (4, 0.9)):
        plain = replace(BASE, micro_batch_size=size, fused_norm=False)
        runs += [(plain, gain), (replace(plain, fused_norm=True), 1.0)]
    one = statement(insights([measured(*runs)]), "fused norm", "off", "on")
    assert one.statement == (
        "fused norm off → on: +10.0 % throughput in the median of 3 pairs (−10.0 % to +20.0 %), faster in 2 of them"
    )


def test_layouts_that_differ_in_two_choices_make_no_pair() -> None:
    other = replace(BASE, recompute=Recompute.FULL, micro_batch_size=2)
    assert not [i for i in insights([measured((BASE, 1.0), (other, 2.0))]) if i.num_pairs]


def test_pairs_are_made_inside_a_job_and_counted_over_all() -> None:
    full = replace(BASE, recompute=Recompute.FULL)
    apart = insights([measured((full, 1.3)), measured((BASE, 1.0))])
    assert not [i for i in apart if i.num_pairs]
    together = insights([measured((full, 1.3), (BASE, 1.0)), measured((full, 12.0), (BASE, 10.0))])
    assert statement(together, "recompute", "full", "none").num_pairs == 2


def test_ranks_that_move_from_tensor_to_pipeline_are_one_subject_whatever_their_number() -> None:
    runs = [
        (replace(BASE, tensor_parallel_degree=tensor, pipeline_parallel_degree=8 // tensor), seconds)
        for tensor, seconds in ((8, 1.44), (4, 1.2), (2, 1.0))
    ]
    one = statement(insights([measured(*runs)]), "tensor → pipeline")
    assert (one.num_pairs, one.num_faster) == (2, 2)  # each split against the next, not 8 against 2
    assert one.median_gain == pytest.approx(0.2)  # 1.44 / 1.2 and 1.2 / 1.0 in binary


def test_a_number_is_compared_with_the_next_one_that_was_measured() -> None:
    sizes = insights([measured(*((replace(BASE, micro_batch_size=size), 1.0 / size) for size in (4, 1, 2)))])
    assert {(i.before, i.after) for i in sizes if i.subject == "micro-batch"} == {("1", "2"), ("2", "4")}


def test_kernels_are_compared_two_by_two_the_older_first() -> None:
    kernels = (AttentionKernel.FLASH, AttentionKernel.FLASH_1, AttentionKernel.MATH)
    found = insights([measured(*((replace(BASE, attention_kernel=kernel), 1.0) for kernel in kernels))])
    assert {(i.before, i.after) for i in found if i.subject == "attention"} == {
        ("math", "flash"),
        ("math", "flash 1"),
        ("flash 1", "flash"),
    }


def test_the_same_replicas_sharded_otherwise_are_a_pair() -> None:
    sharded = replace(
        BASE, data_parallel_replicate_degree=1, data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS
    )
    assert statement(insights([measured((BASE, 1.0), (sharded, 2.0))]), "sharding", "none", "parameters").num_pairs == 1


def test_a_layout_measured_twice_counts_once_by_its_median() -> None:
    full = replace(BASE, recompute=Recompute.FULL)
    one = statement(insights([measured((full, 1.4), (BASE, 1.0), (full, 1.2))]), "recompute", "full", "none")
    assert one.num_pairs == 1
    assert one.median_gain == pytest.approx(0.3)  # the mean of 1.2 and 1.4 in binary


def test_runs_without_a_time_make_no_pair() -> None:
    full = replace(BASE, recompute=Recompute.FULL)
    assert not [i for i in insights([measured((full, float("nan")), (BASE, 1.0))]) if i.num_pairs]


def test_the_six_subjects_of_the_paper_are_answered_even_without_a_measurement() -> None:
    found = insights([])
    assert [i.subject for i in found] == [
        "recompute",
        "fused norm",
        "attention",
        "micro-batch",
        "tensor → pipeline",
        "sequence parallel",
    ]
    assert {i.num_pairs for i in found} == {0}
    assert all(i.median_gain is None and "no pairs" in i.statement for i in found)
    assert insights([measured()]) == found
