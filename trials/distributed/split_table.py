"""A vocabulary table whose rows are split over the tensor ranks."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle
from torch.nn import functional


class SplitTable(ParallelStyle):
    """Each rank looks up the tokens whose rows it holds, and the ranks sum what they found (arXiv 1909.08053, 3).

    ``RowwiseParallel`` does the same forward; going backward, it makes a gradient of the whole table on every rank, and
    keeps it until the step's end (``embedding_dense_backward`` of DTensor, torch 2.13).
    """

    def __init__(self, found: Placement) -> None:
        self._found = found

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        module = distribute_module(module, device_mesh, _split_rows)
        module.forward = partial(_look_up, module, device_mesh, self._found)
        return module


def _split_rows(name: str, module: nn.Module, device_mesh: DeviceMesh) -> None:
    del name
    for leaf, parameter in list(module.named_parameters(recurse=False)):
        held = distribute_tensor(parameter, device_mesh, [Shard(0)], src_data_rank=None)
        setattr(module, leaf, nn.Parameter(held))


def _look_up(module: nn.Module, device_mesh: DeviceMesh, found: Placement, rows: Tensor) -> Tensor:
    table = module.weight
    assert isinstance(table, DTensor)
    held = table.to_local()
    first = device_mesh.get_local_rank() * -(-len(table) // device_mesh.size())  # DTensor fills the ranks in turn
    is_held = (rows >= first) & (rows < first + len(held))
    part = functional.embedding((rows - first).where(is_held, 0), held).where(is_held[..., None], 0)
    whole = DTensor.from_local(part, device_mesh, [Partial()], run_check=False).redistribute(placements=[found])
    local: Tensor = whole.to_local()
    return local
