"""Optimizer shards: the elements that one rank updates, whose gradients are reduced in flat buckets."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from autotuner.core.choices import ShardLevel
from autotuner.core.trial_spec import TrialSpec
from autotuner.training.clipping import Overlap, average, clip, squared_norms
from autotuner.training.communicator import Communicator, Pending
from autotuner.trials.distributed.mesh import Grid, local_part
from autotuner.trials.model.decoder import Decoder, parameter_dtype

# Optimizer shards: the elements of the model that one rank updates.


class OptimizerShard(Protocol):
    """The interface of an optimizer shard: the elements of parameters that this rank updates.

    The shard also starts the reduction that sums the gradients of these elements over the ranks.
    """

    num_replicas: int
    """Number of ranks with these same elements, including this one, among the ranks that share one gradient
    (``Grid.gradient``)."""
    is_tied: bool
    """True if the shard is a tied vocabulary table that is also on another stage."""

    def expect_backward_passes(self, num_left: int) -> None:
        """Announce that ``num_left`` backward passes of the step are still to come.

        The reduction of the gradients may start during the last backward pass.
        """

    def start_reduction(self) -> None:
        """Start to reduce the gradients, after the last backward pass of a step.

        If the reduction has already started, nothing happens.
        """

    def take_gradient(self) -> Tensor:
        """Return the fp32 gradients of the shard's elements over the global batch; drop them from the parameters."""

    def values(self) -> Tensor:
        """Return the parameter values of this shard's elements in fp32.

        If the parameters are fp32, the result shares their memory.
        """

    def write(self, values: Tensor) -> None:
        """Set the elements of this shard to new values, on every rank whose forward and backward passes use them."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The parameters of the model with elements in this shard, which this rank updates."""

    def held(self, values: Tensor) -> list[Tensor]:
        """Return values of whole parameters, one tensor per parameter, gathered from the shards of all ranks.

        If a rank has only a part of a parameter (for example with tensor parallelism), the tensor has the values of
        this part. This is a collective: all ranks must call it. The method ``own`` is its reverse.

        Args:
            values: One value for each element of this shard, such as its moments of Adam.
        """

    def own(self, held: Sequence[Tensor]) -> Tensor:
        """Pick the values of this shard's elements (such as their moments of Adam) from the values of whole parameters.

        This is the reverse of the method ``held``.

        Args:
            held: Values of all elements, one tensor per parameter of the shard, as ``held`` returns them.
        """


class ParameterShard:
    """This rank's part of one parameter. FSDP or DDP reduces its gradient, or the gradient needs no reduction."""

    def __init__(self, parameter: nn.Parameter, *, num_replicas: int, is_tied: bool = False) -> None:
        self.num_replicas = num_replicas
        self.is_tied = is_tied
        self._parameter = parameter

    def expect_backward_passes(self, num_left: int) -> None:
        """Do nothing, because FSDP and DDP themselves start to reduce the gradient in the backward pass."""

    def start_reduction(self) -> None:
        """Do nothing, because FSDP and DDP have already started to reduce the gradient in the backward pass."""

    def take_gradient(self) -> Tensor:
        """Return the reduced gradient of this rank's part of the parameter in fp32, and drop it from the parameter."""
        gradient = complete_gradient(self._parameter).float()
        self._parameter.grad = None
        return gradient

    def values(self) -> Tensor:
        """Return the values of this rank's part of the parameter in fp32.

        If the parameter is fp32, the result shares its memory.
        """
        return local_part(self._parameter.detach()).float()

    @torch.no_grad()
    def write(self, values: Tensor) -> None:
        """Set this rank's part of the parameter to new values, after an update by the optimizer."""
        held = local_part(self._parameter.detach())
        if held.data_ptr() != values.data_ptr():
            held.copy_(values)

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The single parameter of this shard, in a list."""
        return [self._parameter]

    def held(self, values: Tensor) -> list[Tensor]:
        """Return ``values`` in a list.

        Nothing is gathered, because this shard is the whole part of the parameter that the rank holds.
        """
        return [values]

    def own(self, held: Sequence[Tensor]) -> Tensor:
        """Return the only tensor in ``held``, because this shard has a single parameter and holds its whole part."""
        (values,) = held
        return values


def complete_gradient(parameter: nn.Parameter) -> Tensor:
    """Return this rank's part of a parameter's gradient; if the tensor ranks hold partial sums, sum them first.

    The gradient of a norm under sequence parallelism is an example of such partial sums.
    """
    gradient = parameter.grad
    assert gradient is not None, "every parameter takes part in every step"
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        gradient = gradient.redistribute(placements=parameter.placements)
    return local_part(gradient)


def num_parts(parameter: nn.Parameter) -> int:
    """Return the number of different parts into which a parameter is split over ranks; 1 if it is not split."""
    # what DDP reduces under tensor parallelism is a plain tensor that remembers what part of a DTensor it was
    spec = parameter if isinstance(parameter, DTensor) else getattr(parameter, "_st_info", None)
    if spec is None:
        return 1
    mesh = spec.device_mesh
    return math.prod(mesh.size(dim) for dim, kind in enumerate(spec.placements) if not kind.is_replicate())


# Data parallelism over flat memory: gradients are reduced in buckets, and each rank updates its shard of a bucket.
#
# With shards this is ZeRO's first level (arXiv 1910.02054, section 5.1): a reduce-scatter of the gradients, an update
# of the shard, an all-gather of the values. Without, a shard is the whole bucket and its reduction an all-reduce:
# that is for what DistributedDataParallel cannot do. Its reducer loses count of its buckets where a pipeline rank has
# several stages, between tensor ranks it unties a tied table, and it knows no bound of the norm of a bucket.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The settings for reducing a bucket's gradients: the ranks that sum them, and the number format of the sum."""

    shards: Communicator | None
    """Ranks that split the update of the parameters; None: the update is not split."""
    replicas: Communicator | None
    """Ranks with the same shard, which sum its gradient; None: no other rank has it."""
    num_losses: int
    """Number of ranks whose losses are averaged."""
    dtype: torch.dtype
    """Format in which gradients are summed."""
    overlap: Overlap
    """Counter that is told of every gradient and every reduction."""


