from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.search.results.grid import grid, two_that_matter
from tests.builders import big_job, sweep_request
from tests.unit.search.results.trials import BASE, died, ran

REQUEST = sweep_request(job=big_job())
FULL = replace(BASE, recompute=Recompute.FULL)


def test_each_cell_has_the_best_of_its_trials() -> None:
    found = grid(REQUEST, [ran(0, FULL, 1.3), ran(1, FULL, 1.2), ran(2, BASE, 1.0)], "recompute", "mb")
    assert (found.rows, found.columns) == (("full", "none"), (1,))
    ((full,), (none,)) = found.cells
    assert (full.number, full.num_ranked) == (1, 2)
    assert full.mfu == pytest.approx(0.4 / 1.2)
    assert none.number == 2


def test_cells_without_a_result_tell_what_failed_from_what_was_not_tried() -> None:
    large = replace(FULL, micro_batch_size=2)
    found = grid(REQUEST, [ran(0, BASE, 1.0), died(1, large)], "recompute", "mb")
    ((untried, failed), (ranked, _)) = found.cells
    assert (untried.trial_id, untried.num_failed) == (None, 0)
    assert (failed.value, failed.trial_id, failed.num_failed) == (None, "sw-1-0001", 1)
    assert ranked.num_ranked == 1


def test_replicas_count_as_one_degree_and_sharding_as_one_choice() -> None:
    sharded = replace(
        BASE, data_parallel_replicate_degree=2, data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS
    )
    found = grid(REQUEST, [ran(0, BASE, 1.0), ran(1, sharded, 1.1)], "sharding", "dp")
    assert (found.rows, found.columns) == (("none", "FSDP in groups"), (8,))
    assert found.names == ("sharding",)


def test_a_choice_that_there_is_none_of_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="must be one of tp, pp, dp"):
        grid(REQUEST, [], "zp", "tp")


def test_the_two_choices_to_begin_with_are_those_that_matter_in_the_order_of_the_columns() -> None:
    layouts = [BASE, FULL, replace(BASE, micro_batch_size=2)]
    assert two_that_matter((), layouts) == ("mb", "recompute")
    assert two_that_matter((), []) == ("tp", "pp")
