"""The optimizer for the values of each rank, and the clipping by the norm of the whole model's gradient before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import GradientClip, OptimizerKernel
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings
from autotuner.training.clipping import bucket_bound, clip, squared_norms
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.optimizer_shards import BucketShard, OptimizerShard
from autotuner.trials.distributed.tensor import TiedTables
from autotuner.trials.step.exchange import Exchange

# Optimizers over the tensors that one rank updates, each element or each whole tensor alone.


def local_optimizer(
    masters: Sequence[Tensor], settings: OptimizerSettings, kernel: OptimizerKernel
) -> torch.optim.Optimizer:
    """Return an optimizer with these settings over fp32 tensors.

    LAMB and MADGRAD come from the library pytorch_optimizer. If an optimizer has no fused kernel, an unfused one is
    used.
    """
    betas = (settings.beta1, settings.beta2)
    match settings.name:
        case OptimizerName.ADAMW:
            return _adamw(masters, settings, kernel)
        case OptimizerName.LAMB:
            from pytorch_optimizer import Lamb  # noqa: PLC0415  # a hundred optimizers: only who wants one waits

            # Decoupled, the decay would be left out of the update whose norm sets the step, against the paper. Without
            # ``adam_debias`` the first steps would be longer than that norm says: 1 / (1 - beta1) times as long.
            return Lamb(
                masters,
                lr=settings.learning_rate,
                betas=betas,
                weight_decay=settings.weight_decay,
                weight_decouple=False,
                adam_debias=True,
            )
        case OptimizerName.MADGRAD:
            from pytorch_optimizer import MADGRAD  # noqa: PLC0415  # as above

            return MADGRAD(
                masters,
                lr=settings.learning_rate,
                momentum=settings.beta1,
                weight_decay=settings.weight_decay,
                weight_decouple=True,
            )


def _adamw(masters: Sequence[Tensor], settings: OptimizerSettings, kernel: OptimizerKernel) -> torch.optim.Optimizer:
    """Return an AdamW whose moments exist from the start, so that the first step needs as much memory as all others."""
    fused = kernel == OptimizerKernel.FUSED
    adamw = torch.optim.AdamW(
        masters,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        fused=fused,
        foreach=not fused,
    )
    for master in masters:
        adamw.state[master] = {
            # as AdamW itself does: a kernel per operation computes with the step's number on the host
            "step": torch.zeros((), device=master.device if fused else "cpu"),
            "exp_avg": torch.zeros_like(master),
            "exp_avg_sq": torch.zeros_like(master),
        }
    return adamw


# Sign descent: every element moves by the learning rate, whichever way its gradient says.


class SignDescent(torch.optim.Optimizer):
    """An optimizer without state or weight decay: ``parameter -= learning_rate * sign(gradient)``.

    An element with a zero gradient keeps its value, for example if a sparse exchange has not sent its gradient.

    Source: the sign-SGD update of arXiv 2411.19870, section 3.
    """

    def __init__(self, parameters: Sequence[Tensor], *, learning_rate: float) -> None:
        super().__init__(parameters, {"lr": learning_rate})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nobody evaluates the loss again
        """Update every parameter that has a gradient by the sign of its gradient."""
        del closure
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            signs = torch._foreach_sign([parameter.grad for parameter in moved])
            torch._foreach_add_(moved, signs, alpha=-group["lr"])


# Gradient clipping by the norm of the whole model's gradient, however it is spread over ranks.
#
# torch's ``clip_grad_norm_`` knows the axes that its DTensors are split over, and neither the pipeline's nor flat
# buckets: each stage would clip by a norm of its own.

_TIED_COPIES = 4
"""Number of buckets that the two copies of a tied table count as, because their sum may have twice the norm of
either."""


def total_norm(
    gradients: Sequence[Tensor],
    num_replicas: Sequence[int],
    groups: Sequence[dist.ProcessGroup | None] = (None,),
) -> Tensor:
    """Return the norm of a gradient whose elements are on several ranks. An element on several ranks counts once.

    Args:
        gradients: The gradients that this rank holds, in fp32.
        num_replicas: For each gradient, the number of ranks that hold the same elements.
        groups: Process groups over which squares are summed, one after the other; by default, the whole job.
    """
    squares = torch._foreach_div(squared_norms(gradients), [float(number) for number in num_replicas])
    total = torch.stack(squares).sum()
    for group in groups:
        dist.all_reduce(total, group=group)
    return total.sqrt()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaClip:
    """Clips the whole gradient of this replica, before the gradient is reduced with other replicas."""

    buckets: Sequence[BucketShard]
    """Shards of gradients that this rank holds."""
    max_norm: float
    groups: Sequence[dist.ProcessGroup]
    """Groups of the ranks that hold the replica together, one for each axis."""
    tied: TiedTables | None
    """Copies of a tied table on this rank, whose gradients must be summed; None if there are none."""

    def __call__(self) -> None:
        """Clip the gradients after the last backward pass of the step."""
        gradients = [bucket.own_gradient() for bucket in self.buckets]
        if self.tied is not None:
            self.tied.sum(gradients)
        norm = total_norm(gradients, [bucket.num_copies for bucket in self.buckets], self.groups)
        clip(gradients, norm, self.max_norm)


def clip_before_reduction(
    shards: Sequence[OptimizerShard], grid: Grid, max_norm: float | None, tied: TiedTables | None
) -> Callable[[], None] | None:
    """Return a function that clips the whole gradient of each replica, or None if no such function is needed.

    Call the function after the last backward pass of a step. If the layout clips each bucket separately, this function
    sets the maximum norm of the buckets and returns None.

    Args:
        shards: The optimizer shards of this rank.
        grid: The grid of ranks, with this rank's place on it.
        max_norm: The norm to which gradients are clipped; None: they are not clipped.
        tied: The copies of a tied vocabulary table on this rank; None: there are none.
    """
    clips = grid.layout.gradient_clip
    if max_norm is None or clips == GradientClip.POST:
        return None
    buckets = [shard for shard in shards if isinstance(shard, BucketShard)]
    assert len(buckets) == len(shards), "a rank that clips before the reduction reduces by itself"
    if clips == GradientClip.BUCKET:
        _bound(buckets, max_norm)
        return None
    groups = grid.axis("tp").get_group(), grid.pipeline
    return ReplicaClip(buckets=buckets, max_norm=max_norm, groups=groups, tied=tied)


def _bound(buckets: Sequence[BucketShard], max_norm: float) -> None:
    """Give every bucket its maximum norm, which depends on the number of buckets of the whole model.

    Tensor ranks and stages have buckets of their own; copies of the same bucket count once.
    """
    own = sum((_TIED_COPIES if bucket.is_tied else 1) / bucket.num_holders for bucket in buckets)
    number = torch.tensor(own, dtype=torch.float64, device=buckets[0].values().device)
    dist.all_reduce(number)
    for bucket in buckets:
        bucket.max_norm = bucket_bound(max_norm, number)


# The optimizer on what each rank holds.


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The ranks that share the gradient of one model, and the functions that they call together before an update."""

    gradient: dist.ProcessGroup | None = None
    """The ranks that share one gradient; None: all ranks of the job."""
    before_reduction: Callable[[], None] | None = None
    """Function that is called after all backward passes of a step, before the remaining gradients are reduced."""
    tied: TiedTables | None = None
    """Tied tables of which this rank holds one or two copies, whose reduced gradients must be summed."""
    exchange: Callable[[Sequence[Tensor]], Exchange | None] = lambda masters: None
    """Function that makes the exchange between replicas for the given master parameters; it returns None if replicas
    sum their gradients."""


