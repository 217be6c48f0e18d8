from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.kernels import kernels_for
from autotuner.core.accelerator import MeasuredAttention, MeasuredGemm
from autotuner.core.choices import AttentionKernel, Precision
from tests.builders import cpu_cluster


def test_laws_take_the_shares_that_the_device_was_measured_at() -> None:
    core = cpu_cluster().accelerator
    measured = replace(
        core,
        measured_gemm=(MeasuredGemm(precision=Precision.FP32, peak_share=0.5),),
        measured_attention=(
            MeasuredAttention(
                kernel=AttentionKernel.FLASH, precision=Precision.FP32, forward_share=0.6, backward_share=0.4
            ),
        ),
    )
    before, after = kernels_for(core), kernels_for(measured)
    assert after.gemm[Precision.FP32].peak_share == 0.5
    assert after.gemm[Precision.BF16] == before.gemm[Precision.BF16]
    forward, backward = after.attention[Precision.FP32].fused[AttentionKernel.FLASH]
    # flash skips what is masked, half of all pairs, and its law counts the rest
    assert (forward.product_share, backward.product_share) == (0.3, 0.2)
    math = after.attention[Precision.FP32].fused[AttentionKernel.MATH]
    assert math == before.attention[Precision.FP32].fused[AttentionKernel.MATH]
