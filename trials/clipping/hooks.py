"""Communication hooks of DistributedDataParallel that clip before the reduction, or not at all.

``clip_buckets`` clips each bucket by itself as it fills, so that its all-reduce starts at once (arXiv 2402.02447);
``clip_replicas`` clips a replica's whole gradient, for which every all-reduce waits; ``average`` leaves clipping to
who comes behind, as ``torch.nn.utils.clip_grad_norm_``. Only one hook fits on a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # exported, but not by name
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trials.clipping.bound import bucket_bound, clip, squared_norms
from trials.clipping.overlap import Overlap
from trials.runtime.pending import Pending, future_of

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
        all_reduce: Begins a sum over the replicas (``trials.collectives``); None: torch's own.
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
