from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask

from trials.batches.documents import Documents, attend_by_document, document_mask, is_visible, positions_in

CPU = torch.device("cpu")
DOCUMENTS: tuple[Documents, ...] = ((130, 1, 60, 200), (128, 128), (7,), (300, 5), (1,) * 300, (256, 3, 125))


def attended(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False, visible: Tensor | None = None) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    found = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=is_causal)
    return found.transpose(1, 2)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attended(q, k, v, is_causal=True)


def belonging(documents: Documents) -> Tensor:
    return torch.repeat_interleave(torch.tensor(documents))


def test_positions_begin_anew_with_each_document() -> None:
    assert positions_in((3, 1, 2)).tolist() == [0, 1, 2, 0, 0, 1]


def test_a_document_attends_to_itself_as_if_it_were_alone() -> None:
    documents = (5, 1, 9)
    q, k, v = torch.randn(3, 1, sum(documents), 2, 8, generator=torch.Generator().manual_seed(0))
    found = attend_by_document(causal, q, k, v, documents)
    alone = [causal(*(x[:, 5:6] for x in (q, k, v))), causal(*(x[:, 6:] for x in (q, k, v)))]
    assert torch.equal(found[:, 5:], torch.cat(alone, dim=1))


def test_attention_by_document_is_attention_with_a_mask_of_documents() -> None:
    documents = (5, 1, 9)
    q, k, v = torch.randn(3, 1, sum(documents), 2, 8, generator=torch.Generator().manual_seed(0))
    member, place = belonging(documents), torch.arange(sum(documents))
    visible = (member[:, None] == member) & (place[:, None] >= place)
    masked = attended(q, k, v, visible=visible)
    # weights of up to 9 tokens are summed in another order, each rounded by 6e-8
    found = attend_by_document(causal, q, k, v, documents)
    torch.testing.assert_close(found, masked, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("documents", DOCUMENTS, ids=str)
def test_the_mask_of_blocks_is_the_one_that_torch_finds_by_looking(documents: Documents) -> None:
    member, seq_len = belonging(documents), sum(documents)

    def of_one_document(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return is_visible(sequence, head, query, key) & (member[query] == member[key])

    made = document_mask(documents, CPU)
    found = create_block_mask(of_one_document, None, None, seq_len, seq_len, device="cpu")
    assert torch.equal(made.to_dense(), found.to_dense())
    for blocks in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(made, blocks), getattr(found, blocks)), blocks
    assert made.seq_lengths == found.seq_lengths
