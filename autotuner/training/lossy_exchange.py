"""Lossy exchange: replicas that exchange less than their gradients (DeMo, random and striding elements, averaging).

Use it in any torch trainer, in one of three ways::

    optimizer = ReplicatedOptimizer(AdamW(...), partial(DemoReplicator, group=replicas))        # around an optimizer
    model.register_comm_hook(BucketExchange(build, replicas), exchange_hook)                    # inside DDP
    averager = ParameterAverager(parameters, replicas, period=16); ...; averager.after_step()   # every few steps

Shapes: R rows (chunks), C elements or cosine components of a row, K components sent.
"""
# This module has no ``from __future__ import annotations``: DDP compares the annotations of a hook with classes.

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypedDict

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # exported, but not by name
from torch.distributed.tensor import DTensor
from torch.futures import Future
from torch.optim import Optimizer

from autotuner.core.errors import InvalidInput
from autotuner.core.stages import BYTE_INDEXED_CHUNK
from autotuner.training.communicator import future_of
from autotuner.training.momentum import ChooseOffsets, ExchangeState, Momentum, Rows, cosine_basis, random_offsets

_LARGEST_CHUNK = 2**15  # largest width for which the index of a component fits into two signed bytes

Work = dist.Work | None
"""A collective in progress; None if the group has one rank."""


class Replicator(Protocol):
    """The interface of a method that exchanges gradients between replicas: all of them, or only a part in each step.

    The rank exchanges with the ranks of other replicas that hold the same shard of the model. A method that sends a
    part keeps the rest for later steps.
    """

    payload_bytes: int
    """Number of bytes that this rank contributed to the latest exchange, before the collective's own factor such as 2
    (n - 1) / n."""

    def start(self, gradients: Sequence[Tensor]) -> Work:
        """Begin to exchange these gradients of one step with the other replicas. ``finish`` returns the result.

        The caller may change or free the gradients after this call.
        """

    def finish(self) -> list[Tensor]:
        """Return the exchanged gradients in fp32, with the shapes and in the order of the given gradients.

        All replicas get exactly the same bits. The work that ``start`` returned must be complete.
        """

    def state_dict(self) -> ExchangeState:
        """Return a copy of the state that training needs to continue later, such as gradients that were not sent yet.

        Call it between two steps.
        """

    def load_state_dict(self, state: ExchangeState) -> None:
        """Continue from the saved state (such as unsent gradients) of a replicator for the same tensors."""


BuildReplicator = Callable[[Sequence[Tensor]], Replicator]
"""A function that makes a replicator for tensors with the shapes and the device of the gradients:
``partial(DemoReplicator, group=group)``."""