_EVERYBODY = Peers()


def _unheard(moment: str) -> None:
    """Do nothing at a moment of a step."""


class ShardedOptimizer:
    """An optimizer over fp32 master weights, on each rank's own shards.

    AdamW treats every element separately. So its kernel runs on the local tensors, along whichever axes they are split.
    Only LAMB needs whole tensors, and is refused if ranks hold parts of tensors. An fp32 parameter is its own master
    weight. A bf16 parameter has an fp32 copy as its master weight; after each step, the copy is written back to the
    parameter (mixed precision, arXiv 1710.03740, section 3.1).

    Args:
        shards: The shards that this rank updates.
        settings: The settings of the optimizer.
        kernel: The implementation of the optimizer.
        max_gradient_norm: The norm to which the gradient is clipped after its reduction. If replicas exchange
            compressed gradients, it is clipped before that exchange. None: the gradient is not clipped.
        follows_signs: True to use sign descent in place of the optimizer in ``settings``, with the same learning rate.
        peers: The ranks with which this rank shares its gradients.
    """

    def __init__(
        self,
        shards: Sequence[OptimizerShard],
        *,
        settings: OptimizerSettings,
        kernel: OptimizerKernel = OptimizerKernel.FUSED,
        max_gradient_norm: float | None = None,
        follows_signs: bool = False,
        peers: Peers = _EVERYBODY,
    ) -> None:
        self.shards = shards
        self._peers = peers
        self._max_gradient_norm = max_gradient_norm
        self._masters = [shard.values() for shard in shards]
        self.exchange = peers.exchange(self._masters)
        self._settings = settings
        self._optimizer = (
            SignDescent(self._masters, learning_rate=settings.learning_rate)
            if follows_signs
            else local_optimizer(self._masters, settings, kernel)
        )
        self._num_steps = 0

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of the shards in fp32. They exist after ``take_gradients``."""
        return [master.grad for master in self._masters if master.grad is not None]

    def take_gradients(self) -> None:
        """Finish the reduction of the gradients, and move them from the parameters to the fp32 master weights.

        The result is the gradient of the global batch. If replicas do not sum their whole gradients, each replica first
        clips its own gradient, and then replicas exchange a part of their gradients.
        """
        if self._peers.before_reduction is not None:
            self._peers.before_reduction()
        for shard in self.shards:
            shard.start_reduction()
        for shard, master in zip(self.shards, self._masters, strict=True):
            master.grad = shard.take_gradient()
        if self._peers.tied is not None:
            self._peers.tied.sum(self.gradients)
        if self.exchange is not None:
            self._clip()
            for master, agreed in zip(self._masters, self.exchange.gradients(self.gradients), strict=True):
                master.grad = agreed

    def drop_gradients(self) -> None:
        """Free the gradients that ``take_gradients`` has moved to the master weights."""
        self._optimizer.zero_grad(set_to_none=True)

    def gradient_norm(self) -> Tensor:
        """Return the norm of the gradient of the whole model.

        All ranks have the same norm. If replicas do not sum their whole gradients, each replica has its own norm.
        """
        return total_norm(self.gradients, [shard.num_replicas for shard in self.shards], (self._peers.gradient,))

    @torch.no_grad()
    def step(self, mark: Callable[[str], None] = _unheard) -> None:
        """Update the parameters with the gradients from ``take_gradients``, and free these gradients.

        Args:
            mark: Function that is called with ``updated`` after the update of the parameters, and with ``agreed`` after
                replicas have exchanged parameters.
        """
        if self.exchange is None:
            self._clip()
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate_at(self._num_steps)
        self._optimizer.step()
        self.drop_gradients()
        self._num_steps += 1
        mark("updated")
        if self.exchange is not None:
            self.exchange.parameters()
        mark("agreed")
        for shard, master in zip(self.shards, self._masters, strict=True):
            shard.write(master)

    def _clip(self) -> None:
        if self._max_gradient_norm is not None:
            clip(self.gradients, self.gradient_norm(), self._max_gradient_norm)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that this rank needs to continue later.

        It has the master weights, the state of the optimizer, and the state of the exchange between replicas.
        """
        return {
            "masters": [master.clone() for master in self._masters],
            "optimizer": self._optimizer.state_dict(),
            "num_steps": self._num_steps,
            "exchange": self.exchange.state_dict() if self.exchange is not None else None,
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned on a rank with the same shards, and continue from there."""
        for shard, master, saved in zip(self.shards, self._masters, state["masters"], strict=True):
            master.copy_(saved)
            shard.write(master)
        self._optimizer.load_state_dict(state["optimizer"])
        self._num_steps = state["num_steps"]
        if self.exchange is not None:
            self.exchange.load_state_dict(state["exchange"])
