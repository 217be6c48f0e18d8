"""What a sweep is refused for before it is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.convergence_gate import LossGate
from autotuner.core.errors import InvalidInput
from autotuner.core.trial_spec import TrialSettings
from autotuner.search.preview import require_layouts
from autotuner.search.space.legal import SpaceTooLarge
from tests.builders import sweep_request, tiny_job, tiny_model


def test_a_sweep_of_more_layouts_than_it_may_hold_is_refused_with_their_number() -> None:
    require_layouts(sweep_request())
    with pytest.raises(
        SpaceTooLarge, match=r"space = 'more than 2': legal layouts are more than .*; name fewer values"
    ):
        require_layouts(sweep_request(), most=2)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"trial": TrialSettings(timeout_s=1e30)}, "trial.timeout_s"),
        ({"trial": TrialSettings(num_runs=2**31 - 1)}, "trial.num_runs"),
        ({"trial": TrialSettings(measured_steps=2**31 - 1)}, "trial.measured_steps"),
        ({"loss_gate": LossGate(num_steps=2**31 - 1)}, "loss_gate.num_steps"),
        ({"max_parallel_trials": 2**31 - 1}, "max_parallel_trials"),
        ({"job": replace(tiny_job(2), model=tiny_model(num_layers=2**31 - 1, ffn_size=2**20))}, "model"),
    ],
)
def test_a_sweep_that_asks_for_what_is_beyond_use_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        require_layouts(sweep_request(**changes))
    assert refused.value.field == field
    assert refused.value.nearest is not None or "for one copy of its weights, and all of" in refused.value.rule
