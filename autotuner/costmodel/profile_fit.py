"""Fit of a profile: finds the constants of an accelerator and its links that match the measured times best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from autotuner.catalog.kernels import kernels_for
from autotuner.core.accelerator import (
    Accelerator,
    CoreTimes,
    MeasuredAttention,
    MeasuredGemm,
    PassTimes,
    ShardTimes,
    SplitTimes,
)
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.kernels import GemmLaw
from autotuner.core.link import MeasuredCollective
from autotuner.core.profile import (
    AttentionPoint,
    CollectivePoint,
    DeviceProfile,
    GemmPoint,
    Measurements,
    PassKind,
    PassPoint,
)
from autotuner.costmodel.layer.matrix_products import gemm_s

_ELEMENT_BYTES = 4
_MATRIX_ELEMENTS = 4 + 3 * 3
"""Number of matrix elements of a measured layer, in units of its squared width: four matrices of attention, and three
of the feed-forward block with three times the width."""
_POINTWISE_ELEMENTS = 2 * 2 + 2 * 3 + 2 * 2 + 3 * 3
"""Number of elements that a token moves in the forward pass, in units of the width, as ``costmodel`` counts: norms,
sums, rotations, activation. The backward pass moves twice as many."""
_LEAST_LEFT = 0.05
"""Smallest share of a layer's time that is left for the operations between its products, however much the measured
points scatter."""
_LEAST_DEEPER = 0.05
"""Smallest share of the deeper model's time that counts for its additional layers. Profiles of idle machines have a
half and more. On a busy machine the deeper model may even be the faster one, but a layer cannot take no time."""


def fit_collectives(points: Iterable[CollectivePoint]) -> tuple[MeasuredCollective, ...]:
    """Return a start time and a time per byte for each measured kind of collective and number of ranks.

    Both times define a line through the measured points of this kind and number of ranks, with the smallest relative
    errors. If there is only a single point, the pair is left out.
    """
    groups: dict[tuple[str, int], list[CollectivePoint]] = {}
    for point in points:
        groups.setdefault((point.kind, point.num_ranks), []).append(point)
    return tuple(_line(same) for same in groups.values() if len(same) > 1)


def _line(points: Sequence[CollectivePoint]) -> MeasuredCollective:
    """Return a line through the points by weighted least squares, which is never below zero.

    The weight of a point is the inverse of its squared time.
    """
    weights = [1 / point.seconds**2 for point in points]
    total = sum(weights)
    bytes_mean = sum(w * p.num_bytes for w, p in zip(weights, points, strict=True)) / total
    seconds_mean = sum(w * p.seconds for w, p in zip(weights, points, strict=True)) / total
    spread = sum(w * (p.num_bytes - bytes_mean) ** 2 for w, p in zip(weights, points, strict=True))
    along = sum(w * (p.num_bytes - bytes_mean) * p.seconds for w, p in zip(weights, points, strict=True))
    slope = max(0.0, along / spread) if spread else 0.0
    start_s = max(0.0, min(seconds_mean - slope * bytes_mean, *(p.seconds for p in points)))
    return MeasuredCollective(kind=points[0].kind, num_ranks=points[0].num_ranks, start_s=start_s, s_per_byte=slope)


def fit_core(
    measured: Measurements, collectives: Sequence[MeasuredCollective], fp32_flop_per_s: float
) -> CoreTimes | None:
    """Return the times of a CPU core besides arithmetic, such as launches, from timed passes of decoders.

    The result is None if no passes were timed, as on a GPU.

    Args:
        measured: The measured points of the profile.
        collectives: Fitted times of collectives, which are subtracted from the times of split and sharded layers.
        fp32_flop_per_s: Rate of fp32 matrix products, in FLOP per second.
    """
    if not measured.passes:
        return None
    widths = sorted({point.hidden_size for point in measured.passes})
    tiny, wide = (_Passes([p for p in measured.passes if p.hidden_size == w]) for w in (widths[0], widths[-1]))
    layer = tiny.layer("plain")
    return CoreTimes(
        layer=layer,
        ends=tiny.ends("plain"),
        selective=_further(tiny.layer("recompute_selective"), layer, again_s=layer.forward_s),
        full=_further(tiny.layer("recompute_full"), layer, again_s=layer.forward_s),
        sharded=_sharded(tiny, layer, collectives),
        split=tuple(_splits(tiny, collectives)),
        pointwise_bytes_per_s=_pointwise_rate(wide, layer, measured, fp32_flop_per_s),
    )


class _Passes:
    """Measured passes by kind and number of ranks, each at two depths.

    The difference between the depths is the time of a layer, and the rest is the time of the ends.
    """

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
            forward_s=max(_LEAST_DEEPER * deep.forward_s, deep.forward_s - shallow.forward_s) / more,
            backward_s=max(_LEAST_DEEPER * deep.backward_s, deep.backward_s - shallow.backward_s) / more,
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
    """Return the times beyond those of a plain layer.

    The time that the layer's backward pass spends on recomputation is subtracted too.
    """
    return PassTimes(
        forward_s=max(0.0, times.forward_s - plain.forward_s),
        backward_s=max(0.0, times.backward_s - plain.backward_s - again_s),
    )


def _splits(passes: _Passes, collectives: Sequence[MeasuredCollective]) -> Iterator[SplitTimes]:
    kinds: tuple[PassKind, ...] = ("tensor", "sequence")
    for kind in kinds:
        for num_ranks in passes.ranks(kind):
            yield _split(passes, kind, num_ranks, collectives)


def _split(passes: _Passes, kind: PassKind, num_ranks: int, collectives: Sequence[MeasuredCollective]) -> SplitTimes:
    """Return the extra times of a layer that tensor ranks split.

    Its forward pass has two all-reduces, or two gathers and two scatters.
    """
    point, layer = passes.one(kind, num_ranks), _further(passes.layer(kind, num_ranks), passes.layer("plain"))
    hidden_bytes = _ELEMENT_BYTES * point.tokens * point.hidden_size
    kinds = ("all_gather", "reduce_scatter") if kind == "sequence" else ("all_reduce",)
    waited_s = 2 * sum(_seconds(collectives, one, num_ranks, hidden_bytes) for one in kinds)
    return SplitTimes(
        num_ranks=num_ranks,
        sequence_parallel=kind == "sequence",
        layer=layer,
        ends=_further(passes.ends(kind, num_ranks), passes.ends("plain")),
        dispatch_s=max(0.0, layer.forward_s - waited_s),
    )


def _sharded(passes: _Passes, plain: PassTimes, collectives: Sequence[MeasuredCollective]) -> ShardTimes | None:
    """Return the extra times to gather a layer's parameters and to reduce its gradients.

    The transfer of the bytes is not part of them.
    """
    ranks = passes.ranks("sharded")
    if not ranks:
        return None
    further, point = _further(passes.layer("sharded"), plain), passes.one("sharded")
    layer_bytes = _ELEMENT_BYTES * _MATRIX_ELEMENTS * point.hidden_size**2
    gather_s, reduce_s = (
        _seconds(collectives, kind, ranks[-1], layer_bytes) - _seconds(collectives, kind, ranks[-1], 0)
        for kind in ("all_gather", "reduce_scatter")
    )
    return ShardTimes(
        num_ranks=ranks[-1],
        gather_s=max(0.0, further.forward_s - gather_s),
        reduce_s=max(0.0, further.backward_s - reduce_s),
    )


def _seconds(collectives: Sequence[MeasuredCollective], kind: str, num_ranks: int, num_bytes: int) -> float:
    """Return the time of a collective by the fitted line of its kind and group size; 0 if there is no line."""
    lines = (line for line in collectives if (line.kind, line.num_ranks) == (kind, num_ranks))
    return next((line.start_s + line.s_per_byte * num_bytes for line in lines), 0.0)


def _pointwise_rate(passes: _Passes, core: PassTimes, measured: Measurements, fp32_flop_per_s: float) -> float:
    """Return the bytes per second that pointwise operations reach in the part of a layer's time that is left for them.

    The time of matrix products and of attention is subtracted first.
    """
    layer, point = passes.layer("plain"), passes.one("plain")
    products_s = 3 * 2 * point.tokens * _MATRIX_ELEMENTS * point.hidden_size**2 / fp32_flop_per_s
    multiplied_s = products_s + _attention_s(measured, point)
    total_s = max(layer.forward_s + layer.backward_s, multiplied_s)
    left_s = total_s - core.forward_s - core.backward_s - multiplied_s
    moved_bytes = 3 * _ELEMENT_BYTES * point.tokens * _POINTWISE_ELEMENTS * point.hidden_size
    return moved_bytes / max(left_s, _LEAST_LEFT * total_s)


def _attention_s(measured: Measurements, point: PassPoint) -> float:
    """Return the time of the forward and backward pass of causal flash attention, by the median measured rate."""
    rates = [
        core.product_flop / (core.forward_s + core.backward_s)
        for core in measured.attention
        if (core.kernel, core.precision) == (AttentionKernel.FLASH, Precision.FP32)
    ]
    return 2.0 * point.tokens * point.seq_len * point.hidden_size / median(rates) if rates else 0.0


_LARGE = 0.1
"""Share of the largest point's work above which a point is large enough to show the rate of the device."""

