"""Backtest of pipelines under slow links, against measured iteration times.

One number per pipeline is calibrated, from its iterations without slow links: the seconds of a pass, which is the same
for forward passes, input gradients and weight gradients of every stage. Everything else follows from the row and from
the constants of this module.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple, TypeAlias

from autotuner.backtests.cells import Row, UnusableRow, count, maybe_count, maybe_positive, positive, text
from autotuner.backtests.measured_table import columns_and_rows
from autotuner.schedules.planner import adaptive, warm_up
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import BLOCKING, BLOCKING_IN_TURN, PassTimes, Transport, delegated, simulate
from autotuner.schedules.standard_schedules import one_f_one_b

REQUIRED_COLUMNS = ("model", "pp", "microbatches", "method", "slow_links", "delay_ms", "last5_mean_ms")

_MOST_PASSES = 20_000
"""Largest number of passes of micro-batches through stages. 64 stages with 312 micro-batches take a second."""


class Method(StrEnum):
    """A method to run a pipeline over slow links: its schedule, and who sends between stages (ranks or helpers)."""

    ONE_F_ONE_B = "1f1b"
    ZERO_BUBBLE = "zb"
    DELEGATED = "delegated"  # the order of ``zb``; other processes send
    ADAPTED = "adapted"  # planned around the slow links; other processes send

    @property
    def is_inline(self) -> bool:
        """True if each rank sends its own results to the next stage, so that a slow link delays its computation."""
        return self in (Method.ONE_F_ONE_B, Method.ZERO_BUBBLE)


_METHODS = {
    **dict.fromkeys(("1f1b", "one_f_one_b", "megatron"), Method.ONE_F_ONE_B),
    **dict.fromkeys(("zb", "zbpp", "zb_h2", "zb_2p", "zero_bubble", "zerobubble"), Method.ZERO_BUBBLE),
    **dict.fromkeys(("zb_cpu_delegated", "cpu_delegated", "delegate", "delegated", "zb_delegated"), Method.DELEGATED),
    **dict.fromkeys(("delegate_only", "delegated_only", "zb_delegate", "zb_cpu_delegate"), Method.DELEGATED),
    **dict.fromkeys(("pipemorph", "adaptra", "adaptive", "adapted", "zb_adaptive"), Method.ADAPTED),
}
"""Methods by the words of the tables, in lower case, with ``_`` between their parts."""


class Pipeline(NamedTuple):
    """A pipeline that was measured: its testbed, model and sizes. Rows with equal values share one fitted pass time."""

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
    """A measured training iteration with or without slow links, to be compared with its prediction."""

    pipeline: Pipeline
    """Pipeline that was measured."""
    method: Method
    """Method that was measured."""
    delay_s: tuple[tuple[int, float], ...]
    """Delay of each slow link, by number. Link i joins the stages i and i + 1."""
    hidden: int | None
    """Hidden size, which is the width of the sent data; None if the table does not state it."""
    healthy_s: float | None
    """Time of the run's iterations before its links became slow; None if the table does not state it."""
    measured_s: float
    """Measured time of the iterations under slow links."""

    @property
    def links(self) -> str:
        """The slow links and their delays as a text, such as ``0-1: 30 ms``; ``healthy`` if there are none."""
        return ", ".join(f"{link}-{link + 1}: {1e3 * delay_s:g} ms" for link, delay_s in self.delay_s) or "healthy"


