"""Seeded luck: the same numbers for the same seed and question, whoever asks, in whatever order."""

from __future__ import annotations

import hashlib
import random
from statistics import NormalDist

from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload

_STANDARD = NormalDist()


def run_of(spec: TrialSpec) -> str:
    """Which run of its layout in its sweep it is, as a question names it."""
    return str(spec.run) if not spec.repeat else f"{spec.run} of trial {spec.repeat}"


class Luck:
    """What chance decides of a trial: equal for equal seeds, layouts and numbers of model and workload."""

    def __init__(self, spec: TrialSpec, seed: int) -> None:
        layout = f"{_numbers(spec.model)} {spec.layout} {_numbers_of_batch(spec.workload)}"
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


def _numbers(model: TransformerSpec) -> str:
    """What tells models apart, in this order: neither the names of fields nor a new one change anybody's luck."""
    width = f"{model.hidden_size} {model.num_heads} {model.num_kv_heads} {model.head_dim} {model.ffn_size}"
    parameters = f"{model.num_parameters} {model.num_active_parameters}"
    return f"{model.num_layers} {width} {model.vocab_size} {parameters}"


def _numbers_of_batch(workload: Workload) -> str:
    """The same of workloads."""
    tokens = f"{workload.seq_len} {workload.global_batch_size} {workload.tokens_per_step} {workload.keys_per_token}"
    return f"{tokens} {workload.optimizer_state_precision}"


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _share(number: int) -> float:
    return (number + 0.5) / 2**64


def _normal(number: int) -> float:
    return _STANDARD.inv_cdf(min(max(_share(number), 1e-12), 1.0 - 1e-12))
