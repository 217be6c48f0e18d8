"""Step time and memory of layouts, from the closed forms of this package."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from autotuner.costmodel import collectives
from autotuner.costmodel.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.costmodel.compute import (
    Work,
    element_bytes,
    input_work,
    layer_work,
    optimizer_s,
    output_work,
    tokens_per_pass,
)
from autotuner.costmodel.flops import model_flop_per_step, recomputed_flop_per_step
from autotuner.costmodel.memory import (
    MemoryColumns,
    Weights,
    communicates_once,
    memory,
    owned_elements,
    weights,
)
from autotuner.costmodel.overlap import exposed_s, overlap_share
from autotuner.costmodel.pipeline import RankLoad, bubble_s, critical_ranks, num_micro_batches, num_transfers
from autotuner.domain.choice import Precision, ShardLevel
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.prediction import Memory, Prediction, StepTime

__all__ = ["PredictionColumns", "StepTimeColumns", "predict", "predict_one"]

RELATIVE_ERROR = {"a100-40gb": 0.20, "a100-80gb": 0.20, "h100-sxm": 0.32}
"""Median relative error of predicted step times, by accelerator; no entry where nothing published was compared.

Printed by ``bench/backtest_v1.py``: for A100 on 267 runs of the layout sweep of arXiv 2311.05610, for H100 on 335 runs
of nanotron's sweep (Ultra-Scale Playbook), whose kernels are not recorded.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeColumns:
    """``StepTime`` for many layouts: seconds by part."""

    compute_s: Floats
    recompute_s: Floats
    tensor_communication_s: Floats
    context_communication_s: Floats
    expert_communication_s: Floats
    pipeline_communication_s: Floats
    data_communication_s: Floats
    bubble_s: Floats
    optimizer_s: Floats

    @property
    def total_s(self) -> Floats:
        """The step time: the sum of all parts."""
        parts: list[Floats] = [getattr(self, f.name) for f in fields(self)]
        return reduce(np.add, parts)  # in order, so that a row's total does not depend on how many rows there are


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionColumns:
    """``Prediction`` for many layouts; row i belongs to layout i."""

    step_time: StepTimeColumns
    memory: MemoryColumns
    tokens_per_s: Floats
    mfu: Floats
    hfu: Floats
    fits: Booleans
    relative_error: float | None

    def __len__(self) -> int:
        return len(self.mfu)

    def row(self, index: int) -> Prediction:
        """The prediction of one layout."""
        seconds = {f.name: float(getattr(self.step_time, f.name)[index]) for f in fields(StepTime)}
        sizes = {f.name: float(getattr(self.memory, f.name)[index]) for f in fields(Memory) if f.name != "worst_stage"}
        return Prediction(
            step_time=StepTime(**seconds),
            memory=Memory(worst_stage=int(self.memory.worst_stage[index]), **sizes),
            tokens_per_s=float(self.tokens_per_s[index]),
            mfu=float(self.mfu[index]),
            hfu=float(self.hfu[index]),
            fits=bool(self.fits[index]),
            relative_error=self.relative_error,
        )


def predict(x: LayoutColumns, job: Job) -> PredictionColumns:
    """Time and memory of every row; the layouts must be legal for the job."""
    step_time, sizes = _step_time(x, job), memory(x, job)
    step_s = step_time.total_s
    accelerator = job.cluster.accelerator
    peak = np.array([accelerator.peak_flop_per_s(p) for p in Precision])[x.precision] * x.world_size
    model_flop = model_flop_per_step(job)
    return PredictionColumns(
        step_time=step_time,
        memory=sizes,
        tokens_per_s=job.workload.tokens_per_step / step_s,
        mfu=model_flop / (step_s * peak),
        hfu=(model_flop + recomputed_flop_per_step(x, job)) / (step_s * peak),
        fits=sizes.total_bytes <= accelerator.memory_bytes,
        relative_error=RELATIVE_ERROR.get(accelerator.name),
    )


def predict_one(layout: Layout, job: Job) -> Prediction:
    """Time and memory of one legal layout."""
    return predict(LayoutColumns.from_layouts([layout]), job).row(0)


