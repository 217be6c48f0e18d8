"""Seeded luck: the same numbers for the same seed and question, whoever asks, in whatever order."""

from __future__ import annotations

import hashlib
import random
from statistics import NormalDist

from autotuner.domain.runs.trial import TrialSpec
from autotuner.domain.wire import dumps

__all__ = ["Luck", "run_of"]

_STANDARD = NormalDist()


def run_of(spec: TrialSpec) -> str:
    """Which run of its layout in its sweep it is, as a question names it."""
    return str(spec.run) if not spec.repeat else f"{spec.run} of trial {spec.repeat}"


class Luck:
    """What chance decides of a trial's layout: equal for equal seeds, models, workloads and layouts."""

    def __init__(self, spec: TrialSpec, seed: int) -> None:
        self._key = f"{seed} {spec.seed} {dumps(spec.model)} {dumps(spec.workload)} {dumps(spec.layout)}"

    def share(self, question: str) -> float:
        """A number between 0 and 1, neither included, evenly distributed over layouts."""
        return (self._number(question) + 0.5) / 2**64

    def deviation(self, question: str) -> float:
        """A number of the standard normal distribution."""
        return _STANDARD.inv_cdf(min(max(self.share(question), 1e-12), 1.0 - 1e-12))

    def series(self, question: str) -> random.Random:
        """As many numbers as are asked for."""
        return random.Random(self._number(question))

    def _number(self, question: str) -> int:
        digest = hashlib.blake2b(f"{question} {self._key}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")
