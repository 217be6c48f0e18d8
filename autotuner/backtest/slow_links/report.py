"""How far predicted iterations under slow links are from measured ones, and whether methods come in the right order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Any, TypeAlias

from autotuner.backtest.cells import UnusableRow
from autotuner.backtest.slow_links.iteration import Iteration, Method, Pipeline
from autotuner.backtest.slow_links.predicted import pass_seconds, predicted_s
from autotuner.backtest.slow_links.table import IterationTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A measured iteration and what was predicted of it."""

    iteration: Iteration
    predicted_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.iteration.measured_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Figures of some rows; errors are fractions, None without rows.

    Attributes:
        median_abs_error: Median of |predicted / measured - 1|.
        mean_abs_error: Mean of the same.
        max_abs_error: Largest of the same.
        mean_error: Mean of predicted / measured - 1: below 0 where predictions are short.
        num_pairs: Pairs of methods that were measured on the same pipeline and links.
        pairs_right: Those of which the faster one was predicted to be the faster.
        num_orders: Pipelines and links on which all of adapted, delegated and inline sends were measured.
        orders_right: Those in which the three are predicted in the order measured; inline is the faster of 1F1B and
            zero-bubble, of those that were measured.
    """

    name: str
    rows_used: int
    median_abs_error: float | None
    mean_abs_error: float | None
    max_abs_error: float | None
    mean_error: float | None
    num_pairs: int
    pairs_right: int
    num_orders: int
    orders_right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLinkReport:
    """Scores of a table of iterations under slow links.

    Attributes:
        all: Every judged row.
        methods: By method; pairs are those in which it takes part.
        models: By testbed and model.
        parts: By both.
        rows: Every judged row.
        pass_s: Seconds of a pass, by pipeline: all that was calibrated.
        rows_left_out: Reason to count.
        left_out_examples: The first row by reason, in words.
    """

    all: Score
    methods: tuple[Score, ...]
    models: tuple[Score, ...]
    parts: tuple[Score, ...]
    rows: tuple[Judged, ...]
    pass_s: Mapping[Pipeline, float]
    rows_left_out: Mapping[str, int]
    left_out_examples: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        scores = {name: [asdict(score) for score in getattr(self, name)] for name in ("methods", "models", "parts")}
        return {
            "all": {**asdict(self.all), "rows_left_out": dict(self.rows_left_out)},
            **scores,
            "rows": [_plain(row) for row in self.rows],
            "pass_s": {str(pipeline): seconds for pipeline, seconds in self.pass_s.items()},
            "left_out_examples": dict(self.left_out_examples),
        }


def _plain(row: Judged) -> dict[str, Any]:
    iteration = row.iteration
    return {
        "pipeline": str(iteration.pipeline),
        "method": iteration.method.value,
        "slow_links": iteration.links,
        "predicted_s": row.predicted_s,
        "measured_s": iteration.measured_s,
        "error": row.error,
    }


def judge_iterations(table: IterationTable) -> SlowLinkReport:
    """Predict every iteration of the table, calibrated by its healthy ones."""
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
    errors = [abs(row.error) for row in rows]
    orders = list(_orders(rows))
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
    """Rows of one pipeline and the same slow links, one per method: of those measured twice the first."""
    by_links: dict[object, dict[Method, Judged]] = defaultdict(dict)
    for row in rows:
        iteration = row.iteration
        by_links[iteration.pipeline, iteration.delay_s].setdefault(iteration.method, row)
    return (list(by_method.values()) for by_method in by_links.values())


def _is_right(pair: _Pair) -> bool:
    left, right = pair
    return (left.predicted_s < right.predicted_s) == (left.iteration.measured_s < right.iteration.measured_s)


def _orders(rows: Iterable[Judged]) -> Iterator[bool]:
    """Whether adapted, delegated and inline sends come in the order measured, wherever there are all three."""
    for same in _scenarios(rows):
        by_method = {row.iteration.method: row for row in same}
        inline = [row for row in same if row.iteration.method.is_inline]
        if Method.ADAPTED in by_method and Method.DELEGATED in by_method and inline:
            kept = by_method[Method.ADAPTED], by_method[Method.DELEGATED]
            predicted = [*(row.predicted_s for row in kept), min(row.predicted_s for row in inline)]
            measured = [*(r.iteration.measured_s for r in kept), min(r.iteration.measured_s for r in inline)]
            yield _ranks(predicted) == _ranks(measured)


def _ranks(values: Sequence[float]) -> list[int]:
    return sorted(range(len(values)), key=values.__getitem__)
