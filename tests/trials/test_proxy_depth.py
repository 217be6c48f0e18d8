"""Deep models by real trials of their proxies, and predicted memory beside dry runs of whole models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.choices import AttentionKernel, Recompute, ShardLevel
from autotuner.core.cluster import LOCAL
from autotuner.core.dry_run import DryRunRequest, RankDryRun
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.prediction import Memory
from autotuner.core.trial import FailureKind, Outcome
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.forks import Forks
from autotuner.launch.launchers import Launchers
from autotuner.launch.local import LocalLauncher
from autotuner.launch.this_machine import dry_run
from tests.builders import cpu_layout, h100_cluster, llama_70b, tiny_model
from tests.trials.launching import Watcher, failed, spec
from tests.trials.specs import ONE_STEP

# ---------------------------------------------------------------- proxy depth

PROXIED = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS, micro_batch_size=4)
PROXY = (1, 3)
"""Layers per stage: far enough apart that a gathered layer, which gloo sometimes frees late, weighs little."""

PROXIED_LAYOUTS = (
    cpu_layout(micro_batch_size=8, recompute=Recompute.FULL),
    PROXIED,
    cpu_layout(tensor_parallel_degree=2, micro_batch_size=8),
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, last_stage_less_layers=1),
)
MORE_LAYOUTS = (
    cpu_layout(micro_batch_size=8),
    cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4),
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2),
)


@pytest.fixture
def launcher(tmp_path: Path, forks: Forks) -> Launchers:
    return Launchers({LOCAL: LocalLauncher(tmp_path, forks)})


def run(launcher: Launchers, layout: Layout, *, layers: tuple[int, ...], budget_bytes: int | None = None) -> Outcome:
    settings = replace(ONE_STEP, max_repeats=0, proxy_layers_per_stage=layers, memory_budget_bytes=budget_bytes)
    trial = spec("deep", settings, layout=layout, model=tiny_model(num_layers=12), reference_flop_per_s=1e11)
    return launcher.run(trial, Watcher())


@pytest.mark.parametrize(
    "layout", [*PROXIED_LAYOUTS, *(pytest.param(layout, marks=pytest.mark.oracle) for layout in MORE_LAYOUTS)], ids=str
)
def test_memory_and_flop_of_a_deep_model_are_those_of_its_extrapolated_proxies(
    launcher: Launchers, layout: Layout
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


def test_a_model_that_is_too_deep_for_its_memory_is_found_out_by_proxies_that_fit(launcher: Launchers) -> None:
    plain = cpu_layout(micro_batch_size=8)
    small, whole = (run(launcher, plain, layers=layers) for layers in (PROXY, ()))
    assert isinstance(small, Measurement)
    assert isinstance(whole, Measurement)
    outcome = failed(run(launcher, plain, layers=PROXY, budget_bytes=whole.peak_bytes[0] * 9 // 10))
    assert outcome.kind == FailureKind.OOM


# ---------------------------------------------------------------- predicted memory

MODEL = llama_70b(name="llama-3-8b", num_layers=8, hidden_size=4096, num_heads=32, ffn_size=14336)
"""Of full width; a dry run's time grows with the layers, and both are linear in them."""

SPLIT = Layout(tensor_parallel_degree=8, sequence_parallel=True)
SHARDED = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)
RESHARDED = replace(SHARDED, reshard_after_forward=True)
MATH = Layout(attention_kernel=AttentionKernel.MATH)
PIPELINE = Layout(
    pipeline_parallel_degree=2,
    data_parallel_shard_degree=2,
    shard_level=ShardLevel.PARAMETERS,
    reshard_after_forward=True,
    attention_kernel=AttentionKernel.MATH,
)
LAYOUTS = (
    *(SPLIT, RESHARDED, MATH, Layout(), Layout(recompute=Recompute.SELECTIVE), Layout(recompute=Recompute.FULL)),
    *(SHARDED, PIPELINE, replace(MATH, context_parallel_degree=2)),
)

TOLERANCE = 0.03
"""What the formulas leave out: allocations of less than a hidden state, and when exactly each is freed."""


def both(layout: Layout) -> tuple[Memory, RankDryRun]:
    """The prediction and the fullest rank of the dry run; of a device whose attention keeps no scores."""
    workload = Workload(seq_len=4096, global_batch_size=4 * layout.data_parallel_degree)
    cluster = h100_cluster(num_nodes=1, accelerators_per_node=layout.world_size)
    job = Job(model=MODEL, cluster=cluster, workload=workload)
    spec = TrialSpec(trial_id="memory", model=MODEL, workload=workload, layout=layout, device="cuda")
    per_stage = layout.world_size // layout.pipeline_parallel_degree
    ranks = tuple(sorted({0, layout.world_size - per_stage}))
    return predict_one(layout, job).memory, dry_run(DryRunRequest(spec=spec, ranks=ranks, exact=True)).fullest


@pytest.mark.oracle  # long dry runs
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_predicted_memory_is_what_the_fullest_rank_holds(layout: Layout) -> None:
    predicted, found = both(layout)
    # shards padded to rows, and each parameter's count of steps
    assert predicted.optimizer_bytes == pytest.approx(found.held.optimizer_bytes, rel=1e-3)
    assert predicted.total_bytes - predicted.allowance_bytes == pytest.approx(found.held.peak_bytes, rel=TOLERANCE)


@pytest.mark.oracle  # one more
def test_a_layer_that_tensor_ranks_split_and_that_recomputes_selectively_is_predicted_less_closely() -> None:
    predicted, found = both(replace(SPLIT, recompute=Recompute.SELECTIVE))
    # 4 %: what the backward pass works with is a larger part of a small layer
    assert predicted.total_bytes - predicted.allowance_bytes == pytest.approx(found.held.peak_bytes, rel=0.05)
