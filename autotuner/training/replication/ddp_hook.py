"""A lossy exchange as a communication hook of DistributedDataParallel, bucket by bucket while backward runs."""
# No annotations as texts here: DDP compares those of a hook with classes.

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # exported, but not by name
from torch.futures import Future

from autotuner.training.pending import future_of
from autotuner.training.replication.replicator import BuildReplicator, FullReplicator, Replicator, ReplicatorState


class BucketExchange:
    """The state of ``exchange_hook``: a replicator per bucket.

    The first step is exchanged in full, for DDP forms its buckets anew behind it.
    """

    def __init__(self, build: BuildReplicator, group: dist.ProcessGroup, *, is_signed: bool = False) -> None:
        """With replicators of this kind; with ``is_signed`` parameters are given signs for gradients."""
        self.is_signed = is_signed
        self._build = build
        self._group = group
        self._replicators: dict[int, Replicator] = {}
        self._loaded: dict[int, ReplicatorState] = {}
        self._is_first_step = True

    @property
    def payload_bytes(self) -> int:
        """What this rank contributed to the latest exchange of all buckets."""
        return sum(replicator.payload_bytes for replicator in self._replicators.values())

    def replicator(self, bucket: GradBucket) -> Replicator:
        """Whoever exchanges the bucket in this step."""
        if self._is_first_step:
            self._is_first_step = not bucket.is_last()
            return FullReplicator(bucket.gradients(), self._group)
        index = bucket.index()
        if index not in self._replicators:
            self._replicators[index] = self._build(bucket.gradients())
            if index in self._loaded:
                self._replicators[index].load_state_dict(self._loaded.pop(index))
        return self._replicators[index]

    def state_dict(self) -> dict[int, ReplicatorState]:
        """What this replica has not sent, by bucket; each replica saves its own."""
        return {**self._loaded, **{index: one.state_dict() for index, one in self._replicators.items()}}

    def load_state_dict(self, state: dict[int, ReplicatorState]) -> None:
        """Go on from there behind the first step, with the same buckets."""
        self._loaded = dict(state)


def exchange_hook(exchange: BucketExchange, bucket: GradBucket) -> Future[torch.Tensor]:
    """Send a bucket as its replicator does: ``model.register_comm_hook(BucketExchange(...), exchange_hook)``."""
    replicator, gradients = exchange.replicator(bucket), bucket.gradients()

    def finish() -> Tensor:
        for gradient, exchanged in zip(gradients, replicator.finish(), strict=True):
            gradient.copy_(exchanged.sign() if exchange.is_signed else exchanged)
        buffer: Tensor = bucket.buffer()
        return buffer

    sending = replicator.start(gradients)
    if sending is not None:
        return future_of(sending).then(lambda _: finish())
    done: Future[torch.Tensor] = Future()
    done.set_result(finish())
    return done
