"""Normalisation over the last dim, as one operation or composed of several."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autotuner.core.model import TransformerSpec

_EPSILON = 1e-5  # Llama 3's rms_norm_eps (model card, 2024-04)


def norm(spec: TransformerSpec, width: int, *, fused: bool = True) -> nn.Module:
    """The spec's normalisation; both ways have the same parameters by the same names."""
    if spec.norm == "rmsnorm":
        return (nn.RMSNorm if fused else _ComposedRMSNorm)(width, eps=_EPSILON)
    weights = spec.norm != "layernorm_without_weights"
    kind = nn.LayerNorm if fused else _ComposedLayerNorm
    return kind(width, eps=_EPSILON, elementwise_affine=weights, bias=spec.norm == "layernorm")


class _ComposedRMSNorm(nn.RMSNorm):
    """Root mean square normalisation (arXiv 1910.07467, equation 4), one elementary operation after another.

    It computes in fp32, as the fused kernels do inside; what it writes in between is what fusing saves.
    """

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with its last dim of root mean square 1, times the weight."""
        exact = x.float()
        normed = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + _EPSILON)
        return (normed * self.weight.float()).to(x.dtype)


class _ComposedLayerNorm(nn.LayerNorm):
    """Layer normalisation (arXiv 1607.06450, equation 4), one elementary operation after another, in fp32 as well."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with its last dim of mean 0 and variance 1, times the weight, plus the bias."""
        exact = x.float()
        centred = exact - exact.mean(-1, keepdim=True)
        normed = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + _EPSILON)
        if self.elementwise_affine:
            normed = normed * self.weight.float()
        return (normed if self.bias is None else normed + self.bias.float()).to(x.dtype)