class BucketShard:
    """The rank's shard of a bucket, which is a group of parameters that become views of one flat tensor.

    It is an ``OptimizerShard``.

    Attributes:
        num_holders: Number of ranks with a copy of the whole bucket, among the ranks of ``Grid.gradient``.
        num_copies: Number of these ranks that work on the same loss: the tensor ranks and stages of one replica.
        max_norm: The norm to which the gradient of the bucket is clipped before its reduction; None: it is not clipped.
    """

    def __init__(
        self,
        stage: nn.Module,
        parameters: Sequence[nn.Parameter],
        reduction: Reduction,
        *,
        num_replicas: int,
        is_tied: bool = False,
    ) -> None:
        self._reduction = reduction
        shards = reduction.shards
        num_shards, shard_rank = (1, 0) if shards is None else (shards.size, shards.rank)
        parts = [local_part(parameter.detach()) for parameter in parameters]
        num_elements = sum(part.numel() for part in parts)
        padded = -(-num_elements // num_shards) * num_shards
        self._flat = parts[0].new_zeros(padded)
        self._own = self._flat.chunk(num_shards)[shard_rank]
        self.num_replicas = num_replicas // num_shards
        self.num_holders = num_replicas
        self.num_copies = num_replicas // reduction.num_losses
        self.max_norm: Tensor | None = None
        self.is_tied = is_tied
        views = [view.view_as(part) for view, part in zip(_cut(self._flat, parts), parts, strict=True)]
        for view, part in zip(views, parts, strict=True):
            view.copy_(part)
        self._parameters = _replaced(stage, parameters, views)
        self._filled: Tensor | None = None
        self._sum: Tensor | None = None
        self._pending: Pending | None = None
        self._num_expected = 0
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]

    def expect_backward_passes(self, num_left: int) -> None:
        """Start the reduction when ``num_left`` more backward passes have computed all gradients of the bucket."""
        self._num_expected = num_left * len(self._parameters)

    def _on_gradient(self, parameter: Tensor) -> None:
        del parameter
        self._reduction.overlap.gradient()
        if self._num_expected > 0:
            self._num_expected -= 1
            if self._num_expected == 0:
                self.start_reduction()

    @torch.no_grad()
    def own_gradient(self) -> Tensor:
        """Return the bucket's gradient from this rank's tokens alone, as one tensor.

        The reduction starts from this tensor.
        """
        if self._filled is None:
            self._filled = torch.zeros_like(self._flat, dtype=self._reduction.dtype)
            for parameter, piece in zip(self._parameters, _cut(self._filled, self._parameters), strict=True):
                piece.copy_(complete_gradient(parameter).reshape(-1))
                parameter.grad = None
        return self._filled

    @torch.no_grad()
    def start_reduction(self) -> None:
        """Start to reduce the gradients. If the bucket has a ``max_norm``, clip them first.

        If the reduction has already started, nothing happens.
        """
        if self._sum is not None:
            return
        whole, self._filled = self.own_gradient(), None
        if self.max_norm is not None:
            (squared,) = squared_norms([whole])
            clip([whole], squared.sqrt(), self.max_norm)
        whole /= self._reduction.num_losses
        self._reduction.overlap.reduction(whole.nbytes)
        if self._reduction.shards is not None:
            self._sum = torch.empty_like(self._own, dtype=whole.dtype)
            self._pending = self._reduction.shards.reduce_scatter(self._sum, whole)
        else:
            self._sum = whole
            self._pending = self._reduce_replicas(whole)

    def take_gradient(self) -> Tensor:
        """Wait for the reduction, and return the reduced gradient of this rank's shard in fp32."""
        assert self._sum is not None
        if self._pending is not None:
            self._pending.wait()
        if self._reduction.shards is not None and (pending := self._reduce_replicas(self._sum)) is not None:
            pending.wait()
        gradient, self._sum, self._pending = self._sum.float(), None, None
        return gradient

    def _reduce_replicas(self, gradient: Tensor) -> Pending | None:
        replicas = self._reduction.replicas
        return None if replicas is None else replicas.all_reduce(gradient)

    def values(self) -> Tensor:
        """Return the parameter values of this rank's shard of the bucket in fp32.

        If the bucket is fp32, the result shares its memory.
        """
        return self._own.float()

    @torch.no_grad()
    def write(self, values: Tensor) -> None:
        """Set this rank's shard to new values, and gather the new values of the other ranks' shards into the bucket."""
        if self._own.data_ptr() != values.data_ptr():
            self._own.copy_(values)
        if self._reduction.shards is not None:
            self._reduction.shards.all_gather(self._flat, self._own).wait()

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """All parameters in the bucket."""
        return self._parameters

    @torch.no_grad()
    def held(self, values: Tensor) -> list[Tensor]:
        """Gather values (such as the moments of Adam) of the whole bucket, and return one tensor for each parameter.

        Args:
            values: One value for each element of this rank's shard of the bucket.
        """
        flat = values
        if self._reduction.shards is not None:
            flat = values.new_empty(len(self._flat))
            self._reduction.shards.all_gather(flat, values.contiguous()).wait()
        pieces = zip(_cut(flat, self._parameters), self._parameters, strict=True)
        return [piece.view_as(local_part(parameter.detach())) for piece, parameter in pieces]

    def own(self, held: Sequence[Tensor]) -> Tensor:
        """Pick the values of this rank's shard (such as its moments of Adam) from the values of the whole bucket.

        Args:
            held: Values of all elements of the bucket, one tensor per parameter, as ``held`` returns them.
        """
        flat = held[0].new_zeros(len(self._flat))
        for piece, value in zip(_cut(flat, self._parameters), held, strict=True):
            piece.copy_(value.reshape(-1))
        shards = self._reduction.shards
        return flat if shards is None else flat.chunk(shards.size)[shards.rank]


