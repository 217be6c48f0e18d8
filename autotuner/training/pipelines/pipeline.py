"""ResilientPipeline: stages whose passes are timed, and whose schedule may change from one step to the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FULL_BACKWARD,
    RECV_B,
    RECV_F,
    _Action,
    _PipelineScheduleRuntime,
)

from autotuner.core.errors import InvalidInput
from autotuner.schedules.schedule import Kind, Schedule
from autotuner.training.pipelines.transport import Arrival, LinkConditions, Message, Transport

if TYPE_CHECKING:
    from torch.distributed.pipelining.stage import _RecvInfo


PassKind = TypeVar("PassKind")


# ---------------------------------------------------------------- times of a step
@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """The seconds of forward passes, backward passes and transfers of messages in one step on one rank."""

    passes_s: Mapping[Kind, Sequence[float]] = field(default_factory=dict)
    """Durations of the passes that ran, by kind and in order, without the waits for messages before them."""
    transfers_s: Mapping[Message, float] = field(default_factory=dict)
    """Seconds from the sending of each message until its arrival. Messages whose arrival was not observed are left
    out."""

    def shortest_transfer_s(self, peer: int) -> float | None:
        """Return the seconds of the shortest transfer from another pipeline rank; None if there was no transfer."""
        return min((seconds for message, seconds in self.transfers_s.items() if message.peer == peer), default=None)


class DeviceClock:
    """A clock that can be read without making the device wait.

    A reading is an event in the stream of a GPU, or a time of the host's clock.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def now(self) -> Any:
        """Return a reading of the clock, which ``between_s`` accepts."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            return event
        return time.perf_counter()

    def between_s(self, start: Any, end: Any) -> float:
        """Return the seconds between two readings of the clock. On a GPU, wait until the second event has passed."""
        if self._device.type == "cuda":
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3
        return float(end - start)


class PassLog(Generic[PassKind]):
    """A log of the start and end of every forward and backward pass in a step."""

    def __init__(self, device: torch.device) -> None:
        self.clock = DeviceClock(device)
        self._passes: list[tuple[PassKind, int, int, Any, Any]] = []

    @contextmanager
    def running(self, kind: PassKind, stage: int, micro_batch: int) -> Iterator[None]:
        """Return a context that records the time of the code inside it as one forward or backward pass."""
        start = self.clock.now()
        yield
        self._passes.append((kind, stage, micro_batch, start, self.clock.now()))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Return a context that adds the time of the code inside it to the latest pass.

        For example, the loss is counted as part of the forward pass before it.
        """
        yield
        if self._passes:
            self._passes[-1] = (*self._passes[-1][:4], self.clock.now())

    def take(self) -> list[tuple[PassKind, int, int, Any, Any]]:
        """Return the passes recorded since the last call, each with its kind, stage, micro-batch, start and end."""
        passes, self._passes = self._passes, []
        return passes


# ---------------------------------------------------------------- stages
WatchPass = Callable[[Kind, int, int], AbstractContextManager[None]]
"""A function that returns a context manager in which a pass runs. Its arguments are kind, stage and micro-batch of the
pass."""


