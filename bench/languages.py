"""Languages of which each replica reads one: a training whose replicas do not learn from each other cannot do well.

Where all replicas read the same, one that is told nothing learns as much, and no exchange can be told from another.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

VOCAB_SIZE = 64
_CHANCES = (0.4, 0.3, 0.2, 0.1)
"""Of the four tokens that may follow a token; which four they are is the language."""

ENTROPY = -sum(chance * math.log(chance) for chance in _CHANCES)
"""The least loss in nats, of who knows the language: 1.280."""


def sequences(language: int, num_sequences: int, seq_len: int, seed: int) -> Tensor:
    """Tokens of shape ``[num_sequences, seq_len + 1]``, always the same for the same numbers."""
    followers = _followers(language)
    generator = torch.Generator().manual_seed(1_000_003 * seed + language)
    chosen = torch.multinomial(torch.tensor(_CHANCES), num_sequences * seq_len, replacement=True, generator=generator)
    tokens = torch.empty(num_sequences, seq_len + 1, dtype=torch.long)
    tokens[:, 0] = torch.randint(VOCAB_SIZE, (num_sequences,), generator=generator)
    for position, choice in enumerate(chosen.view(num_sequences, seq_len).T):
        tokens[:, position + 1] = followers[tokens[:, position], choice]
    return tokens


def _followers(language: int) -> Tensor:
    """The tokens that may follow each token, ``[VOCAB_SIZE, 4]``, likeliest first."""
    generator = torch.Generator().manual_seed(language)
    return torch.stack([torch.randperm(VOCAB_SIZE, generator=generator) for _ in _CHANCES], dim=1)
