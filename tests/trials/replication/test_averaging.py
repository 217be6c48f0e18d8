from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from autotuner.core.errors import InvalidInput
from trials.replication.averaging import ParameterAverager


def test_a_period_of_no_steps_is_refused(alone: dist.ProcessGroup) -> None:
    with pytest.raises(InvalidInput) as refused:
        ParameterAverager([torch.zeros(2)], alone, period=0)
    assert (refused.value.field, refused.value.nearest) == ("period", 1)


def test_the_average_of_one_replica_is_itself(alone: dist.ProcessGroup) -> None:
    held = torch.zeros(3)
    averager = ParameterAverager([held], alone, period=1)
    held.add_(torch.tensor([1.0, -2.0, 0.25]))
    assert averager.after_step()
    assert held.tolist() == [1.0, -2.0, 0.25]
    assert averager.payload_bytes == 0


def test_an_averager_goes_on_from_saved_anchors_and_steps(alone: dist.ProcessGroup) -> None:
    first, second = (ParameterAverager([torch.full((3,), start)], alone, period=2) for start in (1.0, 5.0))
    first.after_step()
    second.load_state_dict(first.state_dict())
    assert second.state_dict()["anchors"][0].tolist() == [1.0] * 3
    assert second.after_step()


def test_anchors_of_other_parameters_are_refused(alone: dist.ProcessGroup) -> None:
    averager = ParameterAverager([torch.zeros(3)], alone)
    with pytest.raises(InvalidInput, match="shapes"):
        averager.load_state_dict({"anchors": [torch.zeros(1)], "num_steps": 0})
