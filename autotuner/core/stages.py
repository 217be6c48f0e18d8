"""Pipeline stages: the layers of each stage, and the bytes that ranks send to each other.

An exchange may be cut into n pieces: while one piece is sent between nodes, the next piece is summed inside nodes. Then
only 1/n of the work inside nodes is exposed, but each piece adds the latency of its messages. The best n is sqrt(time
inside nodes / latency of a piece). 8 MiB keep gloo busy for 40 to 90 ms inside a node of busy cores, and a piece costs
1 to 3 ms, so that four to eight pieces are best. Between two nodes at 200 Mbit/s the sum took 442 ms whole, 409 in
four, 369 in eight and 359 in sixteen pieces; at 1 Gbit/s 135, 99, 108 and 113.

Formulas of payloads count bytes, not time. They work for one layout and for numpy columns of them.
``autotuner.training.lossy_exchange`` sends exactly these bytes, and a test counts them. Source: the replicators of
arXiv 2411.19870 and 2502.06728, and ring all-reduces.
"""

from __future__ import annotations

from autotuner.core.choices import GradientSync, PayloadPrecision, PipelineSchedule
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.units import MIB

PIECE_BYTES = MIB
"""Smallest size of a piece. The work inside a node for such a piece takes several times the latency of its messages."""

MOST_PIECES = 8
"""Largest number of pieces. With more pieces, hardly more of the work inside nodes would be hidden."""


