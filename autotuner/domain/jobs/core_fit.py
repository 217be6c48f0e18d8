"""From passes of small decoders to what a core spends beside the work itself: differences and straight lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from autotuner.domain.jobs.cluster import MeasuredCollective
from autotuner.domain.jobs.core_times import CoreTimes, PassTimes, SplitTimes
from autotuner.domain.jobs.profile import CollectivePoint, Measurements, PassKind, PassPoint
from autotuner.domain.layouts.choice import AttentionKernel, Precision

__all__ = ["fit_collectives", "fit_core"]

_NOTHING = PassTimes(forward_s=0.0, backward_s=0.0)


def fit_collectives(points: Iterable[CollectivePoint]) -> tuple[MeasuredCollective, ...]:
    """A start and a time per byte for each kind and number of ranks: the line with the least relative errors."""
    groups: dict[tuple[str, int], list[CollectivePoint]] = {}
    for point in points:
        groups.setdefault((point.kind, point.num_ranks), []).append(point)
    return tuple(_line(same) for same in groups.values() if len(same) > 1)


def _line(points: Sequence[CollectivePoint]) -> MeasuredCollective:
    """Weighted least squares, each point weighing as one over its square; never below zero."""
    weights = [1 / point.seconds**2 for point in points]
    total = sum(weights)
    bytes_mean = sum(w * p.num_bytes for w, p in zip(weights, points, strict=True)) / total
    seconds_mean = sum(w * p.seconds for w, p in zip(weights, points, strict=True)) / total
    spread = sum(w * (p.num_bytes - bytes_mean) ** 2 for w, p in zip(weights, points, strict=True))
    along = sum(w * (p.num_bytes - bytes_mean) * p.seconds for w, p in zip(weights, points, strict=True))
    slope = max(0.0, along / spread)
    start_s = max(0.0, min(seconds_mean - slope * bytes_mean, *(p.seconds for p in points)))
    return MeasuredCollective(kind=points[0].kind, num_ranks=points[0].num_ranks, start_s=start_s, s_per_byte=slope)


def fit_core(
    measured: Measurements, collectives: Sequence[MeasuredCollective], fp32_flop_per_s: float
) -> CoreTimes | None:
    """What passes of decoders say; None where there are none, as on a GPU.

    Args:
        measured: The points.
        collectives: Their lines, which what is split or sharded waited for as well.
        fp32_flop_per_s: What products of that precision reach.
    """
    points = list(measured.passes)
    if not points:
        return None
    tiny = min(point.hidden_size for point in points)
    passes = _Passes([point for point in points if point.hidden_size == tiny])
    layer, ends = passes.layer("plain"), passes.ends("plain")
    gather_s, reduce_s = _sharded_s(passes, layer, collectives)
    selective, full = passes.layer("recompute_selective"), passes.layer("recompute_full")
    return CoreTimes(
        layer=layer,
        ends=ends,
        selective=_further(selective, layer, layer.forward_s),
        full=_further(full, layer, layer.forward_s),
        gather_s=gather_s,
        reduce_s=reduce_s,
        split=tuple(
            _split(passes, kind, n, collectives) for kind in ("tensor", "sequence") for n in passes.ranks(kind)
        ),
        stage=_NOTHING,
        pointwise_bytes_per_s=_pointwise_rate(
            [p for p in points if p.hidden_size > tiny], layer, measured, fp32_flop_per_s
        ),
    )


class _Passes:
    """Passes by kind and ranks, at two depths each: a layer is the difference, the ends are what a layer leaves."""

    def __init__(self, points: Sequence[PassPoint]) -> None:
        self._points = points

    def ranks(self, kind: PassKind) -> list[int]:
        return sorted({point.num_ranks for point in self._points if point.kind == kind})

    def one(self, kind: PassKind, num_ranks: int = 0) -> PassPoint:
        return self._depths(kind, num_ranks)[0]

    def layer(self, kind: PassKind, num_ranks: int = 0) -> PassTimes:
        shallow, deep = self._depths(kind, num_ranks)
        more = deep.num_layers - shallow.num_layers
        return PassTimes(
            forward_s=max(0.0, deep.forward_s - shallow.forward_s) / more,
            backward_s=max(0.0, deep.backward_s - shallow.backward_s) / more,
        )

    def ends(self, kind: PassKind, num_ranks: int = 0) -> PassTimes:
        shallow, layer = self._depths(kind, num_ranks)[0], self.layer(kind, num_ranks)
        return PassTimes(
            forward_s=max(0.0, shallow.forward_s - shallow.num_layers * layer.forward_s),
            backward_s=max(0.0, shallow.backward_s - shallow.num_layers * layer.backward_s),
        )

    def _depths(self, kind: PassKind, num_ranks: int) -> tuple[PassPoint, PassPoint]:
        same = [p for p in self._points if p.kind == kind and num_ranks in (0, p.num_ranks)]
        by_depth = sorted(same, key=lambda point: point.num_layers)
        return by_depth[0], by_depth[-1]


def _further(times: PassTimes, plain: PassTimes, again_s: float = 0.0) -> PassTimes:
    """What is beyond a plain layer, and beyond what its backward computes again."""
    return PassTimes(
        forward_s=max(0.0, times.forward_s - plain.forward_s),
        backward_s=max(0.0, times.backward_s - plain.backward_s - again_s),
    )


def _split(passes: _Passes, kind: PassKind, num_ranks: int, collectives: Sequence[MeasuredCollective]) -> SplitTimes:
    """Two all-reduces a pass, or two gathers and two scatters with sequence parallelism, are counted apart."""
    point = passes.one(kind, num_ranks)
    hidden_bytes = 4 * point.tokens * point.hidden_size
    kinds = ("all_gather", "reduce_scatter") if kind == "sequence" else ("all_reduce",)
    waited_s = 2 * sum(_seconds(collectives, one, num_ranks, hidden_bytes) for one in kinds)
    layer = _further(passes.layer(kind, num_ranks), passes.layer("plain"))
    return SplitTimes(
        num_ranks=num_ranks,
        sequence_parallel=kind == "sequence",
        layer=PassTimes(
            forward_s=max(0.0, layer.forward_s - waited_s), backward_s=max(0.0, layer.backward_s - waited_s)
        ),
        ends=_further(passes.ends(kind, num_ranks), passes.ends("plain")),
    )


def _sharded_s(passes: _Passes, plain: PassTimes, collectives: Sequence[MeasuredCollective]) -> tuple[float, float]:
    """Beside the collectives: gathering a layer's parameters, and reducing its gradients."""
    ranks = passes.ranks("sharded")
    if not ranks:
        return 0.0, 0.0
    layer, point = passes.layer("sharded"), passes.one("sharded")
    layer_bytes = 4 * (4 + 9) * point.hidden_size**2  # four matrices of attention, three of three times the width
    gather_s, reduce_s = (
        _seconds(collectives, kind, ranks[-1], layer_bytes) for kind in ("all_gather", "reduce_scatter")
    )
    further = _further(layer, plain)
    return max(0.0, further.forward_s - gather_s), max(0.0, further.backward_s - reduce_s)


