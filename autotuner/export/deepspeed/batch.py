"""The batch equation: ``train_batch_size`` = micro-batch x accumulation x data-parallel ranks.

DeepSpeed checks it only once its process group stands (runtime/config.py, 0.19.8, takes one rank before), so that it is
checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.core.errors import InvalidInput
from autotuner.export.keys import number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences of a micro-batch and of a step, and the data-parallel ranks that share them; None: nothing says it."""

    micro_batch_size: int | None
    global_batch_size: int | None
    num_data_ranks: int | None


def batch_of(config: Mapping[str, object], num_data_ranks: int | None) -> Batch:
    """What the three keys say together.

    Raises:
        InvalidInput: They contradict each other, or the ranks.
    """
    whole, micro, steps = (
        number_of(key, config[key], at_least=1) if key in config else None
        for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    if whole is not None and micro is not None and steps is not None and num_data_ranks is None:
        num_data_ranks = _quotient(whole, micro * steps, "micro-batch size times accumulation steps")
    if num_data_ranks is None:
        return Batch(micro_batch_size=micro, global_batch_size=whole, num_data_ranks=None)
    if micro is None and whole is not None:
        micro = _quotient(whole, num_data_ranks * (steps or 1), "data-parallel ranks times accumulation steps")
    if micro is not None and whole is None:
        whole = micro * (steps or 1) * num_data_ranks
    if micro is not None and whole is not None:
        _check(whole, micro * (steps or 1), num_data_ranks, is_exact=steps is not None)
    return Batch(micro_batch_size=micro, global_batch_size=whole, num_data_ranks=num_data_ranks)


def _quotient(whole: int, part: int, name: str) -> int:
    if whole % part:
        rule = f"must be a multiple of {name} ({part})"
        raise InvalidInput("train_batch_size", whole, rule, max(1, round(whole / part)) * part)
    return whole // part


def _check(whole: int, each: int, num_data_ranks: int, *, is_exact: bool) -> None:
    product = each * num_data_ranks
    if whole % product or (is_exact and whole != product):
        rule = (
            f"must be micro-batch size times accumulation steps ({each}) times the {num_data_ranks} data-parallel ranks"
        )
        raise InvalidInput("train_batch_size", whole, rule, product)
