"""Gradient clipping before the reduction, as communication hooks of DistributedDataParallel.

``clip_buckets`` clips each bucket by itself as it fills, so that its all-reduce starts at once (arXiv 2402.02447).
``clip_replicas`` clips a replica's whole gradient, for which every all-reduce waits. ``average`` clips nothing: call
``torch.nn.utils.clip_grad_norm_`` after the backward pass. Only one hook fits on a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # exported, but not by name
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from autotuner.training.communicator import Pending, future_of

_PASSES_UNTIL_REBUILT = 2
"""Number of forward passes until DDP's buckets are final. DDP reorders its buckets before the second forward pass
(``Reducer::_rebuild_buckets``, torch 2.11 to 2.13)."""


def clip(gradients: Sequence[Tensor], norm: Tensor, max_norm: float | Tensor) -> None:
    """Scale the gradients down to ``max_norm`` if ``norm`` exceeds it, without making the device wait.

    Args:
        gradients: Tensors that are scaled in place.
        norm: Norm of all gradients together, as a tensor on the same device.
        max_norm: Highest norm that all gradients together may have.

    Example:
        >>> gradient = torch.tensor([3.0, 4.0])
        >>> clip([gradient], norm=gradient.norm(), max_norm=1.0)
        >>> round(gradient.norm().item(), 4)
        1.0
    """
    scale = (max_norm / norm).clamp(max=1.0).float()
    torch._foreach_mul_(list(gradients), scale)


def squared_norms(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the square of each tensor's norm, in fp64.

    On a CPU, torch adds the elements of a long tensor one after the other. In fp32 this sum would not be accurate
    enough.
    """
    return list(torch._foreach_pow(torch._foreach_norm(list(gradients), dtype=torch.float64), 2))


def bucket_bound(max_norm: float, num_buckets: Tensor) -> Tensor:
    """Return the norm to which each gradient bucket must be clipped.

    The norm of the whole gradient, with all buckets, is then at most ``max_norm``. Source: arXiv 2402.02447 clips every
    bucket to ``max_norm / sqrt(num_buckets)`` before its all-reduce.

    Example:
        >>> bucket_bound(1.0, torch.tensor(4.0)).item()
        0.5
    """
    return max_norm / num_buckets.sqrt()


class Overlap:
    """Counts the bytes of gradients whose reduction starts before the last gradient of a step is computed.

    The larger their share, the more of the communication can be hidden behind the backward pass. The bucket that fills
    last never counts as overlapped, even if it is short. The counter uses the order in which hooks run. On a GPU, the
    kernels that hooks launch run in the same order.

    Attributes:
        reduced_bytes: Bytes of gradients whose reduction was started.
        overlapped_bytes: The part of ``reduced_bytes`` whose reduction started before another gradient was computed.
    """

    def __init__(self) -> None:
        self.reduced_bytes = 0
        self.overlapped_bytes = 0
        self._started_bytes = 0
        self._in_backward = False

    @property
    def share(self) -> float | None:
        """The share of the reduced gradient bytes whose reduction overlapped with the backward pass, 0..1.

        It is None if nothing was reduced.
        """
        return self.overlapped_bytes / self.reduced_bytes if self.reduced_bytes else None

    def watch(self, parameters: Iterable[nn.Parameter]) -> None:
        """Register hooks that call ``gradient`` for each computed gradient of these parameters."""
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda _: self.gradient())  # type: ignore[no-untyped-call]

    def gradient(self) -> None:
        """Record that a gradient was computed. Reductions that were started before this call count as overlapped."""
        self.overlapped_bytes += self._started_bytes
        self._started_bytes = 0
        self._in_backward = True

    def reduction(self, num_bytes: int) -> None:
        """Record that the reduction of ``num_bytes`` bytes of gradients over the replicas starts."""
        self.reduced_bytes += num_bytes
        self._started_bytes += num_bytes if self._in_backward else 0

    def end_backward(self) -> None:
        """Record that the last backward pass of a step is over, so that no gradient of this step follows."""
        self._started_bytes = 0
        self._in_backward = False

    def reset(self) -> None:
        """Set the counts of reduced and overlapped bytes to 0. Call it between two steps."""
        self.reduced_bytes = self.overlapped_bytes = self._started_bytes = 0


def average(
    model: DistributedDataParallel,
    *,
    dtype: torch.dtype | None = None,
    overlap: Overlap | None = None,
    all_reduce: Callable[[Tensor], Pending] | None = None,
) -> Overlap:
    """Register a DDP hook that averages each gradient bucket over the replicas as soon as the bucket is full.

    Args:
        model: Model without another communication hook.
        dtype: Number format in which gradients are sent; None: the format of the gradients.
        overlap: Counter to use; None: a new one.
        all_reduce: Function that begins a sum over the replicas (``autotuner.training.communicator``); None: torch's
            own all-reduce.

    Returns:
        The counter of the bytes whose reduction overlapped with the backward pass.
    """
    reduction = _Average(model, dtype, overlap, all_reduce)
    return reduction.register(reduction)


def clip_replicas(model: DistributedDataParallel, max_norm: float, *, overlap: Overlap | None = None) -> Overlap:
    """Register a hook that clips each replica's whole gradient to ``max_norm`` before the replicas are averaged.

    Args:
        model: Model without another communication hook.
        max_norm: Highest norm of one replica's gradient.
        overlap: Counter to use; None: a new one.

    Returns:
        The overlap counter. It counts no overlap, because every bucket waits for the norm of the whole gradient.
    """
    reduction = _Average(model, None, overlap, None)
    return reduction.register(_WholeClip(max_norm, reduction))


