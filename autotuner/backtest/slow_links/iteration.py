"""One row of a table of iteration times under slow links: what ran, over which links, and how long it took."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from autotuner.backtest.cells import Row, UnusableRow, count, maybe_count, maybe_positive, positive, text

REQUIRED_COLUMNS = ("model", "pp", "microbatches", "method", "slow_links", "delay_ms", "last5_mean_ms")

_MOST_PASSES = 20_000
"""Micro-batches through stages: 64 stages of 312 micro-batches take a second."""


class Method(StrEnum):
    """What a pipeline did about slow links."""

    ONE_F_ONE_B = "1f1b"
    ZERO_BUBBLE = "zb"
    DELEGATED = "delegated"  # the order of ``zb``, sends carried by other processes
    ADAPTED = "adapted"  # planned around the slow links, sends carried by other processes

    @property
    def is_inline(self) -> bool:
        """Whether a rank sends what it computes itself."""
        return self in (Method.ONE_F_ONE_B, Method.ZERO_BUBBLE)


_METHODS = {
    **dict.fromkeys(("1f1b", "one_f_one_b", "megatron"), Method.ONE_F_ONE_B),
    **dict.fromkeys(("zb", "zbpp", "zb_h2", "zb_2p", "zero_bubble", "zerobubble"), Method.ZERO_BUBBLE),
    **dict.fromkeys(("zb_cpu_delegated", "cpu_delegated", "delegate", "delegated", "zb_delegated"), Method.DELEGATED),
    **dict.fromkeys(("delegate_only", "delegated_only", "zb_delegate", "zb_cpu_delegate"), Method.DELEGATED),
    **dict.fromkeys(("pipemorph", "adaptra", "adaptive", "adapted", "zb_adaptive"), Method.ADAPTED),
}
"""Words of the tables, in lower case, with ``_`` between their parts."""


class Pipeline(NamedTuple):
    """What rows of one calibration have in common."""

    testbed: str
    model: str
    num_ranks: int
    tensor_degree: int
    data_degree: int
    num_micro_batches: int

    def __str__(self) -> str:
        sizes = f"pp {self.num_ranks}, tp {self.tensor_degree}, dp {self.data_degree}, {self.num_micro_batches} mb"
        return f"{self.testbed} {self.model} ({sizes})".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """A row that can be judged.

    Attributes:
        pipeline: What ran where.
        method: How.
        delay_s: Delay by slow link; link i joins the stages i and i + 1.
        hidden: Width of what is sent; None where the table does not say.
        healthy_s: The run's iterations before its links became slow; None where the table does not say.
        measured_s: Its iterations under slow links.
    """

    pipeline: Pipeline
    method: Method
    delay_s: tuple[tuple[int, float], ...]
    hidden: int | None
    healthy_s: float | None
    measured_s: float

    @property
    def links(self) -> str:
        """Slow links and their delays, in words."""
        return ", ".join(f"{link}-{link + 1}: {1e3 * delay_s:g} ms" for link, delay_s in self.delay_s) or "healthy"


def read_iteration(row: Row) -> Iteration:
    """The iteration that a row describes.

    Raises:
        UnusableRow: Something is missing, contradicts itself, or is of a method that nobody here knows.
    """
    pipeline = Pipeline(
        testbed=text(row, "testbed"),
        model=text(row, "model"),
        num_ranks=count(row, "pp"),
        tensor_degree=maybe_count(row, "tp") or 1,
        data_degree=maybe_count(row, "dp") or 1,
        num_micro_batches=count(row, "microbatches"),
    )
    if pipeline.num_ranks < 2:
        raise UnusableRow("a pipeline of one rank has no links")
    if pipeline.num_ranks * pipeline.num_micro_batches > _MOST_PASSES:
        raise UnusableRow("a pipeline of more passes than are simulated", str(pipeline))
    links, healthy_ms = _links(row, pipeline.num_ranks), maybe_positive(row, "healthy_ms")
    return Iteration(
        pipeline=pipeline,
        method=_method(text(row, "method")),
        delay_s=tuple(sorted(zip(links, _delays_s(row, len(links)), strict=True))),
        hidden=maybe_count(row, "hidden"),
        healthy_s=None if healthy_ms is None else healthy_ms / 1e3,
        measured_s=positive(row, "last5_mean_ms") / 1e3,
    )


def _method(word: str) -> Method:
    method = _METHODS.get(re.sub(r"[\s\-+]+", "_", word.strip().lower()))
    if method is None:
        raise UnusableRow(f"the method {word!r} is not known", f"known are {', '.join(sorted(_METHODS))}")
    return method


def _links(row: Row, num_ranks: int) -> list[int]:
    """The first stage of every slow link: ``0_1,6_7`` is 0 and 6."""
    cell = text(row, "slow_links")
    rest = re.sub(r"\d+\s*[_\-:>]+\s*\d+", "", cell)
    if re.sub(r"[\s,;|+/&\[\]()'\"]", "", rest).lower() not in ("", "none", "healthy"):
        raise UnusableRow("slow_links is no list of links such as 0_1,6_7", cell)
    links = []
    for a, b in re.findall(r"(\d+)\s*[_\-:>]+\s*(\d+)", cell):
        first, second = sorted((int(a), int(b)))
        if second != first + 1 or second >= num_ranks:
            raise UnusableRow("a slow link joins no neighbouring stages", f"{cell} of {num_ranks} stages")
        links.append(first)
    if len(set(links)) < len(links):
        raise UnusableRow("a slow link is named twice", cell)
    return links


def _delays_s(row: Row, num_links: int) -> list[float]:
    """One delay for all slow links, or one each."""
    cell = text(row, "delay_ms")
    words = [word for word in re.split(r"[\s,;|]+", cell.removesuffix("ms")) if word]
    if not num_links:
        return []
    if len(words) not in (1, num_links):
        raise UnusableRow("delay_ms is neither one delay nor one per slow link", cell)
    try:
        delays_s = [float(word) / 1e3 for word in words]
    except ValueError as error:
        raise UnusableRow("delay_ms is no number", cell) from error
    if not all(0 <= delay_s < math.inf for delay_s in delays_s):
        raise UnusableRow("delay_ms is no delay that a transfer survives", cell)
    return delays_s * num_links if len(words) == 1 else delays_s
