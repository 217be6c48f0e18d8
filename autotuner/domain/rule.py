"""A rule that layouts keep, and the job that they are judged for.

A rule is one comparison written with ``%``, ``<``, ``!=``, ``&`` and ``|`` only, so the same line judges one ``Layout``
(Python integers) and a table of a million (numpy columns with the same field names).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from autotuner.domain.cluster import Cluster
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.stack import Stack
from autotuner.domain.workload import Workload
from autotuner.errors import InvalidInput

__all__ = ["Job", "Layouts", "Reason", "Rule", "any_of", "maximum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is given while layouts are chosen: model, cluster, workload, and the software that will run them.

    Raises:
        InvalidInput: The sequence is longer than the model's learned positions.
    """

    model: TransformerSpec
    cluster: Cluster
    workload: Workload
    stack: Stack = field(default_factory=Stack)

    def __post_init__(self) -> None:
        positions, seq_len = self.model.num_learned_positions, self.workload.seq_len
        if 0 < positions < seq_len:
            rule = f"must not exceed the {positions} learned positions of {self.model.name}"
            raise InvalidInput("workload.seq_len", seq_len, rule, positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a layout cannot run.

    Attributes:
        rule: Name of the rule, stable enough to filter by.
        field: The layout field to change.
        message: A sentence with the numbers in it.
        nearest: The nearest value of ``field`` that keeps this rule, where one is known.
    """

    rule: str
    field: str
    message: str
    nearest: int | str | bool | None = None


Layouts: TypeAlias = Any
"""One layout, or columns of them: the fields of ``Layout`` and its derived degrees, by the same names."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One comparison that an impossible layout fails."""

    name: str
    field: str
    broken: Callable[[Any, Job], Any]
    message: Callable[[Layout, Job], str]
    nearest: Callable[[Layout, Job], int | str | bool | None] = lambda layout, job: None


def any_of(column: Any, members: Iterable[int]) -> Any:
    """Whether a field has one of the values: a bool, or a bool column."""
    verdict: Any = False
    for member in members:
        verdict = verdict | (column == member)
    return verdict


def maximum(left: Any, right: Any) -> Any:
    """The larger of two integers, or of two integer columns row by row."""
    return left + (right - left) * (right > left)
