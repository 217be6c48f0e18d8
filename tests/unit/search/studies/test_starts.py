from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.study import OptimizerSpace
from autotuner.core.trial_spec import OptimizerName
from autotuner.search.studies.starts import Scale, starts_of
from tests.builders import cpu_layout
from tests.studies import study_request


def test_batches_that_do_not_divide_are_left_out_with_the_rule_that_they_break() -> None:
    space = OptimizerSpace(global_batch_sizes=(6, 16), data_parallel_degrees=(1, 2))
    starts = starts_of(study_request(space=space))
    legal = (
        Scale(global_batch_size=16, data_parallel_degree=1),
        Scale(global_batch_size=16, data_parallel_degree=2),
    )
    assert starts.scales == dict.fromkeys(OptimizerName, legal)
    assert len(starts.refusals) == 2


def test_lamb_is_left_out_with_its_reason_where_tensors_are_split() -> None:
    split = cpu_layout(tensor_parallel_degree=2, micro_batch_size=4)
    starts = starts_of(study_request(layout=split))
    assert OptimizerName.LAMB not in starts.scales
    assert starts.refusals[0].startswith("lamb: LAMB takes a step as long as")


def test_a_space_of_which_nothing_can_be_tried_is_refused() -> None:
    with pytest.raises(InvalidInput, match="holds nothing that can be tried"):
        starts_of(study_request(space=OptimizerSpace(global_batch_sizes=(7,))))
