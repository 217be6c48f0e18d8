from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.layout import OPTIONS
from autotuner.search.results.axis import AXES, axis_named, varied
from tests.unit.search.results.trials import BASE


def test_every_field_of_a_layout_is_on_some_axis() -> None:
    told_by_dp_and_sharding = {"data_parallel_replicate_degree", "data_parallel_shard_degree", "shard_level"}
    by_letters = {"tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree"}
    by_letters |= {"expert_parallel_degree", "micro_batch_size"}
    assert set(OPTIONS) - told_by_dp_and_sharding - by_letters == set(list(AXES)[7:])


def test_every_value_of_a_choice_has_its_place() -> None:
    for name, axis in AXES.items():
        if name in OPTIONS and not OPTIONS[name].is_number:
            values = [axis.read(replace(BASE, **{name: value})) for value in OPTIONS[name].values]  # type: ignore[arg-type]
            assert set(axis.in_order(values)) == set(axis.words)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tp", "tp 4"),
        ("dp", "dp 8"),
        ("sharding", "sharding none"),
        ("recompute", "recompute none"),
        ("sequence_parallel", "sequence parallel off"),
        ("first_stage_less_layers", "a first stage like the others"),
        ("recompute_every", "recompute interval 1"),
    ],
)
def test_a_choice_is_said_with_its_value(name: str, said: str) -> None:
    axis = axis_named(name)
    assert axis.said(axis.read(BASE)) == said


def test_replicas_that_are_sharded_in_groups_differ_from_those_that_are_sharded_whole() -> None:
    whole = replace(
        BASE, data_parallel_replicate_degree=1, data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS
    )
    groups = replace(whole, data_parallel_replicate_degree=2, data_parallel_shard_degree=4)
    assert [axis.name for axis in varied([whole, groups])] == ["sharding"]
    assert (axis_named("sharding").read(whole), axis_named("sharding").read(groups)) == ("FSDP", "FSDP in groups")


def test_values_come_from_the_plainest_and_numbers_from_the_least() -> None:
    full = replace(BASE, recompute=Recompute.FULL)
    assert axis_named("recompute").in_order(["none", axis_named("recompute").read(full)]) == ("full", "none")
    assert axis_named("mb").in_order([16, 2, 4, 2]) == (2, 4, 16)