def exchange(replicator: Replicator, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Exchange the gradients between replicas, wait for the exchange, and return the exchanged gradients."""
    work = replicator.start(gradients)
    if work is not None:
        work.wait()
    return replicator.finish()


class FullReplicator:
    """Exchanges all gradients in every step with one all-reduce.

    It is the reference for replicators that send only a part of the gradients.
    """

    payload_bytes = 0

    def __init__(
        self, tensors: Sequence[Tensor], group: dist.ProcessGroup, *, payload_dtype: torch.dtype = torch.float32
    ) -> None:
        self._rows = Rows(tensors, 1)
        self._group = group
        self._payload_dtype = payload_dtype
        self._num_steps = 0
        self._sum: Tensor | None = None

    @torch.no_grad()
    def start(self, gradients: Sequence[Tensor]) -> Work:
        """Begin to sum the gradients over all replicas."""
        self._sum = torch.cat([gradient.reshape(-1).to(self._payload_dtype) for gradient in gradients])
        self._num_steps += 1
        work = _all_reduce(self._sum, self._group)
        self.payload_bytes = 0 if work is None else self._sum.nbytes
        return work

    def finish(self) -> list[Tensor]:
        """Return the gradients averaged over all replicas."""
        assert self._sum is not None, "an exchange is started before it is finished"
        mean, self._sum = self._sum.float() / self._group.size(), None
        return self._rows.elements(mean)

    def state_dict(self) -> ExchangeState:
        """Return the number of steps. There are no unsent gradients (residuals) to save, because everything is sent."""
        return ExchangeState(residuals=[], num_steps=self._num_steps)

    def load_state_dict(self, state: ExchangeState) -> None:
        """Continue from the number of steps in a saved state."""
        self._num_steps = state["num_steps"]


class ElementReplicator:
    """Exchanges one of every ``sparsity`` elements of the gradient momentum between replicas, by one all-reduce.

    All other results are zero. Elements that are not sent stay in the momentum for later steps. Source: the random and
    striding replicators of arXiv 2502.06728, with one difference. They choose elements from the whole momentum, whereas
    this class chooses one element from each row of ``sparsity`` elements. Therefore every tensor sends the same share
    of its elements in every step.
    """

    payload_bytes = 0

    def __init__(
        self,
        tensors: Sequence[Tensor],
        group: dist.ProcessGroup,
        *,
        sparsity: int = 16,
        offsets: ChooseOffsets = random_offsets,
        decay: float = 0.999,
        payload_dtype: torch.dtype = torch.float32,
    ) -> None:
        self._momentum = Momentum(tensors, width=sparsity, decay=decay)
        self._group = group
        self._choose_offsets = offsets
        self._payload_dtype = payload_dtype
        self._sent: tuple[Tensor, Tensor] | None = None
        self.state_dict, self.load_state_dict = self._momentum.state_dict, self._momentum.load_state_dict

    @torch.no_grad()
    def start(self, gradients: Sequence[Tensor]) -> Work:
        """Choose one momentum element per row, subtract it from the momentum, and begin to sum it over the replicas.

        A row has ``sparsity`` neighbouring elements.
        """
        momentum, rows = self._momentum, self._momentum.rows
        offsets_R1 = self._choose_offsets(rows, momentum.num_steps)
        momentum.add(gradients)
        values_R1 = momentum.matrix_RC.gather(1, offsets_R1).to(self._payload_dtype)
        momentum.subtract(rows.zeros().scatter_(1, offsets_R1, values_R1.float()))
        self._sent = offsets_R1, values_R1
        work = _all_reduce(values_R1, self._group)
        self.payload_bytes = 0 if work is None else values_R1.nbytes
        return work

    @torch.no_grad()
    def finish(self) -> list[Tensor]:
        """Return the means of the sent elements over all replicas, with zeros for all other elements."""
        assert self._sent is not None, "an exchange is started before it is finished"
        (offsets_R1, sum_R1), self._sent = self._sent, None
        mean_R1, rows = sum_R1.float() / self._group.size(), self._momentum.rows
        return rows.elements(rows.zeros().scatter_(1, offsets_R1, mean_R1))


class DemoReplicator:
    """Exchanges the ``top_k`` largest cosine components of each chunk of the momentum, by one all-gather (DeMo).

    Each component in the result is the mean over those replicas that sent it. Components that are not sent stay in the
    momentum for later steps.

    Source: arXiv 2411.19870, algorithm 1. As in arXiv 2502.06728, the chunks are flat pieces of this rank's shard.

    Raises:
        InvalidInput: ``top_k`` is not in 1..chunk, or ``chunk`` is too large for two-byte indices.
    """

    payload_bytes = 0

    def __init__(
        self,
        tensors: Sequence[Tensor],
        group: dist.ProcessGroup,
        *,
        chunk: int = 64,
        top_k: int = 4,
        decay: float = 0.999,
        payload_dtype: torch.dtype = torch.float32,
    ) -> None:
        if chunk > _LARGEST_CHUNK:
            rule = f"must be at most {_LARGEST_CHUNK}, because the index of a component is sent in two bytes"
            raise InvalidInput("chunk", chunk, rule, nearest=_LARGEST_CHUNK)
        self._momentum = Momentum(tensors, width=chunk, decay=decay)
        if not 1 <= top_k <= chunk:
            nearest = min(max(top_k, 1), chunk)
            raise InvalidInput(
                "top_k", top_k, f"must be from 1 to {chunk}, the number of components in a chunk", nearest=nearest
            )
        self._group = group
        self._top_k = top_k
        self._payload_dtype = payload_dtype
        self._index_dtype = torch.uint8 if chunk <= BYTE_INDEXED_CHUNK else torch.int16
        self._basis_CC = cosine_basis(chunk, self._momentum.rows.device)
        self._gathered: list[Tensor] = []
        self.state_dict, self.load_state_dict = self._momentum.state_dict, self._momentum.load_state_dict

    @torch.no_grad()
    def start(self, gradients: Sequence[Tensor]) -> Work:
        """Choose the largest cosine components, subtract them from the momentum, and start their all-gather.

        The all-gather collects the chosen components of all replicas.
        """
        self._momentum.add(gradients)
        components_RC = self._momentum.matrix_RC @ self._basis_CC.T
        chosen_RK = components_RC.abs().topk(self._top_k, dim=1, sorted=False).indices
        values_RK = components_RC.gather(1, chosen_RK).to(self._payload_dtype)
        sent_RC = torch.zeros_like(components_RC).scatter_(1, chosen_RK, values_RK.float())
        self._momentum.subtract(sent_RC @ self._basis_CC)
        # One buffer of bytes. Values stand first, because a view of them must begin at a multiple of their size.
        parts = values_RK, chosen_RK.to(self._index_dtype)
        payload = torch.cat([part.reshape(-1).view(torch.uint8) for part in parts])
        self._gathered, work = _all_gather(payload, self._group)
        self.payload_bytes = 0 if work is None else payload.nbytes
        return work

    @torch.no_grad()
    def finish(self) -> list[Tensor]:
        """Return the mean of each cosine component over the replicas that sent it, as gradient elements.

        Every rank adds the components in the order of the ranks, and no replica sends a component twice. Therefore all
        ranks compute exactly the same bits, even on a GPU, which may add in any order.
        """
        assert self._gathered, "an exchange is started before it is finished"
        rows = self._momentum.rows
        total_RC, num_senders_RC = rows.zeros(), rows.zeros()
        for payload in self._gathered:
            values_RK, chosen_RK = self._unpack(payload)
            total_RC.scatter_add_(1, chosen_RK, values_RK)
            num_senders_RC.scatter_add_(1, chosen_RK, torch.ones_like(values_RK))
        self._gathered = []
        return rows.elements(total_RC.div_(num_senders_RC.clamp_(min=1.0)) @ self._basis_CC)

    def _unpack(self, payload: Tensor) -> tuple[Tensor, Tensor]:
        shape = self._momentum.rows.num_rows, self._top_k
        values, chosen = payload.tensor_split([shape[0] * shape[1] * self._payload_dtype.itemsize])
        return values.view(self._payload_dtype).view(shape).float(), chosen.view(self._index_dtype).view(shape).long()


# ---------------------------------------------------------------- in front of an optimizer
class ReplicatedOptimizer(Optimizer):
    """Exchanges this replica's gradients with the other replicas, then steps the base optimizer with the result.

    No other code may average gradients between replicas: give FSDP2 only the mesh of one replica's shards, and do not
    use DistributedDataParallel. All replicas must begin with equal parameters. The parameters then stay equal.

    Args:
        base: The optimizer that updates the parameters. ``ReplicatedOptimizer`` has the same parameter groups and
            state.
        build: Function that makes the replicator from this rank's shards of the parameters.
        is_signed: True to give the base optimizer the signs of the exchanged gradients, and not their values.
    """

    def __init__(self, base: Optimizer, build: BuildReplicator, *, is_signed: bool = False) -> None:
        # As in torch's own optimizer wrappers, Optimizer.__init__ is not called: the base holds everything it sets up.
        self.base = base
        self.param_groups = base.param_groups
        self.defaults = base.defaults
        self.replicator = build(local_shards(self._parameters()))
        self._is_signed = is_signed

    @property
    def state(self) -> Any:  # type: ignore[override]  # an attribute in torch; its own wrappers override it too
        """The state of the base optimizer."""
        return self.base.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Exchange the gradients, then update the parameters.

        Returns:
            The loss that the closure returned; None without a closure.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = _local_gradients(self._parameters())
        for gradient, agreed in zip(gradients, exchange(self.replicator, gradients), strict=True):
            gradient.copy_(agreed.sign() if self._is_signed else agreed)
        self.base.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients to None, or to zero if ``set_to_none`` is False."""
        self.base.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the base optimizer and this replica's residuals (the unsent part of its momentum).

        Residuals differ between replicas, so that every replica must save its own state.
        """
        return {"base": self.base.state_dict(), "replicator": self.replicator.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state of the base optimizer and the saved residuals of this replica.

        Residuals are the unsent part of the replica's momentum.
        """
        self.base.load_state_dict(state_dict["base"])
        self.param_groups = self.base.param_groups
        self.replicator.load_state_dict(state_dict["replicator"])

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]


