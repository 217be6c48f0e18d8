"""Times a decoder's passes where the host takes longer than the device, by how layers are split and recomputed.

The decoder is the trial job's own, wrapped by its own code, so that the costs of Python, DTensor, FSDP and checkpoints
are included. Two depths separate the cost of a layer from that of the first and last parts of the model.

Tensor suffixes: B sequences, S tokens of each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.core.choices import AttentionKernel, Precision, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import PassKind, PassPoint
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.trials.distributed.fsdp_ddp import reshard
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.parallelize import parallel_stages
from autotuner.trials.distributed.tensor import loss_context, loss_of
from autotuner.trials.model.attention import kernel_context
from autotuner.trials.model.decoder import Loss
from autotuner.trials.rank import barrier

_DEPTHS = (1, 4)
_NUM_HEADS = 8
"""Number of heads, which every measured tensor-parallel degree divides."""

_PLAIN = Layout(precision=Precision.FP32, attention_kernel=AttentionKernel.FLASH)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """The width of a decoder, the size of its micro-batch, the passes timed together, and a factor for the batches.

    Threads on a core sometimes wait for each other, so the times of single passes of a few milliseconds vary.
    """

    hidden_size: int
    num_sequences: int
    seq_len: int
    passes: int
    more: int


_TINY = _Size(hidden_size=64, num_sequences=1, seq_len=16, passes=4, more=1)
"""A size whose multiplications take less time than their launches."""

_SMALL = _Size(hidden_size=256, num_sequences=4, seq_len=128, passes=1, more=2)
"""A size that shows the time of memory-bound work: the rest of its time, after matrix products and the host's work are
subtracted. Its sequences are short, so that attention is negligible."""


def pass_points(device: torch.device, num_ranks: int, *, num_batches: int) -> Iterator[PassPoint]:
    """Yield the times of forward and backward passes of small layers, for each way to split a layer over the ranks.

    Call it on all ranks at once. Nothing is measured on a GPU. On a CPU, starting a layer's operations takes longer
    than computing them, so whole passes are timed and not single operations.

    Args:
        device: The device of this rank.
        num_ranks: Number of ranks of the job.
        num_batches: Number of batches to time for each kind of layer.
    """
    if device.type != "cpu":
        return
    for kind, degree, layout in _layouts(num_ranks):
        for size in (_TINY, _SMALL) if kind == "plain" else (_TINY,):
            for depth in _DEPTHS:
                batches = list(_batches_s(_spec(layout, size, depth), device, size, size.more * num_batches))
                # ranks that wait for each other do so in training too; what one computes alone, others only disturb
                typical = min if degree == 1 else median
                forward_s, backward_s = (typical(times) for times in zip(*batches, strict=True))
                yield PassPoint(
                    kind=kind,
                    num_ranks=degree,
                    num_layers=depth,
                    hidden_size=size.hidden_size,
                    num_sequences=size.num_sequences,
                    seq_len=size.seq_len,
                    forward_s=forward_s,
                    backward_s=backward_s,
                )


def _layouts(num_ranks: int) -> Iterator[tuple[PassKind, int, Layout]]:
    """Yield every kind of pass with the number of ranks in its group; the remaining ranks are replicas."""
    plain = replace(_PLAIN, data_parallel_replicate_degree=num_ranks)
    yield "plain", 1, plain
    yield "recompute_selective", 1, replace(plain, recompute=Recompute.SELECTIVE)
    yield "recompute_full", 1, replace(plain, recompute=Recompute.FULL)
    if num_ranks == 1:
        return
    sharded = replace(_PLAIN, data_parallel_shard_degree=num_ranks, shard_level=ShardLevel.PARAMETERS)
    yield "sharded", num_ranks, sharded
    for degree in _tensor_degrees(num_ranks):
        split = replace(_PLAIN, tensor_parallel_degree=degree, data_parallel_replicate_degree=num_ranks // degree)
        yield "tensor", degree, split
        yield "sequence", degree, replace(split, sequence_parallel=True)


def _tensor_degrees(num_ranks: int) -> list[int]:
    largest = min(num_ranks, _NUM_HEADS)
    return [degree for degree in range(2, largest + 1) if num_ranks % degree == 0 and _NUM_HEADS % degree == 0]


def _spec(layout: Layout, size: _Size, num_layers: int) -> TrialSpec:
    return TrialSpec(
        trial_id="profile",
        model=TransformerSpec(
            name="profile",
            num_layers=num_layers,
            hidden_size=size.hidden_size,
            num_heads=_NUM_HEADS,
            num_kv_heads=_NUM_HEADS,
            head_dim=size.hidden_size // _NUM_HEADS,
            ffn_size=3 * size.hidden_size,
            vocab_size=8 * size.hidden_size,
        ),
        workload=Workload(seq_len=size.seq_len, global_batch_size=size.num_sequences * layout.data_parallel_degree),
        layout=replace(layout, micro_batch_size=size.num_sequences),
        device="cpu",
    )


def _batches_s(spec: TrialSpec, device: torch.device, size: _Size, num_batches: int) -> Iterator[tuple[float, float]]:
    """Yield, for several batches of passes, the mean seconds of a forward pass (with loss) and of a backward pass."""
    grid = Grid(spec.layout, device)
    (decoder,) = parallel_stages(spec, grid, device)
    loss_of_logits = loss_of(spec.layout, grid.axis("tp"), spec.model.vocab_size)
    tokens_BS = torch.zeros(spec.layout.micro_batch_size, spec.workload.seq_len, dtype=torch.long)
    with kernel_context(spec.layout), loss_context(spec.layout), _unsynchronised(decoder):
        _mean_s(decoder, loss_of_logits, tokens_BS, 1)  # plans and allocates
        for _ in range(num_batches):
            barrier(device)
            yield _mean_s(decoder, loss_of_logits, tokens_BS, size.passes)


def _mean_s(decoder: nn.Module, loss_of_logits: Loss, tokens_BS: Tensor, num_passes: int) -> tuple[float, float]:
    forward_s = backward_s = 0.0
    for _ in range(num_passes):
        reshard(decoder)
        start_s = time.perf_counter()
        loss = loss_of_logits(decoder(tokens_BS), tokens_BS)
        middle_s = time.perf_counter()
        loss.backward()  # type: ignore[no-untyped-call]
        end_s = time.perf_counter()
        forward_s, backward_s = forward_s + middle_s - start_s, backward_s + end_s - middle_s
    return forward_s / num_passes, backward_s / num_passes


def _unsynchronised(decoder: nn.Module) -> AbstractContextManager[None]:
    return decoder.no_sync() if isinstance(decoder, DistributedDataParallel) else nullcontext()