def _seconds(collectives: Sequence[MeasuredCollective], kind: str, num_ranks: int, num_bytes: int) -> float:
    return next(
        (
            one.start_s + one.s_per_byte * num_bytes
            for one in collectives
            if (one.kind, one.num_ranks) == (kind, num_ranks)
        ),
        0.0,
    )


def _pointwise_rate(
    points: Sequence[PassPoint], host: PassTimes, measured: Measurements, fp32_flop_per_s: float
) -> float:
    """Bytes that a layer moves between its products, as formulas count them, over what products and host leave."""
    layer, point = _Passes(points).layer("plain"), points[0]
    tokens, width = point.tokens, point.hidden_size
    products_s = 3 * 2 * tokens * (4 + 9) * width**2 / fp32_flop_per_s
    attention_s = _attention_s(measured, tokens, width)
    total_s = layer.forward_s + layer.backward_s
    left_s = total_s - host.forward_s - host.backward_s - products_s - attention_s
    # per token and direction: two norms 2 h, two sums 3 h, rotations 2 (q + k), activation 3 f
    moved_bytes = 3 * 4 * tokens * (10 + 4 + 9) * width
    return moved_bytes / max(left_s, 0.1 * total_s)


def _attention_s(measured: Measurements, tokens: int, width: int) -> float:
    """Both passes of causal flash attention over a sequence, by the median rate of what was measured."""
    rates = [
        point.product_flop / (point.forward_s + point.backward_s)
        for point in measured.attention
        if (point.kernel, point.precision) == (AttentionKernel.FLASH, Precision.FP32)
    ]
    return 2.0 * tokens**2 * width / median(rates) if rates else 0.0
