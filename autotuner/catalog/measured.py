"""Kernel laws with what a profile of the very device measured, in the place of what the catalog says of its kind."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from autotuner.core.accelerator import Accelerator, MeasuredAttention
from autotuner.core.choices import Precision
from autotuner.core.kernels import AttentionLaw, FusedPass, GemmLaw, KernelLaws

__all__ = ["with_measured"]


def with_measured(laws: KernelLaws, accelerator: Accelerator) -> KernelLaws:
    """The laws as they are for an accelerator that carries no measurements."""
    shares = {measured.precision: measured.peak_share for measured in accelerator.measured_gemm}

    def gemm(precision: Precision, law: GemmLaw) -> GemmLaw:
        return replace(law, peak_share=shares[precision]) if precision in shares else law

    def attention(precision: Precision, law: AttentionLaw) -> AttentionLaw:
        fused = dict(law.fused)
        for measured in accelerator.measured_attention:
            if measured.precision == precision and measured.kernel in fused:
                fused[measured.kernel] = _passes(measured, *fused[measured.kernel])
        return replace(law, products=gemm(precision, law.products), fused=MappingProxyType(fused))

    return KernelLaws(
        gemm=MappingProxyType({p: gemm(p, law) for p, law in laws.gemm.items()}),
        attention=MappingProxyType({p: attention(p, law) for p, law in laws.attention.items()}),
    )


def _passes(measured: MeasuredAttention, forward: FusedPass, backward: FusedPass) -> tuple[FusedPass, FusedPass]:
    return _measured(forward, measured.forward_share), _measured(backward, measured.backward_share)


def _measured(one_pass: FusedPass, share_of_all_pairs: float) -> FusedPass:
    """One share for products, exponentials and the ends of blocks together: a profile does not tell them apart."""
    share = share_of_all_pairs / 2 if one_pass.skips_masked else share_of_all_pairs
    return replace(one_pass, product_share=min(1.0, share), softmax_flop_per_score=0.0, overhead_keys=0.0)