def _step_time(x: LayoutColumns, job: Job) -> StepTimeColumns:
    dense, output, entry = layer_work(x, job, sparse=False), output_work(x, job), input_work(x, job)
    sparse = layer_work(x, job, sparse=True) if job.model.num_sparse_layers else dense * 0.0

    def on(load: RankLoad) -> Work:
        layers = dense * load.num_dense_layers + sparse * load.num_sparse_layers
        return layers + entry * load.has_input + output * load.has_output

    first, *others = critical_ranks(x, job)
    slowest, held, num_layers = on(first), weights(x, job, first), first.num_layers
    for load in others:
        work = on(load)
        slower = work.total_s > slowest.total_s
        slowest = work.where(slower, slowest)
        held = _where(slower, weights(x, job, load), held)
        num_layers = np.where(slower, load.num_layers, num_layers)

    num_sparse = job.model.num_sparse_layers
    rest = dense * float(job.model.num_layers - num_sparse) + sparse * float(num_sparse) + entry + output - slowest
    m = num_micro_batches(x, job)
    passes = slowest * m
    return StepTimeColumns(
        compute_s=passes.compute_s,
        recompute_s=passes.recompute_s,
        tensor_communication_s=passes.tensor_s,
        context_communication_s=passes.context_s,
        expert_communication_s=passes.expert_s,
        pipeline_communication_s=num_transfers(x, job) * _stage_send_s(x, job),
        data_communication_s=_data_communication_s(x, job, held, slowest, num_layers),
        bubble_s=bubble_s(x, rest.total_s, rest.weight_gradient_s),
        optimizer_s=optimizer_s(x, job, owned_elements(x, held)),
    )


def _where(condition: Booleans, chosen: Weights, other: Weights) -> Weights:
    return Weights(
        **{f.name: np.where(condition, getattr(chosen, f.name), getattr(other, f.name)) for f in fields(Weights)}
    )


def _stage_send_s(x: LayoutColumns, job: Job) -> Floats:
    """Hidden states of one micro-batch from one stage to the next."""
    split = np.where(x.sequence_parallel, x.tensor_parallel_degree, 1)
    hidden_bytes = element_bytes(x) * tokens_per_pass(x, job) * job.model.hidden_size / split
    return collectives.send_s(hidden_bytes, collectives.pipeline_group(x, job.cluster))


def _data_communication_s(x: LayoutColumns, job: Job, held: Weights, slowest: Work, num_layers: Integers) -> Floats:
    """Exposed seconds of the data-parallel group in one step; weights and gradients travel as they are stored.

    * nothing sharded: one all-reduce, under the last micro-batch's backward;
    * optimizer sharded (ZeRO-1): one reduce-scatter after the last backward and one all-gather of the new parameters;
      nothing hides them, which is what Megatron-LM does unless told to overlap;
    * gradients sharded (ZeRO-2): a reduce-scatter under every micro-batch's backward, then the same all-gather;
    * parameters sharded: for every micro-batch gathered under the forward (under the backward again, if resharded) and
      scattered under the backward; or both once a step (``communicates_once``).

    Replicas of shards all-reduce what was scattered, as often as it is scattered. Experts, whose group is smaller by
    the expert ranks, are sent as if over the whole shard group.
    """
    gather_s, reduce_s = _gather_and_reduce_s(x, job, held, num_layers)
    parts = num_layers.astype(np.float64) + 1.0
    share = overlap_share(job.cluster.accelerator)
    backward_s = share * slowest.backward_s
    forward_s = share * (slowest.compute_s + slowest.recompute_s) - backward_s
    under_forward_s = exposed_s(gather_s, forward_s, parts)
    under_backward_s = exposed_s(reduce_s + gather_s * x.reshard_after_forward, backward_s, parts)
    m = num_micro_batches(x, job)
    return np.select(
        [
            x.shard_level == ShardLevel.OPTIMIZER,
            x.shard_level == ShardLevel.GRADIENTS,
            x.shard_level == ShardLevel.PARAMETERS,
        ],
        [
            reduce_s + gather_s,
            m * under_backward_s + gather_s,
            np.where(communicates_once(x), 1, m) * (under_forward_s + under_backward_s),
        ],
        default=under_backward_s,
    )


def _gather_and_reduce_s(x: LayoutColumns, job: Job, held: Weights, num_layers: Integers) -> tuple[Floats, Floats]:
    """Wire time to gather a rank's parameters once, and to reduce its gradients once."""
    parts = num_layers + 1  # one collective per layer and one for the tables
    unit_bytes = element_bytes(x) * (held.dense + held.expert) / parts
    shard, replicate = collectives.shard_group(x, job.cluster), collectives.replicate_group(x, job.cluster)
    sharded = x.shard_level != ShardLevel.NONE
    gather_s = np.where(sharded, collectives.all_gather_s(unit_bytes, shard), 0.0)
    scatter_s = np.where(sharded, collectives.reduce_scatter_s(unit_bytes, shard), 0.0)
    all_reduce_s = collectives.all_reduce_s(unit_bytes / np.where(sharded, shard.num_ranks, 1), replicate)
    reduce_s: Floats = parts * (scatter_s + all_reduce_s)
    return gather_s * parts, reduce_s