def buckets(parameters: Iterable[nn.Parameter], bucket_bytes: int) -> Iterator[list[nn.Parameter]]:
    """Yield parameters in groups, in their order. Each group becomes one flat tensor for the reduction of gradients.

    A group is complete when it has ``bucket_bytes`` or more.
    """
    bucket: list[nn.Parameter] = []
    held_bytes = 0
    for parameter in parameters:
        bucket.append(parameter)
        held_bytes += local_part(parameter.detach()).nbytes
        if held_bytes >= bucket_bytes:
            yield bucket
            bucket, held_bytes = [], 0
    if bucket:
        yield bucket


def _cut(flat: Tensor, parts: Iterable[Tensor]) -> list[Tensor]:
    """Return consecutive pieces of a flat tensor, with the sizes of the parts; the remainder is padding."""
    sizes = [local_part(part.detach()).numel() for part in parts]
    return list(torch.split(flat[: sum(sizes)], sizes))


def _replaced(stage: nn.Module, parameters: Sequence[nn.Parameter], views: Sequence[Tensor]) -> list[nn.Parameter]:
    """Replace parameters by new ones in the memory of ``views``; tied parameters are replaced under all their names."""
    new = {old: _parameter_like(old, view) for old, view in zip(parameters, views, strict=True)}
    for module in stage.modules():
        for name, old in list(module.named_parameters(recurse=False)):
            if old in new:
                setattr(module, name, new[old])
    return list(new.values())


