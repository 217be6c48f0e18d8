"""How tensor ranks share the feed-forward block of a sparse layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, SequenceParallel

from autotuner.domain.layout import Layout

__all__ = ["routed_plan"]


def routed_plan(layout: Layout, path: str) -> dict[str, ParallelStyle]:
    """Styles of the routed experts at ``path``: each matrix is split, or whole experts see a part of the tokens.

    Where every rank holds columns and rows of all experts it sees all tokens, routes them as the others do, and its
    answers are parts of a sum; so are all gradients that it computes, the router's included. Where it holds whole
    experts it routes the tokens of its part of the sequence, and the router's gradient is again a part of a sum.
    """
    between: Placement = Shard(1) if layout.sequence_parallel else Replicate()
    router = SequenceParallel(sequence_dim=0, use_local_output=True)
    if layout.expert_parallel_degree == 1:
        tokens = _Tokens(outside=between, inside=Replicate(), gradient=Partial(), answers=Partial())
        return {path: tokens, f"{path}.router": router, f"{path}.experts": _SplitMatrices()}
    part = Shard(1)
    return {path: _Tokens(outside=between, inside=part, gradient=part, answers=part), f"{path}.router": router}


class _Tokens(ParallelStyle):
    """Brings the tokens that a module sees from one placement to another, and its answers back."""

    def __init__(self, *, outside: Placement, inside: Placement, gradient: Placement, answers: Placement) -> None:
        super().__init__()
        self._outside, self._inside = [outside], [inside]
        self._gradient, self._answers = [gradient], [answers]

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def enter(_: nn.Module, inputs: tuple[Any, ...]) -> Tensor:
            (x,) = inputs
            whole = x if isinstance(x, DTensor) else DTensor.from_local(x, device_mesh, self._outside, run_check=False)
            return whole.redistribute(placements=self._inside).to_local(grad_placements=self._gradient)

        def leave(_: nn.Module, _inputs: object, answers: Tensor) -> Tensor:
            whole = DTensor.from_local(answers, device_mesh, self._answers, run_check=False)
            return whole.redistribute(placements=self._outside).to_local()

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
        return module


class _SplitMatrices(ParallelStyle):
    """Every expert's first matrices by rows of output, its last one by columns of input."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters()):
            split = Shard(2 if name == "down" else 1)
            part = distribute_tensor(parameter.detach(), device_mesh, [split], src_data_rank=None)
            setattr(module, name, nn.Parameter(part))
        return module
