from __future__ import annotations

import pytest
import torch

from autotuner.core.errors import InvalidInput
from trials.batches.micro_batch import NO_LABEL, packed, padded

SEQUENCES = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6]), torch.tensor([7, 8, 9])]


def test_padded_rows_are_as_long_as_the_longest_sequence_and_padding_has_no_label() -> None:
    found = padded(SEQUENCES)
    assert found.tokens_BS.tolist() == [[1, 2, 3], [5, 0, 0], [7, 8, 0]]
    assert found.labels_BS.tolist() == [[2, 3, 4], [6, NO_LABEL, NO_LABEL], [8, 9, NO_LABEL]]
    assert found.documents == ()
    assert found.num_tokens == 6


def test_a_packed_row_is_the_sequences_one_behind_the_other() -> None:
    found = packed(SEQUENCES)
    assert found.tokens_BS.tolist() == [[1, 2, 3, 5, 7, 8]]
    assert found.labels_BS.tolist() == [[2, 3, 4, 6, 8, 9]]
    assert found.documents == (3, 1, 2)


def test_what_fills_a_packed_row_up_is_a_document_of_its_own() -> None:
    found = packed(SEQUENCES, multiple=4)
    assert found.tokens_BS.shape == (1, 8)
    assert found.documents == (3, 1, 2, 2)
    assert found.labels_BS[0, 6:].tolist() == [NO_LABEL, NO_LABEL]
    assert found.num_tokens == 6


def test_a_row_that_is_too_short_is_refused_with_the_length_that_would_do() -> None:
    with pytest.raises(InvalidInput, match="row_length"):
        padded(SEQUENCES, row_length=2)


def test_a_sequence_without_a_token_that_follows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="sequences"):
        packed([torch.tensor([1])])
