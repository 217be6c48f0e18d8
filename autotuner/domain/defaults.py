"""What a caller who does not choose gets."""

from __future__ import annotations

from autotuner.domain.choice import AttentionKernel, Precision
from autotuner.domain.cluster import Accelerator, Cluster
from autotuner.domain.sweep import SearchSpace

__all__ = ["default_space"]


def default_space(cluster: Cluster) -> SearchSpace:
    """The default search space with the number format and attention kernel that are usual on that hardware.

    A CPU trains in fp32 with plain attention: its 16-bit kernels are slower than they look or missing, and the
    sweep's purpose there is comparing layouts. A GPU trains in bf16 with the best kernel it has; one without bf16
    in fp32, where flash attention does not run.
    """
    accelerator = cluster.accelerator
    if accelerator.kind == "cpu" or Precision.BF16 not in accelerator.precisions:
        return SearchSpace(precision=(Precision.FP32,), attention_kernel=(_plain_kernel(accelerator),))
    return SearchSpace(attention_kernel=(max(accelerator.attention_kernels),))


def _plain_kernel(accelerator: Accelerator) -> AttentionKernel:
    return min(accelerator.attention_kernels)
