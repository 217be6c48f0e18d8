"""Trials of a deep model and of its proxies, run for real; the error of their times is printed by bench.proxy_depth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, Outcome, TrialFailure
from autotuner.launch.local import LocalLauncher
from autotuner.launch.repeating import RepeatingLauncher
from autotuner.launch.zygote import Forks
from tests.builders import cpu_layout, tiny_model
from tests.trials.launching import Watcher, spec
from tests.trials.specs import ONE_STEP

SHARDED = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS, micro_batch_size=4)
PROXY = (1, 3)
"""Layers per stage: far enough apart that a gathered layer, which gloo sometimes frees late, weighs little."""

LAYOUTS = (
    cpu_layout(micro_batch_size=8),
    cpu_layout(micro_batch_size=8, recompute=Recompute.FULL),
    cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4),
    SHARDED,
    cpu_layout(tensor_parallel_degree=2, micro_batch_size=4),
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2),
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, last_stage_less_layers=1),
)


@pytest.fixture
def launcher(tmp_path: Path, forks: Forks) -> RepeatingLauncher:
    return RepeatingLauncher(LocalLauncher(tmp_path, forks))


def run(
    launcher: RepeatingLauncher, layout: Layout, *, layers: tuple[int, ...], budget_bytes: int | None = None
) -> Outcome:
    settings = replace(ONE_STEP, max_repeats=0, proxy_layers_per_stage=layers, memory_budget_bytes=budget_bytes)
    trial = spec("deep", settings, layout=layout, model=tiny_model(num_layers=12), reference_flop_per_s=1e11)
    return launcher.run(trial, Watcher())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_memory_and_flop_of_a_deep_model_are_those_of_its_extrapolated_proxies(
    launcher: RepeatingLauncher, layout: Layout
) -> None:
    whole, found = run(launcher, layout, layers=()), run(launcher, layout, layers=PROXY)
    assert isinstance(whole, Measurement), whole
    assert isinstance(found, Measurement), found
    assert len(found.extrapolated_from) == 2
    assert max(found.extrapolated_from) < 12
    for expected, extrapolated in zip(whole.peak_bytes, found.peak_bytes, strict=True):
        assert extrapolated == pytest.approx(expected, rel=0.05)  # the error that issue and documents promise
    for share in ("mfu", "hfu"):
        flop = (getattr(m, share) * m.step_time_s * m.peak_flop_per_s for m in (whole, found))
        assert next(flop) == pytest.approx(next(flop))


def test_a_model_that_is_too_deep_for_its_memory_is_found_out_by_proxies_that_fit(launcher: RepeatingLauncher) -> None:
    plain = cpu_layout(micro_batch_size=8)
    small, whole = (run(launcher, plain, layers=layers) for layers in (PROXY, ()))
    assert isinstance(small, Measurement)
    assert isinstance(whole, Measurement)
    outcome = run(launcher, plain, layers=PROXY, budget_bytes=whole.peak_bytes[0] * 9 // 10)
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.OOM
