from __future__ import annotations

from dataclasses import fields

import pytest

from api.dashboard.new_sweep.inputs import INPUTS
from autotuner.core.convergence_gate import LossGate
from autotuner.core.sweep import Budget
from autotuner.core.trial_spec import TrialSettings


@pytest.mark.parametrize(
    ("path", "typed", "in_body"),
    [
        ("budget.wall_clock_s", "30", 1800.0),
        ("budget.min_gain", "2.5", 0.025),
        ("workload.seq_len", "8,192", 8192),
        ("trial.memory_budget_bytes", "40", 40_000_000_000),
        ("trial.proxy_layers_per_stage", "1, 2", [1, 2]),
        ("loss_gate.enabled", "on", True),
        ("name", "30", "30"),
    ],
)
def test_what_is_typed_is_read_in_the_units_of_the_body_and_shown_again(path: str, typed: str, in_body: object) -> None:
    one = INPUTS[path]
    assert one.read(typed) == in_body
    assert one.read(one.shown(in_body)) == in_body


@pytest.mark.parametrize("text", ["many", "1.5.2", "1e", "½"])
def test_what_is_no_number_stays_as_it_was_typed(text: str) -> None:
    assert [INPUTS[path].read(text) for path in ("budget.num_trials", "budget.wall_clock_s")] == [text, text]


@pytest.mark.parametrize(("prefix", "cls"), [("budget", Budget), ("trial", TrialSettings), ("loss_gate", LossGate)])
def test_every_setting_has_an_input_that_shows_its_default(prefix: str, cls: type[object]) -> None:
    for each in fields(cls):  # type: ignore[arg-type]  # each of these is a dataclass
        one = INPUTS[f"{prefix}.{each.name}"]
        assert one.default == each.default
        if one.shown_default:
            assert one.read(one.shown_default) == each.default
