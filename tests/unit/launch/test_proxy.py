from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown, Measurement
from autotuner.core.stages import stage_layers
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.fake import plain_measurement
from autotuner.launch.proxy import extrapolated, proxies
from tests.builders import cpu_layout, tiny_model
from tests.trials.launching import SHORT, spec

END_S, LAYER_S = 0.5, 0.25
END_BYTES, LAYER_BYTES = 1000, 300


def trial(layout: Layout | None = None, *, num_layers: int = 12, layers: tuple[int, ...] = (1, 2)) -> TrialSpec:
    settings = replace(SHORT, proxy_layers_per_stage=layers)
    return spec("t", settings, model=tiny_model(num_layers=num_layers), layout=layout or cpu_layout())


def depths(trial: TrialSpec) -> tuple[int, ...]:
    return tuple(proxy.model.num_layers for proxy in proxies(trial) or ())


def pair(trial: TrialSpec) -> tuple[TrialSpec, TrialSpec]:
    found = proxies(trial)
    assert found is not None
    return found


def sizes(trial: TrialSpec) -> list[int]:
    return [len(stage_layers(trial.layout, trial.model.num_layers, s)) for s in range(trial.layout.num_stages)]


def linear(trial: TrialSpec) -> Measurement:
    """A machine on which each layer costs the same time and the same bytes."""
    num_layers = trial.model.num_layers
    run = plain_measurement(trial, step_time_s=END_S + LAYER_S * num_layers)
    return replace(run, peak_bytes=(END_BYTES + LAYER_BYTES * num_layers,) * trial.layout.world_size)


def test_a_trial_that_asks_for_no_proxy_runs_whole() -> None:
    assert proxies(trial(layers=())) is None


def test_a_proxy_has_so_many_layers_on_each_stage() -> None:
    assert depths(trial()) == (1, 2)
    assert depths(trial(cpu_layout(pipeline_parallel_degree=4))) == (4, 8)


@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline_parallel_degree": 4},
        {"pipeline_parallel_degree": 4, "first_stage_less_layers": 1, "last_stage_less_layers": 1},
        {"pipeline_parallel_degree": 2, "last_stage_less_layers": 2},
        {
            "pipeline_parallel_degree": 2,
            "virtual_stages_per_rank": 2,
            "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B,
        },
    ],
)
@pytest.mark.parametrize("num_layers", [22, 23, 24])
def test_the_stages_of_a_proxy_are_as_unbalanced_as_those_of_the_whole_model(
    changes: dict[str, Any], num_layers: int
) -> None:
    whole = trial(cpu_layout(**changes), num_layers=num_layers)
    for proxy in pair(whole):
        missing = {large - small for large, small in zip(sizes(whole), sizes(proxy), strict=True)}
        assert len(missing) == 1
        assert min(sizes(proxy)) >= 1


def test_a_proxy_recomputes_as_many_layers_per_layer_as_the_whole_model_does() -> None:
    whole = trial(cpu_layout(recompute=Recompute.FULL, recompute_every=3), num_layers=13)
    assert depths(whole) == (4, 7)  # 13 = 4 + 3 * 3: each three more layers recompute one more


def test_a_proxy_keeps_the_dense_layers_of_a_sparse_model() -> None:
    experts = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=64, num_dense_layers=3)
    whole = trial(layers=(1, 2))
    assert depths(replace(whole, model=replace(whole.model, experts=experts))) == (3, 4)


def test_a_model_that_is_no_deeper_than_its_proxies_runs_whole() -> None:
    assert proxies(trial(num_layers=4, layers=(2, 4))) is None


def test_figures_that_grow_by_the_same_with_every_layer_are_those_of_the_whole_model() -> None:
    whole = trial(cpu_layout(pipeline_parallel_degree=2))
    shallow, deep = pair(whole)
    found, expected = extrapolated(whole, linear(shallow), linear(deep)), linear(whole)
    assert isinstance(found, Measurement)
    assert found.extrapolated_from == (2, 4)
    assert found.peak_bytes == expected.peak_bytes
    for name in ("step_time_s", "tokens_per_s", "model_flop_per_s", "mfu", "hfu"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name)), name
    assert found.phases is not None
    assert expected.phases is not None
    assert found.phases.forward_backward_s == pytest.approx(expected.phases.forward_backward_s)


def test_an_error_of_the_shorter_runs_grows_with_the_distance() -> None:
    whole = trial(num_layers=4)
    shallow, deep = (replace(linear(proxy), step_time_interval_s=0.01) for proxy in pair(whole))
    found = extrapolated(whole, shallow, deep)
    assert isinstance(found, Measurement)
    assert found.step_time_interval_s == pytest.approx(0.01 * (3**2 + 2**2) ** 0.5)  # t4 = 3 t2 - 2 t1


def test_a_deeper_model_is_never_taken_to_be_faster() -> None:
    whole = trial()
    shallow, deep = pair(whole)
    found = extrapolated(whole, replace(linear(shallow), step_time_s=1.1), replace(linear(deep), step_time_s=1.0))
    assert isinstance(found, Measurement)
    assert found.step_time_s == 1.0


def test_parts_of_a_step_are_extrapolated_one_by_one() -> None:
    whole = trial()
    shallow, deep = pair(whole)
    parts = {"all_reduce_s": 0.0, "all_gather_s": 0.0, "reduce_scatter_s": 0.0, "all_to_all_s": 0.0}
    rest = {**parts, "send_receive_s": 0.0, "pipeline_idle_s": 0.0, "optimizer_s": 0.1, "other_s": 0.0}
    small = Breakdown(rank=1, forward_s=1.0, backward_s=2.0, **rest)
    large = Breakdown(rank=0, forward_s=1.5, backward_s=3.0, **rest)
    found = extrapolated(whole, replace(linear(shallow), breakdown=small), replace(linear(deep), breakdown=large))
    assert isinstance(found, Measurement)
    assert found.breakdown == Breakdown(rank=0, forward_s=6.5, backward_s=13.0, **rest)


def test_a_whole_model_that_would_not_fit_ran_out_of_memory() -> None:
    whole = trial()
    fits = END_BYTES + LAYER_BYTES * whole.model.num_layers
    shallow, deep = pair(whole)
    for budget_bytes, kind in ((fits, None), (fits - 1, FailureKind.OOM)):
        budgeted = replace(whole, settings=replace(whole.settings, memory_budget_bytes=budget_bytes))
        for limited in (budgeted, replace(whole, memory_bytes=budget_bytes)):
            found = extrapolated(limited, linear(shallow), linear(deep))
            assert (found.kind if isinstance(found, TrialFailure) else None) == kind
