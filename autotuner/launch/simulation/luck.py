"""Seeded luck: the same numbers for the same seed and question, whoever asks, in whatever order."""

from __future__ import annotations

import hashlib
import random
from statistics import NormalDist

from autotuner.domain.jobs.workload import Workload
from autotuner.domain.runs.trial_spec import TrialSpec
from autotuner.domain.wire import dumps, to_dict

__all__ = ["Luck", "run_of"]

_STANDARD = NormalDist()


def run_of(spec: TrialSpec) -> str:
    """Which run of its layout in its sweep it is, as a question names it."""
    return str(spec.run) if not spec.repeat else f"{spec.run} of trial {spec.repeat}"


class Luck:
    """What chance decides of a trial's layout: equal for equal seeds, models, workloads and layouts."""

    def __init__(self, spec: TrialSpec, seed: int) -> None:
        layout = f"{dumps(spec.model)} {spec.layout} {_said(spec.workload)}"  # words, which no new option changes
        self._key = f"{seed} {spec.seed} {layout}"
        self._of_layout = f"{seed} 0 {layout}"

    def of_layout(self, question: str) -> float:
        """A number of the standard normal distribution that no trial's seed changes: a later sweep meets it again."""
        return _normal(_number(f"{question} {self._of_layout}"))

    def share(self, question: str) -> float:
        """A number between 0 and 1, neither included, evenly distributed over layouts."""
        return _share(self._number(question))

    def deviation(self, question: str) -> float:
        """A number of the standard normal distribution."""
        return _normal(self._number(question))

    def series(self, question: str) -> random.Random:
        """As many numbers as are asked for."""
        return random.Random(self._number(question))

    def _number(self, question: str) -> int:
        return _number(f"{question} {self._key}")


def _said(workload: Workload) -> str:
    """What a workload says, without what it leaves out."""
    return " ".join(f"{name} {value}" for name, value in to_dict(workload).items() if value is not None)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _share(number: int) -> float:
    return (number + 0.5) / 2**64


def _normal(number: int) -> float:
    return _STANDARD.inv_cdf(min(max(_share(number), 1e-12), 1.0 - 1e-12))