_BACKWARD_PRODUCTS = 5.0
"""Number of matrix products of a fused backward kernel, including the recomputed scores (``costmodel.attention``). The
forward kernel has two."""


def fit_profile(
    measured: Measurements,
    *,
    name: str,
    measured_at: float,
    num_ranks: int,
    accelerator: Accelerator,
) -> DeviceProfile:
    """Return the profile of a machine, or of some nodes of a cluster, with constants that are fitted to measurements.

    Args:
        measured: The measured points.
        name: Name under which the profile is stored.
        measured_at: Time of the measurement, in epoch seconds.
        num_ranks: Number of ranks that measured at once.
        accelerator: The device of each rank, as its maker describes it. A CPU core has no data sheet: its fastest
            measured product is its peak. No single law fits the collectives of cores, so each kind and number of ranks
            gets a start time and a time per byte of its own.
    """
    on_cores = accelerator.kind == "cpu"
    peaks = {} if on_cores else {precision: accelerator.peak_flop_per_s(precision) for precision in Precision}
    laws = kernels_for(replace(accelerator, measured_gemm=(), measured_attention=())).gemm
    best = {precision: _best(points) for precision, points in _by_precision(measured.gemm).items()}
    stated = best | {precision: peak for precision, peak in peaks.items() if peak > 0}
    within = [point for point in measured.collectives if point.num_nodes == 1]
    across = [point for point in measured.collectives if point.num_nodes > 1]
    most = max((point.num_ranks for point in within), default=1)
    bandwidth, latency = _link([point for point in within if point.num_ranks == most])
    # one rank of each node: its share of the network, without the links inside nodes
    port_bandwidth, port_latency = _link([point for point in across if point.num_ranks == point.num_nodes])
    gemm = tuple(_gemm(p, points, stated[p], laws.get(p)) for p, points in _by_precision(measured.gemm).items())
    collectives = fit_collectives(within) if on_cores else ()
    return DeviceProfile(
        name=name,
        measured_at=measured_at,
        device=measured.environment.get("device", ""),
        host=measured.environment.get("host", ""),
        num_ranks=num_ranks,
        measurements=measured,
        fp32_flop_per_s=best.get(Precision.FP32, 0.0),
        bf16_flop_per_s=best.get(Precision.BF16, 0.0),
        memory_bandwidth_bytes_per_s=_memory_bandwidth(measured),
        launch_s=measured.launch_s,
        gemm=gemm,
        attention=_attention(measured.attention, stated),
        link_bandwidth_bytes_per_s=bandwidth,
        link_latency_s=latency,
        core=fit_core(measured, collectives, _reached(gemm, stated)),
        collectives=collectives,
        num_nodes=max((point.num_nodes for point in across), default=1),
        inter_node_bandwidth_bytes_per_s=port_bandwidth,
        inter_node_latency_s=port_latency,
        inter_node_collectives=fit_collectives(across) if on_cores else (),
    )


