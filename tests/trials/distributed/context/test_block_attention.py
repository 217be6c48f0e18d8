from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from autotuner.core.choices import AttentionKernel
from trials.distributed.block_attention import (
    BLOCK_KERNELS,
    BlockKernel,
    OnlineSoftmax,
    OnlineSoftmaxGradients,
    block_kernel,
)

HERE = (AttentionKernel.MATH, AttentionKernel.FLASH)
TOLERANCE = 1e-5  # fp32: sums of 16 products of unit normals in another order


def draw(heads: int, tokens: int, seed: int) -> Tensor:
    return torch.randn(2, heads, tokens, 8, generator=torch.Generator().manual_seed(seed))


def kernel_here(kernel: AttentionKernel) -> BlockKernel:
    return block_kernel(kernel, torch.device("cpu"))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kernel", HERE)
def test_a_block_is_attention_with_the_gradients_of_autograd(kernel: AttentionKernel, causal: bool) -> None:
    q, k, v = draw(4, 6, 1), draw(2, 6, 2), draw(2, 6, 3)
    leaves = tuple(x.clone().requires_grad_() for x in (q, k, v))
    query, key, value = leaves
    expected = functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
    gradient = draw(4, 6, 4)
    expected.backward(gradient)  # type: ignore[no-untyped-call]  # torch leaves it without types
    block = kernel_here(kernel)
    output, log_sum_exp, rest = block.forward(q, k, v, causal)
    assert torch.allclose(output, expected, atol=TOLERANCE)
    found = block.backward(gradient, q, k, v, output, log_sum_exp, rest, causal)
    for of_leaf, leaf in zip(found, leaves, strict=True):
        assert leaf.grad is not None
        assert torch.allclose(of_leaf, leaf.grad, atol=TOLERANCE)


@pytest.mark.parametrize("kernel", HERE)
def test_blocks_merge_to_attention_over_all_their_keys(kernel: AttentionKernel) -> None:
    """Six queries behind four keys, the last three of them behind two more in between."""
    q, k, v = draw(4, 12, 1), draw(2, 12, 2), draw(2, 12, 3)
    own = [4, 5, 6, 9, 10, 11]
    queries, keys, values = q[:, :, own], k[:, :, own], v[:, :, own]
    attended = OnlineSoftmax(kernel_here(kernel), queries, keys, values)
    attended.merge(k[:, :, :4], v[:, :, :4])
    attended.merge(k[:, :, 7:9], v[:, :, 7:9], first_query=3)
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[:, :, own]
    assert torch.allclose(attended.output(), expected, atol=TOLERANCE)


@pytest.mark.parametrize("kernel", [AttentionKernel.FLASH, AttentionKernel.EFFICIENT])
def test_the_kernels_of_a_gpu_are_called_as_torch_declares_them(kernel: AttentionKernel) -> None:
    """On tensors without data: names, order and shapes of what goes in and comes out; no values."""
    q, k, v = (torch.empty(2, 4, 20, 8, device="meta", dtype=torch.bfloat16) for _ in range(3))
    block = BLOCK_KERNELS[kernel]
    attended = OnlineSoftmax(block, q, k, v)
    attended.merge(k, v, first_query=10)
    assert attended.output().shape == q.shape
    assert attended.log_sum_exp_BHS.shape == q.shape[:3]
    gradients = OnlineSoftmaxGradients(block, q, q, attended.output(), attended.log_sum_exp_BHS, attended.rest)
    assert gradients.own_block(k, v).shape == (2, *k.shape)
    assert gradients.merged_block(k, v, first_query=10).shape == (2, *k.shape)
    assert gradients.queries().shape == q.shape
