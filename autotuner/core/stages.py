"""Pipeline stages: the layers of each stage, and the bytes that ranks send to each other.

An exchange may be cut into pieces: while a piece travels between nodes, the next one is summed inside them. Of the work
inside nodes only one piece of n then shows, and each piece pays the latency of its messages. The best number is
sqrt(work inside / latency of a piece). 8 MiB keep gloo busy for 40 to 90 ms inside a node of busy cores, and a piece
costs 1 to 3 ms, so that four to eight pieces are best. Between two nodes at 200 Mbit/s the sum took 442 ms whole, 409
in four, 369 in eight and 359 in sixteen pieces; at 1 Gbit/s 135, 99, 108 and 113.

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
"""Smallest size of a piece, whose work inside a node takes several times the latency of its messages."""

MOST_PIECES = 8
"""Most pieces. More pieces would hide hardly more of the work inside nodes."""


def num_pieces(num_bytes: int) -> int:
    """Return the number of pieces into which a tensor of so many bytes is cut."""
    return min(max(num_bytes // PIECE_BYTES, 1), MOST_PIECES)


ONE_STAGE_SCHEDULES = (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B)
"""Schedules of one stage per rank, whose backward passes are whole. A layout without a pipeline has the second."""

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
    """Return the layers of a stage: as even as possible, the remainder on the earliest stages, fewer on both ends.

    The last stage multiplies by the vocabulary as well, so it is the last to get one more.

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
    """Return the layers of a middle stage, for one layout or for columns.

    The ends may have fewer, the earliest one more.
    """
    return (num_layers + x.first_stage_less_layers + x.last_stage_less_layers) // x.num_stages


def with_layers_per_stage(model: TransformerSpec, layout: Layout, num_layers: int) -> TransformerSpec:
    """Return the model with other middle stages and the same differences between its stages."""
    missing = (layers_per_stage(layout, model.num_layers) - num_layers) * layout.num_stages
    return model.with_num_layers(model.num_layers - missing)


def next_alike(fewest: int, whole: int, interval: int) -> int:
    """Return the next number of layers after which every n-th layer lies as it does after the whole."""
    return fewest + (whole - fewest) % interval


def stages_of_rank(layout: Layout, pipeline_rank: int) -> tuple[int, ...]:
    """Return the stages of a pipeline rank in the order of the model: in turn, or there and back in a V.

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
    """Return the number of layers of every stage. Layers that the two ends give away go to all stages."""
    share, extra = divmod(num_layers + first_less + last_less, num_stages)
    less = {0: first_less}
    less[num_stages - 1] = less.get(num_stages - 1, 0) + last_less
    return tuple(share + (stage < extra) - less.get(stage, 0) for stage in range(num_stages))


BYTE_INDEXED_CHUNK = 256
"""Number of components of a chunk whose index fits into a byte; larger ones need two bytes."""


def follows_signs(x: Layout) -> bool:
    """Return True if parameters follow the sign of the exchanged values, so that AdamW has no moments."""
    keeps_momentum = (x.gradient_sync != GradientSync.FULL) & (x.gradient_sync != GradientSync.DILOCO)
    return keeps_momentum & (x.sync_sign != 0)


def steps_per_exchange(x: Layout) -> int:
    """Return the number of steps from one exchange between replicas to the next."""
    return 1 + (x.sync_period - 1) * (x.gradient_sync == GradientSync.DILOCO)


def payload_elements(x: Layout, num_elements: float) -> float:
    """Return the numbers that a rank contributes to an average step, from the gradient elements that it holds."""
    of_demo = x.sync_top_k / x.sync_chunk * (x.gradient_sync == GradientSync.DEMO)
    sparse = (x.gradient_sync == GradientSync.RANDOM) | (x.gradient_sync == GradientSync.STRIDING)
    share = of_demo + sparse / x.sync_sparsity + (x.gradient_sync == GradientSync.DILOCO) / x.sync_period
    return num_elements * (share + (x.gradient_sync == GradientSync.FULL))


def payload_bytes(x: Layout, num_elements: float, element_bytes: float) -> float:
    """Return the bytes that a rank contributes to an average step, with the indices of components that DeMo sends.

    Args:
        x: The layout.
        num_elements: Gradient elements that a rank holds.
        element_bytes: Bytes of an element that a full exchange sends; lossy ones choose their own format.
    """
    is_lossy = x.gradient_sync != GradientSync.FULL
    chosen = 4 - 2 * (x.payload_precision == PayloadPrecision.BF16)
    value_bytes = element_bytes + (chosen - element_bytes) * is_lossy
    index_bytes = (1 + (x.sync_chunk > BYTE_INDEXED_CHUNK)) * (x.gradient_sync == GradientSync.DEMO)
    return payload_elements(x, num_elements) * (value_bytes + index_bytes)


def sent_bytes(x: Layout, num_elements: float, element_bytes: float) -> float:
    """Return the bytes that leave a rank in an average step: by an all-gather with DeMo, otherwise by an all-reduce.

    So DeMo sends more than a full exchange once ``replicas >= chunk / top_k`` where indices are as long as values.
    """
    replicas, payload = x.data_parallel_replicate_degree, payload_bytes(x, num_elements, element_bytes)
    gathers = x.gradient_sync == GradientSync.DEMO
    return payload * (replicas - 1) * (gathers + (gathers == 0) * 2 / replicas)