def _reached(gemm: Iterable[MeasuredGemm], peaks: dict[Precision, float]) -> float:
    """Return the measured rate of large fp32 products; 0 if none was measured."""
    return sum(one.peak_share * peaks[one.precision] for one in gemm if one.precision == Precision.FP32)


def _by_precision(points: Iterable[GemmPoint]) -> dict[Precision, list[GemmPoint]]:
    found: dict[Precision, list[GemmPoint]] = {}
    for point in points:
        found.setdefault(point.precision, []).append(point)
    return found


def _best(points: Iterable[GemmPoint]) -> float:
    return max(point.flop_per_s for point in points)


def _memory_bandwidth(measured: Measurements) -> float:
    most = max(point.num_bytes for point in measured.traffic)
    return median(point.bytes_per_s for point in measured.traffic if point.num_bytes >= _LARGE * most)


def _gemm(
    precision: Precision, points: Sequence[GemmPoint], peak_flop_per_s: float, law: GemmLaw | None
) -> MeasuredGemm:
    """Return the share of the peak with which the law of the device gives the median measured time of large products.

    The law counts the losses of a product's shape apart from this share. Without a law, the share is that of the
    measured rates themselves.
    """
    most = max(p.m * p.n * p.k for p in points)
    large = [p for p in points if p.m * p.n * p.k >= _LARGE * most]
    if law is None:
        shares = [p.flop_per_s / peak_flop_per_s for p in large]
    else:
        at_peak = replace(law, peak_flop_per_s=peak_flop_per_s, peak_share=1.0)
        shares = [float(gemm_s(p.m, p.n, p.k, at_peak)) / p.seconds for p in large]
    return MeasuredGemm(precision=precision, peak_share=min(1.0, median(shares)))


