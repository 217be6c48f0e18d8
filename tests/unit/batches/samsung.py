"""The lengths that arXiv 2402.02447 deals: of 16 sequences 6, 3, 2 and 5 lie in the four quarters up to 512 tokens."""

from __future__ import annotations

from autotuner.core.workload import LengthDistribution

SEQ_LEN = 512
_QUOTAS = (6, 3, 2, 5)
_AT_LONGEST = 0.6
"""Share of the last quarter that is cut to 512 tokens, others being even: assumed, as no histogram is published."""


def wikipedia() -> LengthDistribution:
    """How long the sequences of BERT's pre-training are."""
    quarter = SEQ_LEN // len(_QUOTAS)
    weights = [quota / quarter for quota in _QUOTAS for _ in range(quarter)]
    last = slice(-quarter, None)
    weights[last] = [weight * (1 - _AT_LONGEST) for weight in weights[last]]
    weights[-1] += _QUOTAS[-1] * _AT_LONGEST
    return LengthDistribution(lengths=tuple(range(1, SEQ_LEN + 1)), weights=tuple(weights))
