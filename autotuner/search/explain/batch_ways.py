"""Ways to deal and to pack the batches of a job whose sequences differ, beside what a layout chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from autotuner.core.choices import BatchBalance
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.workload import LengthDistribution
from autotuner.costmodel.batch_shape import batch_shape
from autotuner.costmodel.predict import predict
from autotuner.search.text.sentences import percent

_IN_WORDS: Mapping[BatchBalance, str] = {
    BatchBalance.NONE: "as they come",
    BatchBalance.STRATIFIED: "stratified",
    BatchBalance.SNAKE: "snake",
    BatchBalance.STRATIFIED_SNAKE: "stratified + snake",
    BatchBalance.GLOBAL_SORT: "global sort",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWay:
    """A way to share batches, of the layout or beside it.

    Attributes:
        name: ``stratified + snake, packed``.
        real_tokens: Of a sequence on average.
        computed_tokens: Of a sequence on average, padding included.
        slowest_tokens: The same on the rank that the others wait for.
        imbalance: What that rank computes above the mean, as a share of it.
        padding_waste: Padding as a share of real tokens.
        step_time_s: Predicted, all else as in the layout.
        is_own: The layout's.
        sentence: All of it, without a full stop.
    """

    name: str
    layout: Layout
    real_tokens: float
    computed_tokens: float
    slowest_tokens: float
    imbalance: float
    padding_waste: float
    step_time_s: float
    is_own: bool
    sentence: str


def batch_ways(layout: Layout, job: Job) -> tuple[BatchWay, ...]:
    """Every legal way, padded ones first; none where all sequences are as long."""
    if job.workload.lengths is None:
        return ()
    layouts = [one for one in _layouts(layout) if not reasons(one, job)]
    seconds = predict(LayoutColumns.from_layouts(layouts), job).step_time.total_s.tolist()
    lengths = job.workload.lengths
    return tuple(
        _way(one, job, lengths, step_s, is_own=one == layout) for one, step_s in zip(layouts, seconds, strict=True)
    )


def _layouts(layout: Layout) -> Iterator[Layout]:
    """The layout with each way; a group of ranks that it names deals in those that have one."""
    for is_packed in (False, True):
        for balance in BatchBalance:
            deals = balance in (BatchBalance.SNAKE, BatchBalance.STRATIFIED_SNAKE)
            group = layout.num_dealing_ranks if deals else OPTIONS["num_dealing_ranks"].default
            yield replace(layout, batch_balance=balance, num_dealing_ranks=group, sequence_packing=is_packed)


def _way(layout: Layout, job: Job, lengths: LengthDistribution, step_time_s: float, *, is_own: bool) -> BatchWay:
    shape = batch_shape(layout, job.workload, job.cluster.accelerators_per_node)
    name = f"{_IN_WORDS[layout.batch_balance]}{', packed' if layout.sequence_packing else ''}"
    return BatchWay(
        name=name,
        layout=layout,
        real_tokens=lengths.mean,
        computed_tokens=shape.tokens / (1 + shape.imbalance),
        slowest_tokens=shape.tokens,
        imbalance=shape.imbalance,
        padding_waste=shape.padding_waste,
        step_time_s=step_time_s,
        is_own=is_own,
        sentence=(
            f"{name}: the slowest rank computes {percent(shape.imbalance)} more than the mean, "
            f"padding adds {percent(shape.padding_waste)} to real tokens"
        ),
    )