class TimedStage(PipelineStage):
    """A pipeline stage of torch that sends its tensors through a transport and measures the time of its passes.

    torch's runtime asks a stage for operations to start. This stage starts the operations itself and returns no
    operations, so that the runtime does not wait for them. Instead, each pass waits for its own input, and the pipeline
    waits for the messages that it sent.

    Attributes:
        watch_pass: Function that is called for every pass and returns a context. The pass runs in this context.
    """

    def __init__(
        self, *arguments: Any, watch_pass: WatchPass = lambda kind, stage, micro_batch: nullcontext(), **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.watch_pass = watch_pass
        self.log: PassLog[Kind] = PassLog(torch.device(self.device))
        self.transport: Transport | None = None  # a ResilientPipeline gives it one
        self.transfers_s: dict[Message, float] = {}
        self._arrivals: dict[tuple[bool, int], list[tuple[Message, Arrival]]] = {}

    def expected(self, micro_batch: int, *, is_gradient: bool) -> list[tuple[Message, Tensor]]:
        """Return the messages that one pass of a micro-batch receives, with their buffers.

        Args:
            micro_batch: Number of the micro-batch, from 0.
            is_gradient: True for the backward pass, False for the forward pass.
        """
        infos: Sequence[_RecvInfo] = (self.grad_recv_info if is_gradient else self.args_recv_info)[micro_batch]
        found = []
        for part, info in enumerate(infos):
            if info.source is not None and info.buffer is not None:
                peer = self.stage_index_to_group_rank[info.source]
                found.append((Message(peer, self.stage_index, is_gradient, micro_batch, part), info.buffer))
        return found

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Send the activations through the transport, and return no operations to torch's runtime.

        So the runtime does not wait for the message; the pipeline does, at the end of the step.
        """
        self._send(super().get_fwd_send_ops(fwd_chunk_id), self.stage_index + 1, fwd_chunk_id, is_gradient=False)
        return []

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Send the gradients through the transport, and return no operations to torch's runtime.

        So the runtime does not wait for the message; the pipeline does, at the end of the step.
        """
        self._send(super().get_bwd_send_ops(bwd_chunk_id), self.stage_index - 1, bwd_chunk_id, is_gradient=True)
        return []

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Begin to receive the activations through the transport, and return no operations to torch's runtime.

        So the runtime does not wait for the message; the forward pass does.
        """
        self._receive(fwd_chunk_id, is_gradient=False)
        return []

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Begin to receive the gradients through the transport, and return no operations to torch's runtime.

        So the runtime does not wait for the message; the backward pass does.
        """
        if self.has_backward and not self.is_last:
            self._receive(bwd_chunk_id, is_gradient=True)
        return []

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **keywords: Any) -> Any:
        """Wait for the input of a micro-batch, then run its forward pass and measure the time."""
        self._await(fwd_chunk_id, is_gradient=False)
        with self._timed(Kind.FORWARD, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *arguments, **keywords)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Wait for the gradient of the output, then compute the gradients of the inputs and measure the time.

        A full backward pass also computes the gradients of weights.
        """
        self._await(bwd_chunk_id, is_gradient=True)
        with self._timed(Kind.BACKWARD if full_backward else Kind.INPUT, bwd_chunk_id):
            super().backward_one_chunk(
                bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
            )

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Compute the gradients of the weights for a micro-batch, and measure the time."""
        with self._timed(Kind.WEIGHT, bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)

    def _send(self, operations: Sequence[dist.P2POp], stage: int, micro_batch: int, *, is_gradient: bool) -> None:
        assert self.transport is not None
        for part, operation in enumerate(operations):
            peer = self.stage_index_to_group_rank[stage]
            self.transport.send(Message(peer, stage, is_gradient, micro_batch, part), operation.tensor)

    def _receive(self, micro_batch: int, *, is_gradient: bool) -> None:
        assert self.transport is not None
        self._arrivals[is_gradient, micro_batch] = [
            (message, self.transport.receive(message, buffer))
            for message, buffer in self.expected(micro_batch, is_gradient=is_gradient)
        ]

    def _await(self, micro_batch: int, *, is_gradient: bool) -> None:
        for message, arrival in self._arrivals.pop((is_gradient, micro_batch), ()):
            transfer_s = arrival()
            if transfer_s is not None:
                self.transfers_s[message] = transfer_s

    @contextmanager
    def _timed(self, kind: Kind, micro_batch: int) -> Iterator[None]:
        with (
            self.log.running(kind, self.stage_index, micro_batch),
            self.watch_pass(kind, self.stage_index, micro_batch),
        ):
            yield


# ---------------------------------------------------------------- pipelines
_KINDS = {
    Kind.FORWARD: FORWARD,
    Kind.BACKWARD: FULL_BACKWARD,
    Kind.INPUT: BACKWARD_INPUT,
    Kind.WEIGHT: BACKWARD_WEIGHT,
}


