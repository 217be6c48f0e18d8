"""torch.compile, layer by layer, and the seconds that it took."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed._symmetric_memory as symmetric_memory
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from autotuner.core.layout import Layout


def compiled(layer: nn.Module, layout: Layout, tensor_axis: DeviceMesh) -> nn.Module:
    """The layer, compiled if the layout says so; the first step then takes as long as the compiler.

    It is the layer's ``forward`` that is compiled, not its call: hooks around the layer (FSDP's, the stopwatch's)
    stay outside, where nothing has to be traced.
    """
    if not layout.compiled:
        return layer
    torch._inductor.config.compile_threads = 1  # a rank is a fork with one core; a pool of compilers would fork again
    # DDP would cut the graphs at the ends of its buckets, which lie between layers anyway, and fails where one is small
    torch._dynamo.config.optimize_ddp = False
    if layout.async_tensor_parallel:
        _decompose_collectives(tensor_axis)
    layer.forward = torch.compile(layer.forward, fullgraph=True)
    return layer


def _decompose_collectives(tensor_axis: DeviceMesh) -> None:
    """Let the compiler run a tensor collective under the matrix product beside it, through symmetric memory.

    As torchtitan does (arXiv 2410.06511, section 2.1.3); CUDA only.
    """
    torch._inductor.config._micro_pipeline_tp = True
    symmetric_memory.enable_symm_mem_for_group(tensor_axis.get_group().group_name)


def compile_time_s() -> float:
    """Seconds of all compilations of this process so far, forward and backward; 0.0 where nothing compiled.

    It is dynamo's own count. The first step less a later one would count what else happens once: shapes exchanged,
    moments allocated, rules of DTensor worked out.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.utils")  # a process that compiles nothing need not import it
    return float(dynamo.calculate_time_spent()["total_wall_time"]) if dynamo else 0.0
