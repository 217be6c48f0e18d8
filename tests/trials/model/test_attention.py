from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autotuner.core.choices import AttentionKernel
from tests.builders import cpu_layout
from trials.batches.documents import Documents
from trials.model.attention import attend, attention_core, kernel_context

SEQ_LEN = 150  # a block and a part of one
CPU = torch.device("cpu")
ALL = slice(None)
MATH, FLASH, FLEX = AttentionKernel.MATH, AttentionKernel.FLASH, AttentionKernel.FLEX


def heads(num_heads: int, seed: int) -> Tensor:
    return torch.randn(2, SEQ_LEN, num_heads, 16, generator=torch.Generator().manual_seed(seed))


def attended(kernel: AttentionKernel, num_kv_heads: int, documents: Documents = (), tokens: slice = ALL) -> Tensor:
    core = attention_core(kernel, seq_len=SEQ_LEN, device=CPU)
    with torch.no_grad(), kernel_context(cpu_layout(attention_kernel=kernel)):
        q, k, v = (heads(num, seed)[:, tokens] for num, seed in ((4, 0), (num_kv_heads, 1), (num_kv_heads, 2)))
        return core(q, k, v, documents)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # as is meant on a CPU
@pytest.mark.parametrize("num_kv_heads", [4, 2])
@pytest.mark.parametrize("kernel", [FLASH, FLEX], ids=str)
def test_every_kernel_attends_alike(kernel: AttentionKernel, num_kv_heads: int) -> None:
    # weights of up to 150 tokens are summed in another order, each rounded by 6e-8
    torch.testing.assert_close(attended(kernel, num_kv_heads), attended(MATH, num_kv_heads), rtol=1e-5, atol=1e-6)


def test_attention_is_causal_scaled_and_sums_to_one() -> None:
    ones = torch.ones(1, SEQ_LEN, 1, 16)
    positions = torch.arange(float(SEQ_LEN)).reshape(1, SEQ_LEN, 1, 1).expand(1, SEQ_LEN, 1, 16)
    with kernel_context(cpu_layout(attention_kernel=MATH)):
        means = attend(ones, ones, positions)  # equal scores: each token sees the mean of the positions up to its own
    torch.testing.assert_close(means, positions / 2, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # as is meant on a CPU
@pytest.mark.parametrize("kernel", [MATH, FLASH, FLEX], ids=str)
def test_documents_of_a_row_attend_each_to_itself_by_every_kernel(kernel: AttentionKernel) -> None:
    documents = (100, 1, 49)
    whole = attended(kernel, 2, documents)
    alone = attended(kernel, 2, tokens=slice(101, 150))
    # weights of up to 150 tokens are summed in another order, each rounded by 6e-8
    torch.testing.assert_close(whole[:, 101:], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", [AttentionKernel.EFFICIENT, AttentionKernel.CUDNN], ids=str)
def test_a_kernel_that_the_device_lacks_is_not_quietly_replaced(kernel: AttentionKernel) -> None:
    with (
        kernel_context(cpu_layout(attention_kernel=kernel)),
        pytest.raises(RuntimeError, match="No viable backend"),
    ):
        attend(heads(4, 0), heads(4, 1), heads(4, 2))
