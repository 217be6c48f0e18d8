"""PlannedStage: a stage of torch's pipelines whose tensors go by a transport, and whose passes are timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

from autotuner.schedules.actions import Kind
from trials.pipelines.message import Message
from trials.pipelines.timings import PassClock
from trials.pipelines.transport import Arrival, Transport

if TYPE_CHECKING:  # a private name that only an annotation needs
    from torch.distributed.pipelining.stage import _RecvInfo


class Passing(Protocol):
    """Somebody who hears of every pass while it runs."""

    def __call__(self, kind: Kind, stage: int, micro_batch: int) -> AbstractContextManager[None]:
        """The context in which it runs."""


def _unheard(kind: Kind, stage: int, micro_batch: int) -> AbstractContextManager[None]:
    del kind, stage, micro_batch
    return nullcontext()


class PlannedStage(PipelineStage):
    """Hands what it sends and receives to a transport.

    torch's runtime asks a stage for the operations that it should start. This one starts them itself and names none, so
    that the runtime waits for nothing: a pass waits for its own input, and the pipeline for what it sent.

    Attributes:
        passing: Hears of every pass beside the clock.
    """

    def __init__(self, *arguments: Any, passing: Passing = _unheard, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.passing = passing
        self.clock = PassClock(torch.device(self.device))
        self.transfers_s: dict[Message, float] = {}
        self.waited_s = 0.0
        self._transport: Transport | None = None
        self._arrivals: dict[tuple[bool, int], list[tuple[Message, Arrival]]] = {}

    def goes_by(self, transport: Transport) -> None:
        """Send and receive by this transport from now on."""
        self._transport = transport

    def expected(self, micro_batch: int, *, is_gradient: bool) -> list[tuple[Message, Tensor]]:
        """What a micro-batch's forward, or its backward, receives, and where it goes."""
        infos: Sequence[_RecvInfo] = (self.grad_recv_info if is_gradient else self.args_recv_info)[micro_batch]
        found = []
        for part, info in enumerate(infos):
            if info.source is not None and info.buffer is not None:
                peer = self.stage_index_to_group_rank[info.source]
                found.append((Message(peer, self.stage_index, is_gradient, micro_batch, part), info.buffer))
        return found

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """None: the transport sends the activations."""
        self._send(super().get_fwd_send_ops(fwd_chunk_id), self.stage_index + 1, fwd_chunk_id, is_gradient=False)
        return []

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """None: the transport sends the gradients."""
        self._send(super().get_bwd_send_ops(bwd_chunk_id), self.stage_index - 1, bwd_chunk_id, is_gradient=True)
        return []

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """None: the transport receives the activations."""
        self._receive(fwd_chunk_id, is_gradient=False)
        return []

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """None: the transport receives the gradients."""
        if self.has_backward and not self.is_last:
            self._receive(bwd_chunk_id, is_gradient=True)
        return []

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **keywords: Any) -> Any:
        """Forward, when its input is there."""
        self._await(fwd_chunk_id, is_gradient=False)
        with self._timed(Kind.FORWARD, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *arguments, **keywords)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Gradients of inputs, and of weights too where it is the whole backward."""
        self._await(bwd_chunk_id, is_gradient=True)
        with self._timed(Kind.BACKWARD if full_backward else Kind.INPUT, bwd_chunk_id):
            super().backward_one_chunk(
                bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
            )

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Gradients of weights."""
        with self._timed(Kind.WEIGHT, bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)

    def _send(self, operations: Sequence[dist.P2POp], stage: int, micro_batch: int, *, is_gradient: bool) -> None:
        for part, operation in enumerate(operations):
            peer = self.stage_index_to_group_rank[stage]
            self._by.send(Message(peer, stage, is_gradient, micro_batch, part), operation.tensor)

    def _receive(self, micro_batch: int, *, is_gradient: bool) -> None:
        self._arrivals[is_gradient, micro_batch] = [
            (message, self._by.receive(message, buffer))
            for message, buffer in self.expected(micro_batch, is_gradient=is_gradient)
        ]

    def _await(self, micro_batch: int, *, is_gradient: bool) -> None:
        began_s = time.monotonic()
        for message, arrival in self._arrivals.pop((is_gradient, micro_batch), ()):
            transfer_s = arrival.wait()
            if transfer_s is not None:
                self.transfers_s[message] = transfer_s
        self.waited_s += time.monotonic() - began_s

    @contextmanager
    def _timed(self, kind: Kind, micro_batch: int) -> Iterator[None]:
        with self.clock.running(kind, self.stage_index, micro_batch), self.passing(kind, self.stage_index, micro_batch):
            yield

    @property
    def _by(self) -> Transport:
        assert self._transport is not None  # a PlannedPipeline gave it one
        return self._transport
