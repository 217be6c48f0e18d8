"""Runs a step of a trial without data, to count its work and memory.

``python -m autotuner.trials.dry_run.dry_run`` reads a ``DryRunRequest`` from standard input and writes a ``DryRun`` to
standard output.

It runs the trial job's own step and modules, on tensors that only have shapes. Therefore this module needs no code for
single options.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from multiprocessing.connection import Connection
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional

from autotuner.core.choices import AttentionKernel, BatchBalance, PipelineSchedule
from autotuner.core.dry_run import CollectiveCount, DryRun, DryRunRequest, HeldBytes, OperationCounts, RankDryRun
from autotuner.core.stages import ONE_STAGE_SCHEDULES, layers_per_stage, next_alike, with_layers_per_stage
from autotuner.core.trial_spec import TrialSpec
from autotuner.trials import options
from autotuner.trials.distributed.context import context_part
from autotuner.trials.distributed.mesh import Grid, local_part
from autotuner.trials.distributed.optimizer_shards import BucketShard
from autotuner.trials.distributed.parallelize import parallel_stages
from autotuner.trials.dry_run.fake_ranks import answered_reducers, fake_ranks, without_values
from autotuner.trials.dry_run.tracker import Tracker, tracked
from autotuner.trials.measurement.measure import Stopwatch
from autotuner.trials.processes import die_with_parent, serve_one
from autotuner.trials.rank import headline
from autotuner.trials.step.data import Batch, batch
from autotuner.trials.step.optimizer import ShardedOptimizer
from autotuner.trials.step.step import Step, build_step

# Fewer layers and micro-batches than a job has, and the job's own figures from those of the smaller ones.
#
# From a few layers per stage on, all that a rank holds and computes is linear in them; and in the micro-batches, once
# there are enough to fill the pipeline and to accumulate gradients.

_FEWEST_LAYERS = 4
"""Minimum number of layers of a stage. With fewer layers, the peak of a stage with the vocabulary may occur in the loss
(observed with torch 2.13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """The small jobs that a dry run simulates instead of a large job, with fewer layers and micro-batches.

    The memory and the operation counts of the large job are extrapolated linearly from theirs.
    """

    spec: TrialSpec
    layers: tuple[int, ...]
    """Numbers of layers per stage to run: two, or one if the stage has no more."""
    micro_batches: tuple[int, ...]
    """Numbers of micro-batches to run: two, or one if the job has no more."""

    @classmethod
    def of(cls, spec: TrialSpec, *, exact: bool) -> Extrapolation:
        """Return the smallest jobs from which the memory and the operations of a large job can be extrapolated.

        Args:
            spec: The large job.
            exact: True to simulate the large job itself, without extrapolation.
        """
        layers = layers_per_stage(spec.layout, spec.model.num_layers)
        micro_batches = spec.workload.num_micro_batches(spec.layout)
        if exact:
            return cls(spec=spec, layers=(layers,), micro_batches=(micro_batches,))
        return cls(
            spec=spec,
            layers=_two_or_all(_few_layers(spec), layers),
            micro_batches=_two_or_all(_few_micro_batches(spec), micro_batches),
        )

    @property
    def is_whole(self) -> bool:
        """True if the dry run simulates the whole job and no smaller ones, so that nothing is extrapolated."""
        return len(self.layers) == len(self.micro_batches) == 1

    def specs(self) -> list[TrialSpec]:
        """Return the specifications of the small jobs to simulate, in the order of ``weights``."""
        return [_smaller(self.spec, *size) for size in product(self.layers, self.micro_batches)]

    def weights(self) -> list[float]:
        """Return a weight for each small job, in the order of ``specs``.

        A number of the whole job, such as its peak bytes, is the weighted sum of the small jobs' numbers.
        """
        by_layers = _weights(self.layers, layers_per_stage(self.spec.layout, self.spec.model.num_layers))
        by_micro_batches = _weights(self.micro_batches, self.spec.workload.num_micro_batches(self.spec.layout))
        return [left * right for left, right in product(by_layers, by_micro_batches)]


def _few_layers(spec: TrialSpec) -> tuple[int, int]:
    """Return two small numbers of layers for a stage that ends like a whole one.

    The patterns of recomputed and of sparse layers must be at the same point at the end of the stage.
    """
    layout, experts = spec.layout, spec.model.experts
    fewest = _FEWEST_LAYERS + max(layout.first_stage_less_layers, layout.last_stage_less_layers)
    fewest += experts.num_dense_layers if experts else 0
    period = math.lcm(layout.recompute_every, experts.sparse_layer_interval if experts else 1)
    first = next_alike(fewest, layers_per_stage(layout, spec.model.num_layers), period)
    return first, first + period * -(-2 // period)


def _few_micro_batches(spec: TrialSpec) -> tuple[int, int]:
    """Return two numbers of micro-batches with which every pipeline rank reaches its maximum in flight."""
    num_ranks = spec.layout.pipeline_parallel_degree
    if spec.layout.pipeline_schedule in ONE_STAGE_SCHEDULES:
        return num_ranks + 1, num_ranks + 2
    if spec.layout.pipeline_schedule == PipelineSchedule.ADAPTIVE:  # and what runs further ahead on every link
        num_ranks *= 1 + spec.layout.extra_slack
    return 2 * num_ranks, 3 * num_ranks  # interleaved schedules take them in rounds


def _two_or_all(few: tuple[int, int], whole: int) -> tuple[int, ...]:
    return few if max(few) < whole else (whole,)


def _weights(sizes: Sequence[int], whole: int) -> tuple[float, ...]:
    """Return the weights of the run sizes in a straight line through their values, evaluated at the whole size."""
    if len(sizes) == 1:
        return (1.0,)
    less, more = sizes
    slope = (whole - less) / (more - less)
    return 1 - slope, slope


def _smaller(spec: TrialSpec, layers: int, micro_batches: int) -> TrialSpec:
    layout = spec.layout
    batch = micro_batches * layout.micro_batch_size * layout.data_parallel_degree
    return replace(
        spec,
        model=with_layers_per_stage(spec.model, layout, layers),
        workload=replace(spec.workload, global_batch_size=batch),
    )


_DEVICE = torch.device("cpu")
"""Device of the tensors without data: in a torch without CUDA, only the CPU's operations can compute shapes."""


def dry_run(request: DryRunRequest, progress: Callable[[str], None] = lambda _: None) -> DryRun:
    """Count the memory and the operations of each given rank in one step, without running the step on a device.

    Each rank is simulated in its own process, because torch keeps process groups and meshes for the life of a process.

    Args:
        request: The trial and the ranks to run.
        progress: Function that is called with a text about the number of finished runs.
    """
    spec, notes = _runnable(request.spec)
    extrapolation = Extrapolation.of(spec, exact=request.exact)
    specs, weights = extrapolation.specs(), extrapolation.weights()
    tasks = [(smaller, rank) for rank in request.ranks for smaller in specs]
    with ThreadPoolExecutor(min(_num_cores(), len(tasks))) as waiting:
        runs = [waiting.submit(_in_fork, task) for task in tasks]
        progress(f"0 of {len(runs)} runs done")
        for num_done, _ in enumerate(as_completed(runs), start=1):
            progress(f"{num_done} of {len(runs)} runs done")
    answers = [run.result() for run in runs]
    size = len(specs)
    return DryRun(
        ranks=tuple(_combined(answers[at : at + size], weights) for at in range(0, len(answers), size)),
        layers_run=extrapolation.layers if len(extrapolation.layers) > 1 else (),
        micro_batches_run=extrapolation.micro_batches if len(extrapolation.micro_batches) > 1 else (),
        notes=notes,
    )


def _in_fork(task: tuple[TrialSpec, int]) -> RankDryRun:
    """Return the result of ``run_rank``, from a new process that has torch already imported."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(sender, *task))
    child.start()
    sender.close()  # so that the pipe closes when the child has died
    try:
        answer: RankDryRun | str = receiver.recv()
    except EOFError:
        answer = "it was killed"
    child.join()
    if isinstance(answer, str):
        raise ChildProcessError(f"the step of rank {task[1]} cannot run without real tensor values: {answer}")
    return answer


def _answer(sender: Connection, spec: TrialSpec, rank: int) -> None:
    die_with_parent()
    try:
        sender.send(run_rank(spec, rank))
    except Exception as error:
        traceback.print_exc()
        sender.send(headline(error))


def run_rank(spec: TrialSpec, rank: int) -> RankDryRun:
    """Simulate the first training step of one rank on tensors without values; return its memory and operation counts.

    Call it only once in a process, because torch keeps process groups for the life of a process.
    """
    torch.set_num_threads(1)
    with fake_ranks(rank, spec.layout.world_size):
        grid = Grid(spec.layout, _DEVICE)
        with (
            without_values(),
            answered_reducers(),
            tracked(on_cpu=spec.device == "cpu") as tracker,
            _host_apart(spec, tracker),
            _fused_norms(spec),
            _reduced_gradients(tracker),
        ):
            _one_step(spec, grid, tracker)
        return RankDryRun(rank=rank, held=tracker.allocations.peak(), counts=tracker.op_counter.counts())


@contextmanager
def _host_apart(spec: TrialSpec, tracker: Tracker) -> Iterator[None]:
    """Count offloaded activations as freed if the job runs on a GPU; a CPU offloads them to its own memory."""
    room = options.room_on_host

    def apart(tensor: Tensor, *, pinned: bool) -> Tensor:
        with tracker.allocations.elsewhere():
            return room(tensor, pinned=pinned)

    with nullcontext() if spec.device == "cpu" else mock.patch.object(options, "room_on_host", apart):
        yield


@contextmanager
def _fused_norms(spec: TrialSpec) -> Iterator[None]:
    """Run a normalisation as one operation if it is one kernel on a device.

    The CPU composes it of several operations and keeps the values in between. CUDA has a fused RMSNorm, which saves its
    input and a number per token (``_fused_rms_norm`` of torch 2.13). The layer norm that tensors of this process use
    saves one more number per token.
    """

    def fused(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        return functional.layer_norm(x, list(shape), weight, None, eps or 0.0)

    with nullcontext() if spec.device == "cpu" else mock.patch.object(functional, "rms_norm", fused):
        yield


@contextmanager
def _reduced_gradients(tracker: Tracker) -> Iterator[None]:
    """Count the buffers that gradients are copied into, for their reduction and for the optimizer, as gradients."""
    start_reduction, take_gradients = BucketShard.start_reduction, ShardedOptimizer.take_gradients

    def started(shard: BucketShard) -> None:
        with tracker.allocations.within("gradients"):
            start_reduction(shard)

    def taken(optimizer: ShardedOptimizer) -> None:
        with tracker.allocations.within("gradients"):
            take_gradients(optimizer)

    with (
        mock.patch.object(BucketShard, "start_reduction", started),
        mock.patch.object(ShardedOptimizer, "take_gradients", taken),
    ):
        yield


def _one_step(spec: TrialSpec, grid: Grid, tracker: Tracker) -> None:
    allocations = tracker.allocations
    allocations.now = "parameters"
    stages = parallel_stages(spec, grid, _DEVICE)
    allocations.now = "optimizer"
    step = build_step(spec, stages, grid, _GradientFinder(stages, tracker))
    for parameter in _parameters(stages):  # flat buckets took their place while the optimizer was built
        allocations.name(local_part(parameter.detach()), "parameters")
    allocations.now = "activations"
    own_batch = _own_batch(spec, grid)
    tracker.start_counting()
    _finding_gradients(step, stages, tracker)(own_batch, number=0)


class _GradientFinder(Stopwatch):
    """A stopwatch that looks for gradients at each mark of the step; a backward pass then has those of earlier ones."""

    def __init__(self, stages: Sequence[nn.Module], tracker: Tracker) -> None:
        super().__init__(_DEVICE)
        self._stages = stages
        self._tracker = tracker

    def mark(self, name: str) -> None:
        """Record the moment, and label the gradients that exist by now."""
        super().mark(name)
        _name_gradients(self._stages, self._tracker)


def _finding_gradients(step: Step, stages: Sequence[nn.Module], tracker: Tracker) -> Step:
    """Return a step that looks for gradients once more when all of them exist."""

    def passes(batch: Batch) -> Tensor:
        loss = step.passes(batch)
        _name_gradients(stages, tracker)
        return loss

    return replace(step, passes=passes)


def _name_gradients(stages: Sequence[nn.Module], tracker: Tracker) -> None:
    for parameter in _parameters(stages):
        if parameter.grad is not None:
            tracker.allocations.name(local_part(parameter.grad), "gradients")


def _parameters(stages: Sequence[nn.Module]) -> Iterator[nn.Parameter]:
    return chain.from_iterable(stage.parameters() for stage in stages)


def _own_batch(spec: TrialSpec, grid: Grid) -> Batch:
    return batch(
        spec,
        step=0,
        data_parallel_rank=grid.data_parallel_rank,
        part=context_part(grid),
        device=_DEVICE,
    )


def _runnable(spec: TrialSpec) -> tuple[TrialSpec, tuple[str, ...]]:
    """Return the job without options that need a device, and notes on what its numbers do not include."""
    layout, notes = spec.layout, list[str]()
    if layout.attention_kernel not in (AttentionKernel.MATH, AttentionKernel.FLASH):
        notes.append(f"attention {layout.attention_kernel} was run as flash, which keeps the same amount of memory")
        layout = replace(layout, attention_kernel=AttentionKernel.FLASH)
    if layout.compiled:
        notes.append(
            "nothing was compiled: layers are counted as written, although compiled layers move and keep less data"
        )
        layout = replace(layout, compiled=False)
    if layout.offload_activations and spec.device == "cpu":
        notes.append(
            "offloaded activations are counted as memory of the rank, because a CPU offloads to its own memory"
        )
    elif layout.offload_activations:
        notes.append("offloaded activations are counted as gone at once, although real copies take time")
    if layout.expert_parallel_degree > 1:
        notes.append("every expert got the same number of tokens, because the choices of the router are not known")
    workload = spec.workload
    if workload.lengths is not None:
        notes.append(f"every sequence was as long as the longest one, {workload.seq_len} tokens")
        workload = replace(workload, lengths=None)
        layout = replace(layout, batch_balance=BatchBalance.NONE, num_dealing_ranks=0)
    return replace(spec, layout=layout, workload=workload), tuple(notes)


def _combined(answers: Sequence[RankDryRun], weights: Sequence[float]) -> RankDryRun:
    """Return the weighted sum of several results for the same rank."""

    def total(values: Sequence[float]) -> float:
        return float(round(sum(weight * value for weight, value in zip(weights, values, strict=True))))

    held = [answer.held for answer in answers]
    counts = [answer.counts for answer in answers]
    return RankDryRun(
        rank=answers[0].rank,
        held=HeldBytes(**{name: total([getattr(h, name) for h in held]) for name in HeldBytes.__dataclass_fields__}),
        counts=OperationCounts(
            **{name: total([getattr(c, name) for c in counts]) for name in ("flop", "moved_bytes", "num_operations")},
            collectives=tuple(
                CollectiveCount(
                    kind=same[0].kind,
                    num_calls=total([c.num_calls for c in same]),
                    num_bytes=total([c.num_bytes for c in same]),
                )
                for same in zip(*(c.collectives for c in counts), strict=True)
            ),
        ),
    )


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


def main() -> int:
    """Read a request for a dry run as JSON from standard input, simulate the step, and print the answer as JSON.

    Progress is printed to standard error.

    Returns:
        The exit code: 2 if the request cannot be read.
    """
    return serve_one(DryRunRequest, partial(dry_run, progress=partial(print, file=sys.stderr, flush=True)))


if __name__ == "__main__":
    sys.exit(main())
