from __future__ import annotations

import pytest

from autotuner.core.layouts.choice import GradientClip
from autotuner.core.runs.trial_spec import TrialSettings
from autotuner.errors import InvalidInput
from tests.builders import cpu_layout
from tests.trials.specs import trial_spec


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("warmup_steps", -1),
        ("max_warmup_steps", -1),
        ("measured_steps", 0),
        ("measuring_budget_s", 0.0),
        ("target_interval", -0.01),
        ("profiled_steps", -1),
        ("num_runs", 0),
        ("max_foreign_share", 1.5),
        ("timeout_s", 0.0),
        ("memory_budget_bytes", 0),
        ("max_gradient_norm", 0.0),
        ("proxy_layers_per_stage", (4,)),
        ("proxy_layers_per_stage", (4, 4)),
        ("proxy_layers_per_stage", (0, 2)),
    ],
)
def test_impossible_settings_are_refused_by_name(field: str, value: float | tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        TrialSettings(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("clip", [GradientClip.PRE, GradientClip.BUCKET])
def test_a_trial_that_clips_before_the_reduction_asks_for_a_norm(clip: GradientClip) -> None:
    layout = cpu_layout(data_parallel_replicate_degree=2, gradient_clip=clip)
    with pytest.raises(InvalidInput, match=f"must be set where clip {clip} is tried") as caught:
        trial_spec(layout)
    assert caught.value.field == "settings.max_gradient_norm"
    assert trial_spec(layout, settings=TrialSettings.default_for(layout)).settings.max_gradient_norm == 1.0
