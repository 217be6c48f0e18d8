"""Lengths of the sequences of a batch, drawn from a distribution: a function of a seed and a step, on every machine."""

from __future__ import annotations

from random import Random

from autotuner.core.workload import LengthDistribution


def drawn(distribution: LengthDistribution, *, num_sequences: int, seed: int, step: int) -> tuple[int, ...]:
    """Tokens of each sequence of a step's global batch, independent of each other, as of a shuffled corpus.

    Whatever deals them, the batch is the same: a prediction and a trial of it see the same lengths.
    """
    generator = Random(f"{seed}/{step}")  # a string: its bytes are hashed alike in every process
    return distribution.at_each([generator.random() for _ in range(num_sequences)])