class ResilientPipeline(_PipelineScheduleRuntime):
    """Runs the stages of one rank by a schedule of ``autotuner.schedules`` that may change between steps.

    Call ``step`` as with torch's own schedules. Between two steps, you may change the schedule, the emulated conditions
    of links, and whether delegates (processes that send for the rank) send. All ranks must use the new schedule from
    the same step on.

    Attributes:
        schedule: Schedule of the next step.
        timings: Times of the last step.
        transport: Transport of tensors to other ranks, with ``is_delegated`` and ``dead_peers``.
    """

    def __init__(
        self,
        stages: Sequence[TimedStage],
        schedule: Schedule,
        *,
        transport: Transport,
        loss_fn: Callable[..., Tensor] | None = None,
        scale_grads: bool = True,
    ) -> None:
        # when a stage fails, the runtime logs its whole plan before it raises
        logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)
        super().__init__(list(stages), schedule.num_micro_batches, loss_fn=loss_fn, scale_grads=scale_grads)  # type: ignore[no-untyped-call]
        self._timed_stages = {stage.stage_index: stage for stage in stages}
        self.transport = transport
        for stage in stages:
            stage.transport = transport
        self.timings = Timings()
        self.replan(schedule)

    def replan(self, schedule: Schedule) -> None:
        """Use another schedule from the next step on.

        Raises:
            InvalidInput: The schedule has other stages, ranks or micro-batches than the pipeline.
        """
        wanted = (self.pp_group_size, self._num_stages, self._n_microbatches)
        found = (len(schedule.ranks), schedule.num_stages, schedule.num_micro_batches)
        if found != wanted:
            rule = "must have the same ranks, stages and micro-batches as the pipeline"
            raise InvalidInput("schedule", found, rule, str(wanted))
        own = {action.stage for action in schedule.ranks[self.rank]}
        if own != set(self._timed_stages):
            rule = f"must give rank {self.rank} the stages {sorted(self._timed_stages)}"
            raise InvalidInput("schedule", sorted(own), rule)
        self.schedule = schedule
        # the runtime adds sends and receives
        actions = {
            rank: [_Action(action.stage, _KINDS[action.kind], action.micro_batch) for action in actions]
            for rank, actions in enumerate(schedule.ranks)
        }
        self._prepare_schedule_with_comms(actions)  # type: ignore[arg-type]  # None is an idle slot

    @property
    def conditions(self) -> LinkConditions:
        """The emulated conditions of links (delay, bandwidth) for the messages of the next step."""
        return self.transport.conditions

    @conditions.setter
    def conditions(self, conditions: LinkConditions) -> None:
        self.transport.conditions = conditions

    def switch(self, *, delegated: bool) -> None:
        """Change who sends from the next step on: delegates (processes that send for this rank), or this rank itself.

        Args:
            delegated: True: delegates send. False: this rank itself sends.

        Raises:
            InvalidInput: There are no delegates.
        """
        self.transport.switch(delegated=delegated)

    def close(self) -> None:
        """End all processes that send or receive for this rank."""
        self.transport.close()

    def _initialize_stages(self, *arguments: Any, **keywords: Any) -> None:
        super()._initialize_stages(*arguments, **keywords)
        self.transport.begin(self._expected())

    def _step_microbatches(self, *arguments: Any, **keywords: Any) -> Any:
        result = super()._step_microbatches(*arguments, **keywords)
        self.transport.finish()
        passes_s: dict[Kind, list[float]] = {}
        transfers_s: dict[Message, float] = {}
        for stage in self._timed_stages.values():
            for kind, _, _, start, end in stage.log.take():
                passes_s.setdefault(kind, []).append(stage.log.clock.between_s(start, end))
            transfers_s |= stage.transfers_s
            stage.transfers_s = {}
        self.timings = Timings(passes_s=passes_s, transfers_s=transfers_s)
        return result

    def _maybe_compute_loss(self, stage: TimedStage, *arguments: Any, **keywords: Any) -> None:
        with stage.log.going_on():
            super()._maybe_compute_loss(stage, *arguments, **keywords)  # type: ignore[no-untyped-call]

    def _expected(self) -> list[tuple[Message, Tensor]]:
        """Return the messages that this rank receives in a step, in order."""
        return [
            one
            for action in self.pipeline_order_with_comms[self.rank]
            if action.computation_type in (RECV_F, RECV_B) and action.microbatch_index is not None
            for one in self._timed_stages[action.stage_index].expected(
                action.microbatch_index, is_gradient=action.computation_type == RECV_B
            )
        ]