def read_iteration(row: Row) -> Iteration:
    """Return the measured training iteration that a table row describes.

    Raises:
        UnusableRow: A value is missing, values contradict each other, or the method is unknown.
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
        raise UnusableRow("a pipeline of one rank has no links between stages")
    if pipeline.num_ranks * pipeline.num_micro_batches > _MOST_PASSES:
        raise UnusableRow("the pipeline has more forward and backward passes than can be simulated", str(pipeline))
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
        raise UnusableRow(f"the method {word!r} is not known", f"known methods are {', '.join(sorted(_METHODS))}")
    return method


def _links(row: Row, num_ranks: int) -> list[int]:
    """Return the first stage of every slow link: 0 and 6 for ``0_1,6_7``."""
    cell = text(row, "slow_links")
    rest = re.sub(r"\d+\s*[_\-:>]+\s*\d+", "", cell)
    if re.sub(r"[\s,;|+/&\[\]()'\"]", "", rest).lower() not in ("", "none", "healthy"):
        raise UnusableRow("the column slow_links is not a list of links such as 0_1,6_7", cell)
    links = []
    for a, b in re.findall(r"(\d+)\s*[_\-:>]+\s*(\d+)", cell):
        first, second = sorted((int(a), int(b)))
        if second != first + 1 or second >= num_ranks:
            raise UnusableRow("a slow link does not join two neighbouring stages", f"{cell} of {num_ranks} stages")
        links.append(first)
    if len(set(links)) < len(links):
        raise UnusableRow("a slow link is named twice", cell)
    return links


def _delays_s(row: Row, num_links: int) -> list[float]:
    """Return the delay of each slow link. The row states one delay for all links, or one for each."""
    cell = text(row, "delay_ms")
    words = [word for word in re.split(r"[\s,;|]+", cell.removesuffix("ms")) if word]
    if not num_links:
        return []
    if len(words) not in (1, num_links):
        raise UnusableRow("the column delay_ms must have one delay for all slow links, or one delay for each", cell)
    try:
        delays_s = [float(word) / 1e3 for word in words]
    except ValueError as error:
        raise UnusableRow("the value of the column delay_ms is not a number", cell) from error
    if not all(0 <= delay_s < math.inf for delay_s in delays_s):
        raise UnusableRow("the value of the column delay_ms is not a finite number of 0 or more", cell)
    return delays_s * (num_links // len(words))


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTable:
    """The measured iterations of a table in the order of its rows, and how many rows were left out, by reason."""

    iterations: tuple[Iteration, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of rows that cannot be judged, by reason."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """First row that cannot be judged for each reason, in words."""


def read_iteration_table(path: Path) -> IterationTable | None:
    """Return the measured iterations in a CSV file; None if the file lacks the columns for slow links.

    Raises:
        InvalidInput: The file cannot be read.
    """
    columns, rows = columns_and_rows(path)
    if not set(REQUIRED_COLUMNS) <= set(columns):
        return None
    iterations: list[Iteration] = []
    left_out: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        try:
            iterations.append(read_iteration(row))
        except UnusableRow as why:
            left_out[why.reason] += 1
            examples.setdefault(why.reason, f"row {number}: {why.detail or row['model']}")
    return IterationTable(iterations=tuple(iterations), left_out=left_out, examples=examples)


BYTES_PER_WIDTH = 1024 * 2
"""Bytes that a rank sends per unit of width: 1,024 tokens of a micro-batch in fp16, as in all runs of arXiv
2504.19232."""

_DELEGATE_BYTES_PER_S = 2e9
"""Bandwidth of one delegate between two hosts."""

_COPY_BYTES_PER_S = 150e9
"""Bandwidth between the accelerators of a stage and the pinned memory of their host, all ranks together.

