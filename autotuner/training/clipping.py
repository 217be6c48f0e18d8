"""Gradients clipped before the reduction, bucket by bucket, while backward passes still run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # exported, but not by name
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from autotuner.training.pending import Pending, future_of

# What scales gradients down to a norm, and the norm that one bucket of many may have.


def clip(gradients: Sequence[Tensor], norm: Tensor, max_norm: float | Tensor) -> None:
    """Scale the gradients down to ``max_norm`` where ``norm`` is above it, without making the device wait."""
    scale = (max_norm / norm).clamp(max=1.0).float()
    torch._foreach_mul_(list(gradients), scale)


def squared_norms(gradients: Sequence[Tensor]) -> list[Tensor]:
    """The square of each tensor's norm, in fp64: on a CPU torch adds up a long fp32 tensor one by one."""
    return list(torch._foreach_pow(torch._foreach_norm(list(gradients), dtype=torch.float64), 2))


def bucket_bound(max_norm: float, num_buckets: Tensor) -> Tensor:
    """The norm that each of so many buckets may have, so that all together have ``max_norm`` at most.

    Source: arXiv 2402.02447 clips every bucket to ``max_norm / sqrt(num_buckets)`` before its all-reduce.
    """
    return max_norm / num_buckets.sqrt()


# Overlap: how much of the gradients begins to be reduced while backward passes still run.


class Overlap:
    """Counts bytes by hooks: a reduction overlaps where a later gradient of the step is computed behind its start.

    So that of the bucket that fills last never does, however short it is. What counts is in which order hooks run; on
    a device the same order holds for what they launch.

    Attributes:
        reduced_bytes: Of all gradients whose reduction was started.
        overlapped_bytes: Of those among them that another gradient followed.
    """

    def __init__(self) -> None:
        self.reduced_bytes = 0
        self.overlapped_bytes = 0
        self._begun_bytes = 0
        self._in_backward = False

    @property
    def share(self) -> float | None:
        """Of the bytes reduced those that overlapped; None where nothing was reduced."""
        return self.overlapped_bytes / self.reduced_bytes if self.reduced_bytes else None

    def watch(self, parameters: Iterable[nn.Parameter]) -> None:
        """Hear of every gradient of these parameters."""
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]

    def _on_gradient(self, parameter: Tensor) -> None:
        del parameter
        self.gradient()

    def gradient(self) -> None:
        """A gradient was computed: what began to be reduced before had something to overlap."""
        self.overlapped_bytes += self._begun_bytes
        self._begun_bytes = 0
        self._in_backward = True

    def reduction(self, num_bytes: int) -> None:
        """The reduction of so many bytes of gradients starts."""
        self.reduced_bytes += num_bytes
        self._begun_bytes += num_bytes if self._in_backward else 0

    def end_backward(self) -> None:
        """The last backward pass of a step is done: no gradient of it follows."""
        self._begun_bytes = 0
        self._in_backward = False

    def reset(self) -> None:
        """Count anew, between two steps."""
        self.reduced_bytes = self.overlapped_bytes = self._begun_bytes = 0


# Communication hooks of DistributedDataParallel that clip before the reduction, or not at all.
#
# ``clip_buckets`` clips each bucket by itself as it fills, so that its all-reduce starts at once (arXiv 2402.02447);
# ``clip_replicas`` clips a replica's whole gradient, for which every all-reduce waits; ``average`` leaves clipping to
# who comes behind, as ``torch.nn.utils.clip_grad_norm_``. Only one hook fits on a model.

_PASSES_UNTIL_REBUILT = 2
"""DDP orders its buckets anew before the second forward pass (``Reducer::_rebuild_buckets``, torch 2.11 to 2.13)."""


def average(
    model: DistributedDataParallel,
    *,
    dtype: torch.dtype | None = None,
    overlap: Overlap | None = None,
    all_reduce: Callable[[Tensor], Pending] | None = None,
) -> Overlap:
    """Average buckets over the replicas as they fill; the overlap, from now on.

    Args:
        model: Has no other hook.
        dtype: Format of gradients on the way; None: their own.
        overlap: Where bytes are counted; None: in a new one.
        all_reduce: Begins a sum over the replicas (``autotuner.training``); None: torch's own.
    """
    return _registered(model, lambda reduction: reduction, dtype, overlap, all_reduce)


def clip_replicas(model: DistributedDataParallel, max_norm: float, *, overlap: Overlap | None = None) -> Overlap:
    """Scale each replica's own gradient down to ``max_norm`` before it is averaged; the overlap, which is none."""
    return _registered(model, lambda reduction: _WholeClip(max_norm, reduction), None, overlap)


