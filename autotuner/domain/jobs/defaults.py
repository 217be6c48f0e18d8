"""What a caller who does not choose gets."""

from __future__ import annotations

from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.layouts.choice import AttentionKernel, Precision
from autotuner.domain.layouts.search_space import SearchSpace

__all__ = ["default_space"]

_TORCH_KERNELS = (AttentionKernel.MATH, AttentionKernel.EFFICIENT, AttentionKernel.FLASH)
"""What ``scaled_dot_product_attention`` offers, the plainest first."""


def default_space(cluster: Cluster) -> SearchSpace:
    """The default search space with the number format and attention kernel that are usual on that hardware.

    A GPU trains in bf16 and a CPU in fp32, with the best kernel of PyTorch that they have. A GPU without bf16 trains in
    fp32 with the plain kernel, the one that runs for every model there.
    """
    kernels = [k for k in _TORCH_KERNELS if k in cluster.accelerator.attention_kernels] or [AttentionKernel.MATH]
    if cluster.accelerator.kind == "cpu":
        return SearchSpace(precision=(Precision.FP32,), attention_kernel=(kernels[-1],))
    if Precision.BF16 not in cluster.accelerator.precisions:
        return SearchSpace(precision=(Precision.FP32,), attention_kernel=(kernels[0],))
    return SearchSpace(attention_kernel=(kernels[-1],))