def local_shards(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return this rank's shards of the tensors, as views of the same memory."""
    return [_local(tensor.detach()) for tensor in tensors]


def _local_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return this rank's shards of the gradients, sharing their memory; a missing gradient becomes zeros."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(_local(parameter.grad))
    return gradients


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


# ---------------------------------------------------------------- inside DistributedDataParallel
class BucketExchange:
    """The state of the communication hook ``exchange_hook``: one replicator per gradient bucket of DDP.

    The first step exchanges all gradients without loss, because DDP rebuilds its buckets after that step.
    """

    def __init__(self, build: BuildReplicator, group: dist.ProcessGroup, *, is_signed: bool = False) -> None:
        self.is_signed = is_signed
        self._build = build
        self._group = group
        self._replicators: dict[int, Replicator] = {}
        self._loaded: dict[int, ExchangeState] = {}
        self._is_first_step = True

    @property
    def payload_bytes(self) -> int:
        """The number of bytes that this rank contributed to the exchange in the latest step, over all buckets."""
        return sum(replicator.payload_bytes for replicator in self._replicators.values())

    def replicator(self, bucket: GradBucket) -> Replicator:
        """Return the object that exchanges this gradient bucket in the present step.

        In the first step, it sends all gradients; later it sends a part of them.
        """
        if self._is_first_step:
            self._is_first_step = not bucket.is_last()
            return FullReplicator(bucket.gradients(), self._group)
        index = bucket.index()
        if index not in self._replicators:
            self._replicators[index] = self._build(bucket.gradients())
            if index in self._loaded:
                self._replicators[index].load_state_dict(self._loaded.pop(index))
        return self._replicators[index]

    def state_dict(self) -> dict[int, ExchangeState]:
        """Return this replica's residuals (the unsent part of its momentum), by number of the gradient bucket.

        Residuals differ between replicas, so that every replica must save its own state.
        """
        return {**self._loaded, **{index: one.state_dict() for index, one in self._replicators.items()}}

    def load_state_dict(self, state: dict[int, ExchangeState]) -> None:
        """Load saved residuals by bucket number. They take effect after the first step, when DDP has equal buckets."""
        self._loaded = dict(state)


def exchange_hook(state: BucketExchange, bucket: GradBucket) -> Future[torch.Tensor]:
    """Exchange one gradient bucket between replicas, as a communication hook of DDP.

    Register it with ``model.register_comm_hook(BucketExchange(...), exchange_hook)``.
    """
    replicator, gradients = state.replicator(bucket), bucket.gradients()

    def finish() -> Tensor:
        for gradient, exchanged in zip(gradients, replicator.finish(), strict=True):
            gradient.copy_(exchanged.sign() if state.is_signed else exchanged)
        buffer: Tensor = bucket.buffer()
        return buffer

    work = replicator.start(gradients)
    if work is not None:
        return future_of(work).then(lambda _: finish())
    done: Future[torch.Tensor] = Future()
    done.set_result(finish())
    return done


# ---------------------------------------------------------------- every few steps
class AveragerState(TypedDict):
    """The state that a rank must save to continue with a ``ParameterAverager``: the anchors and the number of steps.

    The anchors are the parameters after the latest average.
    """

    anchors: list[Tensor]
    """Parameters as they were after the latest average."""
    num_steps: int
    """Number of optimizer steps that were done."""


class ParameterAverager:
    """Averages the changes of parameters over replicas every ``period`` steps, in place of exchanging gradients.

    An average sets the parameters to ``anchor + mean over replicas of (parameters - anchor)``. The anchor is the result
    of the previous average. Between two averages, the parameters differ between replicas. After an average, all
    replicas have exactly the same bits.

    Source: arXiv 2311.08105 with plain averaging as the outer step (learning rate 1, no momentum).

    Args:
        parameters: Parameters to average, in place. All replicas must begin with equal values.
        group: The ranks that hold the same shard in other replicas.
        period: Steps from one average to the next.
        payload_dtype: Number format in which the changes are sent.

    Raises:
        InvalidInput: ``period < 1``.
    """

    payload_bytes = 0  # bytes of the latest step; 0 if no average was due

    def __init__(
        self,
        parameters: Sequence[Tensor],
        group: dist.ProcessGroup,
        *,
        period: int = 16,
        payload_dtype: torch.dtype = torch.float32,
    ) -> None:
        if period < 1:
            raise InvalidInput(
                "period", period, "must be 1 or more, the number of steps between two averages", nearest=1
            )
        self._parameters = parameters
        self._group = group
        self._period = period
        self._payload_dtype = payload_dtype
        self._num_steps = 0
        self._rows = Rows(parameters, 1)
        self._anchor = self._rows.zeros()
        self._rows.load(self._anchor, parameters)

    @torch.no_grad()
    def after_step(self) -> bool:
        """Count an optimizer step, and average the parameters over the replicas if an average is due.

        An average is due every ``period`` steps.

        Returns:
            True if the parameters were averaged.
        """
        self._num_steps += 1
        self.payload_bytes = 0
        if self._num_steps % self._period:
            return False
        anchors = self._rows.elements(self._anchor)
        deltas = [held.float() - anchor for held, anchor in zip(self._parameters, anchors, strict=True)]
        payload = torch.cat([delta.reshape(-1) for delta in deltas]).to(self._payload_dtype)
        if self._group.size() > 1:
            self.payload_bytes = payload.nbytes
            dist.all_reduce(payload, group=self._group)
        self._anchor.view(-1).add_(payload.float() / self._group.size())
        for held, anchor in zip(self._parameters, anchors, strict=True):
            held.copy_(anchor)
        return True

    def state_dict(self) -> AveragerState:
        """Return the anchors (the parameters after the latest average) and the number of steps.

        The parameters themselves are not included.
        """
        anchors = [anchor.clone() for anchor in self._rows.elements(self._anchor)]
        return AveragerState(anchors=anchors, num_steps=self._num_steps)

    def load_state_dict(self, state: AveragerState) -> None:
        """Continue from the anchors and the number of steps in a saved state.

        Raises:
            InvalidInput: The anchors' shapes differ from those of the parameters.
        """
        self._rows.load(self._anchor, state["anchors"])
        self._num_steps = state["num_steps"]


# ---------------------------------------------------------------- collectives
def _all_reduce(payload: Tensor, group: dist.ProcessGroup) -> Work:
    return dist.all_reduce(payload, group=group, async_op=True) if group.size() > 1 else None


def _all_gather(payload: Tensor, group: dist.ProcessGroup) -> tuple[list[Tensor], Work]:
    """Return buffers for the payloads of all ranks in order, and the collective that fills the buffers."""
    if group.size() == 1:
        return [payload], None
    payloads = [torch.empty_like(payload) for _ in range(group.size())]
    return payloads, dist.all_gather(payloads, payload, group=group, async_op=True)
