"""What a caller who does not choose gets."""

from __future__ import annotations

from autotuner.domain.choice import AttentionKernel, Precision
from autotuner.domain.cluster import Cluster
from autotuner.domain.sweep import SearchSpace

__all__ = ["default_space"]


def default_space(cluster: Cluster) -> SearchSpace:
    """The default search space with the number format and attention kernel that are usual on that hardware.

    A GPU trains in bf16; a CPU, or a GPU without bf16, in fp32. Both take the best kernel they have; flash attention
    does not run in fp32 on a GPU.
    """
    accelerator = cluster.accelerator
    on_cpu = accelerator.kind == "cpu"
    if not on_cpu and Precision.BF16 in accelerator.precisions:
        return SearchSpace(attention_kernel=(max(accelerator.attention_kernels),))
    kernels = [k for k in accelerator.attention_kernels if on_cpu or k != AttentionKernel.FLASH]
    return SearchSpace(precision=(Precision.FP32,), attention_kernel=(max(kernels, default=AttentionKernel.MATH),))