def clip_buckets(
    model: DistributedDataParallel, max_norm: float, *, num_buckets: int | None = None, overlap: Overlap | None = None
) -> Overlap:
    """Scale each bucket of each replica down to ``max_norm`` over the root of their number; the overlap, from now on.

    Args:
        model: Has no other hook.
        max_norm: What the norm of the averaged gradient never exceeds.
        num_buckets: Of the whole model, where its other parts lie elsewhere; None: those of this one, which the first
            two backward passes count, and so wait for the last of them.
        overlap: Where bytes are counted; None: in a new one.
    """
    return _registered(model, lambda reduction: _BucketClip(max_norm, num_buckets, reduction), None, overlap)


class _Hook(Protocol):
    def __call__(self, bucket: GradBucket) -> Future[Tensor]: ...


def _registered(
    model: DistributedDataParallel,
    hook_of: Callable[[_Average], _Hook],
    dtype: torch.dtype | None,
    overlap: Overlap | None,
    all_reduce: Callable[[Tensor], Pending] | None = None,
) -> Overlap:
    watched = Overlap() if overlap is None else overlap
    watched.watch(model.parameters())
    hook = hook_of(_Average(model.process_group, dtype, watched, all_reduce))
    # a lambda, for DDP compares a hook's annotations with classes, and ours are texts
    model.register_comm_hook(None, lambda _, bucket: hook(bucket))
    return watched


class _Average:
    """Averages buckets, and says when each starts."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        dtype: torch.dtype | None,
        overlap: Overlap,
        all_reduce: Callable[[Tensor], Pending] | None,
    ) -> None:
        self._group = group
        self._all_reduce = all_reduce
        self._dtype = dtype
        self._overlap = overlap

    def __call__(self, bucket: GradBucket) -> Future[Tensor]:
        mean = self.start(bucket.buffer())
        if bucket.is_last():
            self.end_backward()
        return mean

    def end_backward(self) -> None:
        """All gradients of a step are there."""
        self._overlap.end_backward()

    def start(self, buffer: Tensor) -> Future[Tensor]:
        """The mean over the replicas, in the memory of ``buffer`` when it is there."""
        total = buffer if self._dtype is None else buffer.to(self._dtype)
        self._overlap.reduction(total.nbytes)
        total.div_(self._group.size())
        begun = all_reduced(total, self._group) if self._all_reduce is None else self._all_reduce(total)
        return future_of(begun).then(lambda summed: buffer if total is buffer else buffer.copy_(summed.value()[0]))


def all_reduced(buffer: Tensor, group: dist.ProcessGroup) -> Pending:
    """The sum over the group, under way."""
    pending: Pending = dist.all_reduce(buffer, group=group, async_op=True)
    return pending


class _WholeClip:
    """Keeps every bucket until the last is there, and clips them together."""

    def __init__(self, max_norm: float, average: _Average) -> None:
        self._max_norm = max_norm
        self._kept = _Kept(average)

    def __call__(self, bucket: GradBucket) -> Future[Tensor]:
        future = self._kept.keep(bucket)
        if bucket.is_last():
            norm = torch.stack(squared_norms(self._kept.buffers)).sum().sqrt()
            clip(self._kept.buffers, norm, self._max_norm)
            self._kept.release()
        return future


class _BucketClip:
    """Clips each bucket by itself, at once where their number is known."""

    def __init__(self, max_norm: float, num_buckets: int | None, average: _Average) -> None:
        self._max_norm = max_norm
        self._num_buckets = num_buckets
        self._num_passes = 0
        self._average = average
        self._kept = _Kept(average)

    def __call__(self, bucket: GradBucket) -> Future[Tensor]:
        if self._num_buckets is not None:
            self._clip(bucket.buffer(), self._num_buckets)
            return self._average(bucket)
        future = self._kept.keep(bucket)
        if bucket.is_last():
            self._count(bucket.index() + 1)
        return future

    def _count(self, num_buckets: int) -> None:
        for buffer in self._kept.buffers:
            self._clip(buffer, num_buckets)
        self._kept.release()
        self._num_passes += 1
        if self._num_passes == _PASSES_UNTIL_REBUILT:
            self._num_buckets = num_buckets

    def _clip(self, buffer: Tensor, num_buckets: int) -> None:
        (squared,) = squared_norms([buffer])
        clip([buffer], squared.sqrt(), bucket_bound(self._max_norm, torch.full_like(squared, num_buckets)))


class _Kept:
    """Buckets of one backward pass whose reduction waits."""

    def __init__(self, average: _Average) -> None:
        self.buffers: list[Tensor] = []
        self._futures: list[Future[Tensor]] = []
        self._average = average

    def keep(self, bucket: GradBucket) -> Future[Tensor]:
        """What DDP waits for until the bucket is released and reduced."""
        buffer: Tensor = bucket.buffer()
        future: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
        self.buffers.append(buffer)
        self._futures.append(future)
        return future

    def release(self) -> None:
        """Reduce them all: the backward pass is done but for this hook, so that nobody is held up by waiting here."""
        self._average.end_backward()
        means = [self._average.start(buffer) for buffer in self.buffers]
        for mean, future in zip(means, self._futures, strict=True):
            future.set_result(mean.wait())
        self.buffers, self._futures = [], []
