"""torch.compile, layer by layer."""

from __future__ import annotations

import torch
import torch.distributed._symmetric_memory as symmetric_memory
from torch import nn

from trials.distributed.mesh import Grid

__all__ = ["compiled"]


def compiled(layer: nn.Module, grid: Grid) -> nn.Module:
    """The layer, compiled if the layout says so; the first step then takes as long as the compiler.

    It is the layer's ``forward`` that is compiled, not its call: hooks around the layer (FSDP's, the stopwatch's)
    stay outside, where nothing has to be traced.
    """
    if not grid.layout.compiled:
        return layer
    torch._inductor.config.compile_threads = 1  # a rank is a fork with one core; a pool of compilers would fork again
    # DDP would cut the graphs at the ends of its buckets, which lie between layers anyway, and fails where one is small
    torch._dynamo.config.optimize_ddp = False
    if grid.layout.async_tensor_parallel:
        _cut_up_collectives(grid)
    layer.forward = torch.compile(layer.forward, fullgraph=True)
    return layer


def _cut_up_collectives(grid: Grid) -> None:
    """Let the compiler run a tensor collective under the matrix product beside it, through symmetric memory.

    As torchtitan does (arXiv 2410.06511, section 2.1.3); CUDA only.
    """
    torch._inductor.config._micro_pipeline_tp = True
    symmetric_memory.enable_symm_mem_for_group(grid.axis("tp").get_group().group_name)
