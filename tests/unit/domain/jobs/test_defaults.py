from __future__ import annotations

from autotuner.domain.jobs.defaults import default_space
from autotuner.domain.layouts.choice import AttentionKernel, Precision
from autotuner.domain.layouts.search_space import SearchSpace
from tests.builders import cpu_cluster, h100, h100_cluster


def test_a_gpu_trains_in_bf16_with_flash_attention() -> None:
    assert default_space(h100_cluster()) == SearchSpace()


def test_a_cpu_trains_in_fp32_with_flash_attention() -> None:
    space = default_space(cpu_cluster())
    assert (space.values("precision"), space.values("attention_kernel")) == (
        (Precision.FP32,),
        (AttentionKernel.FLASH,),
    )


def test_a_gpu_without_bf16_trains_in_fp32_with_the_plain_kernel() -> None:
    space = default_space(h100_cluster(accelerator=h100(bf16_flop_per_s=0.0, fp8_flop_per_s=0.0)))
    assert (space.values("precision"), space.values("attention_kernel")) == ((Precision.FP32,), (AttentionKernel.MATH,))


def test_a_gpu_without_flash_takes_the_best_kernel_it_has() -> None:
    kernels = (AttentionKernel.EFFICIENT, AttentionKernel.MATH)
    space = default_space(h100_cluster(accelerator=h100(attention_kernels=kernels)))
    assert space.values("attention_kernel") == (AttentionKernel.EFFICIENT,)