def num_pieces(num_bytes: int) -> int:
    """Return the number of pieces into which a two-level collective cuts a tensor of this size.

    The transfer of one piece inside nodes then overlaps with the transfer of another piece between nodes.
    """
    return min(max(num_bytes // PIECE_BYTES, 1), MOST_PIECES)


ONE_STAGE_SCHEDULES = (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B)
"""Schedules of one stage per rank, whose backward passes are not split. A layout without a pipeline has the second
one."""

SPLIT_SCHEDULES = (
    PipelineSchedule.ZERO_BUBBLE,
    PipelineSchedule.ZBV,
    PipelineSchedule.DUALPIPEV,
    PipelineSchedule.ADAPTIVE,
)
"""Schedules that compute gradients of inputs and of weights separately."""

V_SCHEDULES = (PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV)
"""Schedules whose second round of stages runs through the ranks backwards."""


def stage_layers(layout: Layout, num_layers: int, stage: int) -> range:
    """Return the numbers of the layers of a pipeline stage, counted from 0.

    Stages are as equal as possible. Layers that remain after an equal division go to the earliest stages, because the
    last stage also computes the output projection. The first and last stage may have fewer layers, as the layout
    states.

    Args:
        layout: The layout.
        num_layers: Number of layers of the model.
        stage: Number of the stage, from 0.

    Example:
        >>> layout = Layout(pipeline_parallel_degree=4, last_stage_less_layers=1)
        >>> [len(stage_layers(layout, 31, stage)) for stage in range(4)]
        [8, 8, 8, 7]
    """
    ends = layout.first_stage_less_layers, layout.last_stage_less_layers
    sizes = stage_sizes(num_layers, layout.num_stages, *ends)
    start = sum(sizes[:stage])
    return range(start, start + sizes[stage])


def layers_per_stage(x: Layout, num_layers: int) -> int:
    """Return the number of layers of a middle pipeline stage, for one layout or as a column for many.

    The first and last stage may have fewer layers, and the earliest stages may have one more.
    """
    return (num_layers + x.first_stage_less_layers + x.last_stage_less_layers) // x.num_stages


def with_layers_per_stage(model: TransformerSpec, layout: Layout, num_layers: int) -> TransformerSpec:
    """Return the model with another number of layers, so that a middle pipeline stage has ``num_layers`` layers.

    The first and the last stage still differ from a middle stage by as many layers as before.
    """
    missing = (layers_per_stage(layout, model.num_layers) - num_layers) * layout.num_stages
    return model.with_num_layers(model.num_layers - missing)


def next_alike(fewest: int, whole: int, interval: int) -> int:
    """Return the smallest number of layers, ``fewest`` or more, that differs from ``whole`` by whole intervals.

    A pattern that repeats every ``interval`` layers then ends at the same point in the smaller model as in the whole
    model.

    Args:
        fewest: Lower limit of the result.
        whole: Number of layers of the whole model.
        interval: Period of the pattern, in layers.
    """
    return fewest + (whole - fewest) % interval


def stages_of_rank(layout: Layout, pipeline_rank: int) -> tuple[int, ...]:
    """Return the stages of a pipeline rank, in the order of the model.

    V-shaped schedules give a rank two stages, one on the way through the ranks and one on the way back. Other schedules
    assign stages to the ranks in turn.

    Example:
        >>> stages_of_rank(Layout.parse("pp4 v2 interleaved_1f1b"), 1)
        (1, 5)
        >>> stages_of_rank(Layout.parse("pp4 v2 zbv"), 1)
        (1, 6)
    """
    num_ranks = layout.pipeline_parallel_degree
    if layout.pipeline_schedule in V_SCHEDULES:
        return pipeline_rank, 2 * num_ranks - 1 - pipeline_rank
    return tuple(range(pipeline_rank, layout.num_stages, num_ranks))


def stage_sizes(num_layers: int, num_stages: int, first_less: int, last_less: int) -> tuple[int, ...]:
    """Return the number of layers of every pipeline stage.

    Args:
        num_layers: Number of layers of the model.
        num_stages: Number of stages.
        first_less: Number of layers that the first stage gives away. They are spread over all stages.
        last_less: Number of layers that the last stage gives away. They are spread over all stages.
    """
    share, extra = divmod(num_layers + first_less + last_less, num_stages)
    less = {0: first_less}
    less[num_stages - 1] = less.get(num_stages - 1, 0) + last_less
    return tuple(share + (stage < extra) - less.get(stage, 0) for stage in range(num_stages))


BYTE_INDEXED_CHUNK = 256
"""Largest number of components of a chunk whose index fits into one byte; the index of a larger chunk needs two
bytes."""


def follows_signs(x: Layout) -> bool:
    """Return True if the optimizer uses only the signs of the exchanged values, so that AdamW keeps no moments."""
    keeps_momentum = (x.gradient_sync != GradientSync.FULL) & (x.gradient_sync != GradientSync.DILOCO)
    return keeps_momentum & (x.sync_sign != 0)


def steps_per_exchange(x: Layout) -> int:
    """Return the number of steps from one exchange between replicas to the next: 1, or DiLoCo's period."""
    return 1 + (x.sync_period - 1) * (x.gradient_sync == GradientSync.DILOCO)


def payload_elements(x: Layout, num_elements: float) -> float:
    """Return the number of values that a rank contributes to the exchange between replicas, averaged over the steps.

    Args:
        x: The layout.
        num_elements: Number of gradient elements that the rank holds.
    """
    of_demo = x.sync_top_k / x.sync_chunk * (x.gradient_sync == GradientSync.DEMO)
    sparse = (x.gradient_sync == GradientSync.RANDOM) | (x.gradient_sync == GradientSync.STRIDING)
    share = of_demo + sparse / x.sync_sparsity + (x.gradient_sync == GradientSync.DILOCO) / x.sync_period
    return num_elements * (share + (x.gradient_sync == GradientSync.FULL))


def payload_bytes(x: Layout, num_elements: float, element_bytes: float) -> float:
    """Return the bytes that a rank contributes to the exchange between replicas, averaged over the steps.

    DeMo also sends an index with each value.

    Args:
        x: The layout.
        num_elements: Number of gradient elements that the rank holds.
        element_bytes: Bytes of an element in a full exchange. Lossy exchanges have a format of their own.
    """
    is_lossy = x.gradient_sync != GradientSync.FULL
    chosen = 4 - 2 * (x.payload_precision == PayloadPrecision.BF16)
    value_bytes = element_bytes + (chosen - element_bytes) * is_lossy
    index_bytes = (1 + (x.sync_chunk > BYTE_INDEXED_CHUNK)) * (x.gradient_sync == GradientSync.DEMO)
    return payload_elements(x, num_elements) * (value_bytes + index_bytes)


def sent_bytes(x: Layout, num_elements: float, element_bytes: float) -> float:
    """Return the bytes that a rank sends in the exchange between replicas, averaged over the steps.

    DeMo uses an all-gather, the other exchanges an all-reduce. If indices are as long as values, DeMo therefore sends
    more than a full exchange once ``replicas >= chunk / top_k``.

    Args:
        x: The layout.
        num_elements: Number of gradient elements that the rank holds.
        element_bytes: Bytes of an element in a full exchange. Lossy exchanges have a format of their own.
    """
    replicas, payload = x.data_parallel_replicate_degree, payload_bytes(x, num_elements, element_bytes)
    gathers = x.gradient_sync == GradientSync.DEMO
    return payload * (replicas - 1) * (gathers + (gathers == 0) * 2 / replicas)
