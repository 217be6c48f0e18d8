"""From measured points to constants: medians and straight lines, since a profile is taken on machines without SciPy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from autotuner.core.jobs.accelerator import MeasuredAttention, MeasuredGemm
from autotuner.core.jobs.core_fit import fit_collectives, fit_core
from autotuner.core.jobs.profile import AttentionPoint, CollectivePoint, DeviceProfile, GemmPoint, Measurements
from autotuner.core.layouts.choice import Precision

__all__ = ["fit_profile"]

_LARGE = 0.1
"""Points with more than this share of the largest one's work are long enough to show a rate."""

_BACKWARD_PRODUCTS = 5.0
"""Products of a fused kernel, recomputing the scores counted (``costmodel.attention``); the forward has two."""


def fit_profile(
    measured: Measurements,
    *,
    name: str,
    measured_at: float,
    num_ranks: int,
    peaks: dict[Precision, float],
    on_cores: bool = False,
) -> DeviceProfile:
    """The profile of a machine, or of some nodes of a cluster.

    Args:
        measured: The points.
        name: What it is stored under.
        measured_at: Epoch seconds.
        num_ranks: Ranks that measured at once.
        peaks: Rates of a data sheet, by precision; for those that are missing the best product is the peak.
        on_cores: Its ranks are cores, whose collectives follow no law: each kind and number of ranks has its own line.
    """
    best = {precision: _best(points) for precision, points in _by_precision(measured.gemm).items()}
    stated = best | {precision: peak for precision, peak in peaks.items() if peak > 0}
    within = [point for point in measured.collectives if point.num_nodes == 1]
    across = [point for point in measured.collectives if point.num_nodes > 1]
    most = max((point.num_ranks for point in within), default=1)
    bandwidth, latency = _link([point for point in within if point.num_ranks == most])
    # one rank of each node: what each gets of the network, with nothing of the links inside
    port_bandwidth, port_latency = _link([point for point in across if point.num_ranks == point.num_nodes])
    gemm = tuple(_gemm(p, points, stated[p]) for p, points in _by_precision(measured.gemm).items())
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
    """What large fp32 products reach; 0 where none was measured."""
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


def _gemm(precision: Precision, points: Sequence[GemmPoint], peak_flop_per_s: float) -> MeasuredGemm:
    """Share of the peak of a product that is large, but no larger than layers have."""
    most = max(p.m * p.n * p.k for p in points)
    rates = [p.flop_per_s for p in points if p.m * p.n * p.k >= _LARGE * most]
    return MeasuredGemm(precision=precision, peak_share=min(1.0, median(rates) / peak_flop_per_s))


def _attention(points: Sequence[AttentionPoint], peaks: dict[Precision, float]) -> tuple[MeasuredAttention, ...]:
    kernels = sorted({(point.kernel, point.precision) for point in points})
    return tuple(
        _attention_of([p for p in points if (p.kernel, p.precision) == (kernel, precision)], peaks[precision])
        for kernel, precision in kernels
    )


def _attention_of(points: Sequence[AttentionPoint], peak_flop_per_s: float) -> MeasuredAttention:
    """Shares of the peak as if all pairs were multiplied, or half of them where the kernel leaves out what it masks."""
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
    """Bandwidth and latency per step of a ring: medians over kinds, of a line through the least and the most bytes."""
    bandwidths, latencies = [], []
    for kind in {point.kind for point in points}:
        same = sorted((p for p in points if p.kind == kind), key=lambda p: p.num_bytes)
        least, most = same[0], same[-1]
        if most.seconds > least.seconds and most.num_bytes > least.num_bytes:
            bandwidths.append((most.sent_bytes - least.sent_bytes) / (most.seconds - least.seconds))
            latencies.append(least.seconds / least.num_steps)
    return (median(bandwidths), median(latencies)) if bandwidths else (None, None)
