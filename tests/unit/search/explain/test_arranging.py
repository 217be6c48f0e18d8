from __future__ import annotations

import pytest

from autotuner.core.choices import ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.workload import Workload
from autotuner.search.explain.arranging import arranged, nearest_legal, with_choice
from tests.builders import h100_cluster, llama_70b

JOB = Job(model=llama_70b(), cluster=h100_cluster(), workload=Workload(seq_len=8192, global_batch_size=1024))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("tp8 pp4 1f1b mb1 flash bf16", "dp2 tp8 pp4 1f1b mb1 flash bf16"),
        ("tp8 fsdp2 mb1 flash bf16", "fsdp8 tp8 mb1 flash bf16"),
        ("tp8 dp2 fsdp2 mb1 flash bf16", "dp4 fsdp2 tp8 mb1 flash bf16"),
        ("tp4 dp2 fsdp32 mb1 flash bf16", "fsdp16 tp4 mb1 flash bf16"),  # groups of 32 do not divide 16 ranks
        ("tp8 pp8 fsdp4 1f1b mb1 flash bf16", "tp8 pp8 1f1b mb1 flash bf16"),
        ("tp8 pp4 cp2 fsdp4 1f1b mb1 flash bf16", "fsdp1 tp8 cp2 pp4 1f1b mb1 flash bf16"),
    ],
)
def test_data_parallel_ranks_are_those_that_the_other_degrees_leave(given: str, expected: str) -> None:
    assert str(arranged(Layout.parse(given), JOB)) == str(Layout.parse(expected))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("tp1 sp dp64 mb1 flash bf16", "dp64 mb1 flash bf16"),
        ("pp1 v2 interleaved_1f1b dp64 mb1 flash bf16", "dp64 mb1 flash bf16"),
        ("pp4 interleaved_1f1b dp16 mb1 flash bf16", "dp16 pp4 v2 interleaved_1f1b mb1 flash bf16"),
        ("pp4 v5 zbv dp16 mb1 flash bf16", "dp16 pp4 v2 zbv mb1 flash bf16"),
        ("pp4 v5 1f1b dp16 mb1 flash bf16", "dp16 pp4 1f1b mb1 flash bf16"),
        ("dp64 mb1 reshard every2 rowwise flash bf16", "dp64 mb1 flash bf16"),
    ],
)
def test_what_means_nothing_beside_the_other_choices_is_gone(given: str, expected: str) -> None:
    assert str(arranged(Layout.parse(f"{given}".replace(" rowwise", "")), JOB)) == str(Layout.parse(expected))


def test_degrees_that_do_not_divide_the_ranks_are_left_to_the_rules() -> None:
    layout = arranged(Layout.parse("tp8 pp3 1f1b mb1 flash bf16"), JOB)
    assert "world-size" in [reason.rule for reason in reasons(layout, JOB)]


def test_a_layout_that_is_arranged_is_so_already() -> None:
    layout = arranged(Layout.parse("dp2 fsdp4 tp8 mb1 flash bf16"), JOB)
    assert arranged(layout, JOB) == layout


def test_sharding_among_fewer_ranks_makes_groups_of_them() -> None:
    layout = arranged(Layout.parse("fsdp8 tp8 mb1 flash bf16"), JOB)
    grouped = arranged(with_choice(layout, "data_parallel_shard_degree", 2), JOB)
    assert (grouped.data_parallel_replicate_degree, grouped.data_parallel_shard_degree) == (4, 2)
    assert grouped.shard_level is ShardLevel.PARAMETERS


@pytest.mark.parametrize("given", ["tp16 pp4 1f1b mb1 flash bf16", "tp8 pp3 1f1b mb5 flash bf16", "mb1 flash_3 fp32"])
def test_a_layout_near_one_that_cannot_run_can(given: str) -> None:
    layout = arranged(Layout.parse(given), JOB)
    assert reasons(layout, JOB)
    near = nearest_legal(layout, JOB)
    assert near is not None
    assert reasons(near, JOB) == ()


def test_a_layout_that_can_run_is_nearest_to_itself() -> None:
    layout = arranged(Layout.parse("dp8 tp8 mb1 flash bf16"), JOB)
    assert nearest_legal(layout, JOB) == layout


def test_only_the_degree_that_is_wrong_is_changed() -> None:
    near = nearest_legal(arranged(Layout.parse("tp16 pp2 1f1b mb2 recompute-full flash bf16"), JOB), JOB)
    assert str(near) == "dp4 tp8 pp2 1f1b mb2 recompute-full flash bf16"