def clip_buckets(
    model: DistributedDataParallel, max_norm: float, *, num_buckets: int | None = None, overlap: Overlap | None = None
) -> Overlap:
    """Register a hook that clips each bucket of each replica to ``max_norm / sqrt(num_buckets)`` before the average.

    Args:
        model: Model without another communication hook.
        max_norm: Upper bound for the norm of the averaged gradient.
        num_buckets: Number of buckets of the whole model. Give it if other processes hold other parts of the model.
            None: the number of buckets of this model. The hook counts them in the first two backward passes. In these
            passes all buckets wait for the last one.
        overlap: Counter to use; None: a new one.

    Returns:
        The counter of overlapped bytes.
    """
    reduction = _Average(model, None, overlap, None)
    return reduction.register(_BucketClip(max_norm, num_buckets, reduction))


def begin_all_reduce(buffer: Tensor, group: dist.ProcessGroup) -> Pending:
    """Begin to replace the buffer by its sum over the group, with torch's own all-reduce.

    Wait for the result before you use the buffer.
    """
    pending: Pending = dist.all_reduce(buffer, group=group, async_op=True)
    return pending


_Hook = Callable[[GradBucket], Future[Tensor]]


class _Average:
    """Averages gradient buckets over replicas, and counts how many bytes overlap with the backward pass."""

    def __init__(
        self,
        model: DistributedDataParallel,
        dtype: torch.dtype | None,
        overlap: Overlap | None,
        all_reduce: Callable[[Tensor], Pending] | None,
    ) -> None:
        self._model = model
        self._group = model.process_group
        self._dtype = dtype
        self._overlap = Overlap() if overlap is None else overlap
        self._all_reduce = all_reduce
        self.held: list[Tensor] = []
        self._futures: list[Future[Tensor]] = []

    def register(self, hook: _Hook) -> Overlap:
        self._overlap.watch(self._model.parameters())
        # a lambda, because DDP compares a hook's annotations with classes, and ours are texts
        self._model.register_comm_hook(None, lambda _, bucket: hook(bucket))
        return self._overlap

    def __call__(self, bucket: GradBucket) -> Future[Tensor]:
        mean = self.start(bucket.buffer())
        if bucket.is_last():
            self._overlap.end_backward()
        return mean

    def start(self, buffer: Tensor) -> Future[Tensor]:
        """Start to average a buffer over the replicas. The mean will replace the contents of ``buffer``."""
        total = buffer if self._dtype is None else buffer.to(self._dtype)
        self._overlap.reduction(total.nbytes)
        total.div_(self._group.size())
        pending = begin_all_reduce(total, self._group) if self._all_reduce is None else self._all_reduce(total)
        return future_of(pending).then(lambda summed: buffer if total is buffer else buffer.copy_(summed.value()[0]))

    def hold(self, bucket: GradBucket) -> Future[Tensor]:
        """Keep a bucket back.

        Return the future that DDP waits for until the bucket is released and reduced.
        """
        buffer: Tensor = bucket.buffer()
        future: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
        self.held.append(buffer)
        self._futures.append(future)
        return future

    def release(self) -> None:
        """Reduce the buckets that were kept back.

        The backward pass is over except for this hook, so waiting here delays nothing.
        """
        self._overlap.end_backward()
        means = [self.start(buffer) for buffer in self.held]
        for mean, future in zip(means, self._futures, strict=True):
            future.set_result(mean.wait())
        self.held, self._futures = [], []


class _WholeClip:
    """Keeps every bucket back until the last bucket is ready, and clips them together."""

    def __init__(self, max_norm: float, average: _Average) -> None:
        self._max_norm = max_norm
        self._average = average

    def __call__(self, bucket: GradBucket) -> Future[Tensor]:
        future = self._average.hold(bucket)
        if bucket.is_last():
            norm = torch.stack(squared_norms(self._average.held)).sum().sqrt()
            clip(self._average.held, norm, self._max_norm)
            self._average.release()
        return future


class _BucketClip:
    """Clips each bucket separately, and at once if the number of buckets is known."""

    def __init__(self, max_norm: float, num_buckets: int | None, average: _Average) -> None:
        self._max_norm = max_norm
        self._num_buckets = num_buckets
        self._num_passes = 0
        self._average = average

    def __call__(self, bucket: GradBucket) -> Future[Tensor]:
        if self._num_buckets is not None:
            self._clip(bucket.buffer(), self._num_buckets)
            return self._average(bucket)
        future = self._average.hold(bucket)
        if bucket.is_last():
            num_buckets = bucket.index() + 1
            for buffer in self._average.held:
                self._clip(buffer, num_buckets)
            self._average.release()
            self._num_passes += 1
            if self._num_passes == _PASSES_UNTIL_REBUILT:
                self._num_buckets = num_buckets
        return future

    def _clip(self, buffer: Tensor, num_buckets: int) -> None:
        (squared,) = squared_norms([buffer])
        clip([buffer], squared.sqrt(), bucket_bound(self._max_norm, torch.full_like(squared, num_buckets)))