def _parameter_like(old: nn.Parameter, local: Tensor) -> nn.Parameter:
    if not isinstance(old, DTensor):
        return nn.Parameter(local)
    return nn.Parameter(
        DTensor.from_local(
            local, old.device_mesh, old.placements, run_check=False, shape=old.shape, stride=old.stride()
        )
    )


class _Kind(NamedTuple):
    """The properties that all parameters of a bucket share."""

    num_replicas: int
    is_tied: bool


def optimizer_shards(stage: nn.Module, spec: TrialSpec, grid: Grid, overlap: Overlap) -> list[OptimizerShard]:
    """Return the optimizer shards of all parameters of a stage. A shard has the elements that this rank updates.

    If neither FSDP nor DDP reduces the gradients of the parameters, the parameters are moved into flat buckets.

    Args:
        stage: One pipeline stage of this rank.
        spec: The specification of the trial.
        grid: The grid of ranks, with this rank's place on it.
        overlap: Counts the bytes of gradients that DDP and flat buckets reduce while the backward pass still runs. It
            cannot see the reductions of FSDP.
    """
    if isinstance(stage, DistributedDataParallel):
        average(
            stage,
            dtype=torch.float32 if spec.layout.fp32_gradient_reduce else None,
            overlap=overlap,
            all_reduce=grid.communicator(grid.replicas).all_reduce if grid.has_own_collectives else None,
        )
    if not _is_flat(stage, grid):
        return [ParameterShard(parameter, **kind._asdict()) for parameter, kind in _parameters(stage, spec, grid)]
    kinds: dict[_Kind, list[nn.Parameter]] = defaultdict(list)
    for parameter, kind in _parameters(stage, spec, grid):
        kinds[kind].append(parameter)
    reduction = _reduction(spec, grid, overlap)
    return [
        BucketShard(stage, bucket, reduction, **kind._asdict())
        for kind, parameters in kinds.items()
        for bucket in buckets(parameters, spec.layout.gradient_bucket_bytes)
    ]


def _is_flat(stage: nn.Module, grid: Grid) -> bool:
    """Return True if gradients must be reduced, and neither FSDP nor DDP does it."""
    level = grid.layout.shard_level
    if level == ShardLevel.NONE:
        return grid.num_losses > 1 and not isinstance(stage, DistributedDataParallel)
    return level == ShardLevel.OPTIMIZER


def _reduction(spec: TrialSpec, grid: Grid, overlap: Overlap) -> Reduction:
    layout = spec.layout
    shards: Communicator | None
    replicas: Communicator | None
    if layout.shard_level == ShardLevel.NONE:
        shards, replicas = None, grid.communicator(grid.replicas)
    else:
        shards = grid.communicator(grid.axis("shard"))
        is_replicated = layout.data_parallel_replicate_degree > 1 and grid.sums_over_replicas
        replicas = grid.communicator(grid.axis("dp_replicate")) if is_replicated else None
    dtype = torch.float32 if layout.fp32_gradient_reduce else parameter_dtype(layout.precision)
    return Reduction(shards=shards, replicas=replicas, num_losses=grid.num_losses, dtype=dtype, overlap=overlap)


def _parameters(stage: nn.Module, spec: TrialSpec, grid: Grid) -> Iterator[tuple[nn.Parameter, _Kind]]:
    """Yield each parameter once, with the number of ranks of its gradient that have the same elements."""
    ranks_per_stage = grid.gradient.size() // spec.layout.pipeline_parallel_degree
    elsewhere = _table_elsewhere(stage, spec)
    for parameter in stage.parameters():
        is_tied = parameter is elsewhere
        num_replicas = ranks_per_stage // num_parts(parameter)
        yield parameter, _Kind(num_replicas=2 * num_replicas if is_tied else num_replicas, is_tied=is_tied)


def _table_elsewhere(stage: nn.Module, spec: TrialSpec) -> nn.Parameter | None:
    """Return the tied table of this stage if its other copy is on another stage; else None."""
    decoder = next(module for module in stage.modules() if isinstance(module, Decoder))
    if not spec.model.tied_embeddings or spec.layout.num_stages == 1:
        return None
    for table in (decoder.embedding, decoder.output):
        if table is not None and isinstance(table.weight, nn.Parameter):
            return table.weight
    return None