def _attention(points: Sequence[AttentionPoint], peaks: dict[Precision, float]) -> tuple[MeasuredAttention, ...]:
    kernels = sorted({(point.kernel, point.precision) for point in points})
    return tuple(
        _attention_of([p for p in points if (p.kernel, p.precision) == (kernel, precision)], peaks[precision])
        for kernel, precision in kernels
    )


def _attention_of(points: Sequence[AttentionPoint], peak_flop_per_s: float) -> MeasuredAttention:
    """Return the shares of the peak that attention reaches.

    The FLOP of all pairs of tokens are counted, or of half of them if the kernel skips masked pairs.
    """
    most = max(point.product_flop for point in points)
    large = [point for point in points if point.product_flop >= _LARGE * most]
    forward = median(2.0 * p.product_flop / p.forward_s for p in large)
    backward = median(_BACKWARD_PRODUCTS * p.product_flop / p.backward_s for p in large)
    return MeasuredAttention(
        kernel=points[0].kernel,
        precision=points[0].precision,
        forward_share=forward / peak_flop_per_s,
        backward_share=backward / peak_flop_per_s,
    )


def _link(points: Sequence[CollectivePoint]) -> tuple[float | None, float | None]:
    """Return the bandwidth of a ring and its latency per step.

    They are medians over lines through the points with the fewest and the most bytes.
    """
    bandwidths, latencies = [], []
    for kind in {point.kind for point in points}:
        same = sorted((p for p in points if p.kind == kind), key=lambda p: p.num_bytes)
        least, most = same[0], same[-1]
        if most.seconds > least.seconds and most.num_bytes > least.num_bytes:
            bandwidths.append((most.sent_bytes - least.sent_bytes) / (most.seconds - least.seconds))
            latencies.append(least.seconds / least.num_steps)
    return (median(bandwidths), median(latencies)) if bandwidths else (None, None)