This value and the bandwidth of a delegate are fitted to iterations of arXiv 2504.19232 in which sends are delegated
although no link is slow: 435, 787, 1104 and 1165 ms where plain ones take 394, 767, 933 and 962 (7B, 14B, 30B, 60B). Of
four models of how transfers share this bandwidth, this one matches these four figures best (``python -m
research.fit_links --delegates``), but four figures are weak evidence. The remaining errors are -5.3, +2.7, -2.0 and
+1.4 %.
"""


def pass_seconds(iterations: Iterable[Iteration]) -> Mapping[Pipeline, float]:
    """Return the fitted seconds of one pass of each pipeline: a forward pass, or half a backward pass.

    The seconds are fitted to the iterations without slow links. Without slow links, all methods except 1F1B run the
    same fixed zero-bubble schedule. The fit uses the median time of these methods. If a pipeline was measured only with
    1F1B, the fit uses the 1F1B times.
    """
    healthy: dict[Pipeline, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for one in iterations:
        if one.healthy_s is not None:
            healthy[one.pipeline][one.method is Method.ONE_F_ONE_B].append(one.healthy_s)
    return {pipeline: _pass_s(pipeline, by_1f1b[False], by_1f1b[True]) for pipeline, by_1f1b in healthy.items()}


def _pass_s(pipeline: Pipeline, zero_bubble_s: list[float], one_f_one_b_s: list[float]) -> float:
    method = Method.ZERO_BUBBLE if zero_bubble_s else Method.ONE_F_ONE_B
    schedule = _fixed(method, pipeline.num_ranks, pipeline.num_micro_batches)
    unit = PassTimes.equal(pipeline.num_ranks, 1.0, 1.0, 1.0)
    return median(zero_bubble_s or one_f_one_b_s) / simulate(schedule, unit).makespan_s


def predicted_s(iteration: Iteration, pass_s: Mapping[Pipeline, float]) -> float:
    """Return the predicted seconds of a training iteration with the iteration's slow links, if it has any.

    Args:
        iteration: The iteration.
        pass_s: Seconds of one pass of each pipeline, as ``pass_seconds`` returns them.

    Raises:
        UnusableRow: The table has no iteration of this pipeline without slow links, so that the pass time is unknown.
    """
    seconds = _known_pass_s(iteration.pipeline, pass_s)
    num_ranks = iteration.pipeline.num_ranks
    delay_s = dict(iteration.delay_s)
    sends_s = tuple(delay_s.get(link, 0.0) for link in range(num_ranks - 1))
    times = replace(PassTimes.equal(num_ranks, seconds, seconds, seconds), send_s=sends_s)
    num_micro_batches = iteration.pipeline.num_micro_batches
    if iteration.method is Method.ADAPTED and iteration.delay_s:
        schedule = adaptive(times, num_micro_batches, warm_up(times))
    else:
        schedule = _fixed(iteration.method, num_ranks, num_micro_batches)
    return simulate(schedule, times, _transport(iteration)).makespan_s


def _known_pass_s(pipeline: Pipeline, pass_s: Mapping[Pipeline, float]) -> float:
    """Return the time of a pass in a pipeline, also from another pipeline of the same model.

    The time is proportional to the part of the model on one rank.
    """
    if pipeline in pass_s:
        return pass_s[pipeline]
    for other, seconds in pass_s.items():
        if (other.testbed, other.model) == (pipeline.testbed, pipeline.model):
            return seconds * other.num_ranks * other.tensor_degree / (pipeline.num_ranks * pipeline.tensor_degree)
    raise UnusableRow(
        "the table has no iteration of this model without slow links, from which predictions are calibrated",
        str(pipeline),
    )


@lru_cache(maxsize=64)
def _fixed(method: Method, num_ranks: int, num_micro_batches: int) -> Schedule:
    """Return the schedule of a method that does not adapt to delays."""
    if method is Method.ONE_F_ONE_B:
        return one_f_one_b(num_ranks, num_micro_batches)
    equal = PassTimes.equal(num_ranks, 1.0, 1.0, 1.0)
    return adaptive(equal, num_micro_batches, warm_up(equal))


def _transport(iteration: Iteration) -> Transport:
    """Return the transport of an iteration: inline sends or delegates, and whether sends block.

    Megatron's 1F1B posts a send and the receive that comes back as one batch, and waits for it. How its zero-bubble
    schedules wait is not known here: of about two dozen combinations (held senders, shared streams, batches in the
    planned order), ``BLOCKING_IN_TURN`` agrees best with the published rows under slow links. Its error on these rows
    is therefore too optimistic. Delegates are 3 for delays of up to 30 ms and 6 above (code of arXiv 2504.19232).
    """
    slow = any(delay_s for _, delay_s in iteration.delay_s)
    if iteration.method is Method.ONE_F_ONE_B:
        return BLOCKING
    if iteration.method is Method.ZERO_BUBBLE or (iteration.method is Method.ADAPTED and not slow):
        return BLOCKING_IN_TURN
    longest_s = max((delay_s for _, delay_s in iteration.delay_s), default=0.0)
    num_bytes = BYTES_PER_WIDTH * (iteration.hidden or 0)
    ranks_per_stage = iteration.pipeline.tensor_degree * iteration.pipeline.data_degree
    return delegated(
        3 if longest_s <= 0.030 else 6,
        overhead_s=num_bytes / _DELEGATE_BYTES_PER_S,
        copy_s=num_bytes * ranks_per_stage / _COPY_BYTES_PER_S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A measured training iteration with its predicted time."""

    iteration: Iteration
    predicted_s: float

    @property
    def error(self) -> float:
        """The relative error: predicted time divided by measured time, minus 1."""
        return self.predicted_s / self.iteration.measured_s - 1

    def to_dict(self) -> dict[str, Any]:
        """Return the measured iteration, its predicted time and its error as plain values for JSON."""
        return {
            "pipeline": str(self.iteration.pipeline),
            "method": self.iteration.method.value,
            "slow_links": self.iteration.links,
            "predicted_s": self.predicted_s,
            "measured_s": self.iteration.measured_s,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The errors of the predicted times of some iterations, as fractions; None if there are no iterations."""

    name: str
    rows_used: int
    median_abs_error: float | None
    """Median of |predicted / measured - 1|."""
    mean_abs_error: float | None
    """Mean of |predicted / measured - 1|."""
    max_abs_error: float | None
    """Largest |predicted / measured - 1|."""
    mean_error: float | None
    """Mean of predicted / measured - 1. Below 0, predicted times are too short."""
    num_pairs: int
    """Number of pairs of methods that were measured on the same pipeline and links."""
    pairs_right: int
    """Number of these pairs whose faster method was predicted to be the faster one."""
    num_orders: int
    """Number of pipelines and links on which adapted, delegated and inline sends were all measured."""
    orders_right: int
    """Number of these pipelines and links for which the three methods are predicted in the measured order. The inline
    method is the faster one of 1F1B and zero-bubble, or the only one of them that was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLinkReport:
    """The errors of predicted iteration times under slow links: for all rows, by method, by model, and row by row."""

    all: Score
    """Score over all judged rows."""
    methods: tuple[Score, ...]
    """Scores by method, over the pairs that include it."""
    models: tuple[Score, ...]
    """Scores by testbed and model."""
    parts: tuple[Score, ...]
    """Scores by testbed, model and method."""
    rows: tuple[Judged, ...]
    """All judged rows."""
    pass_s: Mapping[Pipeline, float]
    """Calibrated seconds of a pass, by pipeline. Nothing else was calibrated."""
    rows_left_out: Mapping[str, int]
    """Number of rows that were left out, by reason."""
    left_out_examples: Mapping[str, str]
    """First row that was left out for each reason, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return the errors of all iterations and groups as plain values for JSON."""
        scores = {name: [asdict(score) for score in getattr(self, name)] for name in ("methods", "models", "parts")}
        return {
            "all": {**asdict(self.all), "rows_left_out": dict(self.rows_left_out)},
            **scores,
            "rows": [row.to_dict() for row in self.rows],
            "pass_s": {str(pipeline): seconds for pipeline, seconds in self.pass_s.items()},
            "left_out_examples": dict(self.left_out_examples),
        }


def judge_iterations(table: IterationTable) -> SlowLinkReport:
    """Predict every iteration of a table and compare the prediction with the measured time.

    First, the pass time of each pipeline is fitted to its iterations without slow links.
    """
    pass_s = pass_seconds(table.iterations)
    left_out, examples = Counter(table.left_out), dict(table.examples)
    rows = []
    for iteration in table.iterations:
        try:
            rows.append(Judged(iteration=iteration, predicted_s=predicted_s(iteration, pass_s)))
        except UnusableRow as why:
            left_out[why.reason] += 1
            examples.setdefault(why.reason, why.detail)
    pairs = [pair for same in _scenarios(rows) for pair in combinations(same, 2)]
    return SlowLinkReport(
        all=_score("all", rows, pairs),
        methods=tuple(_scores(rows, pairs, lambda row: row.iteration.method.value)),
        models=tuple(_scores(rows, pairs, _model)),
        parts=tuple(_scores(rows, pairs, lambda row: f"{_model(row)}, {row.iteration.method}")),
        rows=tuple(rows),
        pass_s=pass_s,
        rows_left_out=dict(left_out.most_common()),
        left_out_examples=examples,
    )


def _model(row: Judged) -> str:
    return f"{row.iteration.pipeline.testbed} {row.iteration.pipeline.model}".strip()


def _scores(rows: Sequence[Judged], pairs: Sequence[_Pair], name_of: Callable[[Judged], str]) -> Iterator[Score]:
    for name in dict.fromkeys(map(name_of, rows)):
        own = [pair for pair in pairs if name in map(name_of, pair)]
        yield _score(name, [row for row in rows if name_of(row) == name], own)


def _score(name: str, rows: Sequence[Judged], pairs: Sequence[_Pair]) -> Score:
    errors, orders = [abs(row.error) for row in rows], list(_orders(rows))
    return Score(
        name=name,
        rows_used=len(rows),
        median_abs_error=median(errors) if errors else None,
        mean_abs_error=fmean(errors) if errors else None,
        max_abs_error=max(errors, default=None),
        mean_error=fmean(row.error for row in rows) if rows else None,
        num_pairs=len(pairs),
        pairs_right=sum(map(_is_right, pairs)),
        num_orders=len(orders),
        orders_right=sum(orders),
    )


# ---------------------------------------------------------------- order
_Pair: TypeAlias = tuple[Judged, Judged]


def _scenarios(rows: Iterable[Judged]) -> Iterator[list[Judged]]:
    """Yield the rows of one pipeline with the same slow links, one row per method.

    If a method was measured twice, the first row counts.
    """
    by_links: dict[object, dict[Method, Judged]] = defaultdict(dict)
    for row in rows:
        iteration = row.iteration
        by_links[iteration.pipeline, iteration.delay_s].setdefault(iteration.method, row)
    return (list(by_method.values()) for by_method in by_links.values())


def _is_right(pair: _Pair) -> bool:
    left, right = pair
    return (left.predicted_s < right.predicted_s) == (left.iteration.measured_s < right.iteration.measured_s)


def _orders(rows: Iterable[Judged]) -> Iterator[bool]:
    """Yield True if adapted, delegated and inline sends are predicted in the measured order.

    Only pipelines and links with all three are compared.
    """
    for same in _scenarios(rows):
        by_method = {row.iteration.method: row for row in same}
        inline = [row for row in same if row.iteration.method.is_inline]
        if Method.ADAPTED in by_method and Method.DELEGATED in by_method and inline:
            kept = by_method[Method.ADAPTED], by_method[Method.DELEGATED]
            predicted = [*(row.predicted_s for row in kept), min(row.predicted_s for row in inline)]
            measured = [*(r.iteration.measured_s for r in kept), min(r.iteration.measured_s for r in inline)]
            yield sorted(range(3), key=predicted.__getitem__) == sorted(range(3), key=measured.__getitem__)
