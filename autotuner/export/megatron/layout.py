"""A layout as settings by the names of Megatron's namespace, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotuner.core.choices import ExportFormat, RankOrder, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.stages import layers_per_stage
from autotuner.export.megatron.degrees import read_degrees, read_sharding, write_degrees, write_sharding
from autotuner.export.megatron.model import MOST_LAYERS, read_shapes
from autotuner.export.megatron.numerics import read_numerics, read_recompute, write_numerics, write_recompute
from autotuner.export.megatron.pipeline import read_pipeline, write_pipeline
from autotuner.export.megatron.reading import Reading, Settings
from autotuner.export.target import Imported


def layout_settings(job: Job, layout: Layout) -> Settings:
    """The layout, without the model."""
    written = write_degrees(job, layout) | write_pipeline(job, layout) | write_sharding(job, layout)
    written |= write_recompute(job, layout) | write_numerics(layout)
    return written | ({"tp_comm_overlap": True} if layout.async_tensor_parallel else {})


def environment(layout: Layout) -> dict[str, str]:
    """Variables that the layout needs.

    One connection to the device keeps kernels in the order in which they are launched, so that collectives of tensor
    and context ranks overlap; Megatron demands it before Blackwell. FSDP demands more than one; 8 is CUDA's default.
    Source: training/arguments.py of core_v0.16.1, validate_args.
    """
    connections = ""
    if layout.shard_level in (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS):
        connections = "8"
    elif layout.tensor_parallel_degree * layout.context_parallel_degree > 1:
        connections = "1"
    return ({"CUDA_DEVICE_MAX_CONNECTIONS": connections} if connections else {}) | collective_environment(layout)


def left_at_default(layout: Layout) -> Iterator[str]:
    """What the layout does not say and Megatron decides; sentences without full stops."""
    several = layout.data_parallel_degree * layout.context_parallel_degree > 1
    if several and layout.gradient_bucket_bytes == DEFAULT_BUCKET_BYTES:
        yield "gradient buckets have Megatron's own size, 40,000,000 elements or 1,000,000 for each data-parallel rank"
    if layout.recompute == Recompute.SELECTIVE:
        yield "selective recomputation is that of the stack's modules"
    if layout.offload_activations:
        yield "one layer keeps its activations on the device, since all of them is refused"
    order = "tp-cp-ep-pp-dp" if layout.rank_order == RankOrder.REPLICAS_OUTERMOST else "tp-cp-ep-dp-pp"
    yield f"overlaps of gradient reductions and parameter gathers are on; rank order is {order}"


def read_layout(reading: Reading, wanted: ExportFormat, num_layers: int | None = None) -> Imported:
    """The layout that settings say, with the notes so far.

    Args:
        reading: Settings by the names of Megatron's namespace.
        wanted: Whose words they are.
        num_layers: Of the model that a recipe names, where the settings have none.

    Raises:
        InvalidInput: A setting is no such value, or settings contradict each other.
    """
    model = read_shapes(reading)
    layout = read_sharding(reading, read_numerics(reading, read_degrees(reading)))
    num_layers = (model.num_layers if model else reading.integer("num_layers", 0, most=MOST_LAYERS)) or num_layers
    layout = read_pipeline(reading, layout, num_layers)
    layout = read_recompute(reading, layout, layers_per_stage(layout, num_layers) if num_layers else None)
    if reading.on("use_tp_pp_dp_mapping") and 1 not in (layout.pipeline_parallel_degree, layout.data_parallel_degree):
        if layout.data_parallel_shard_degree == 1:
            layout = replace(layout, rank_order=RankOrder.REPLICAS_OUTERMOST)
        else:
            detail = "data-parallel ranks that share parts lie inside a stage in a layout; it has the usual order"
            reading.changed("use_tp_pp_dp_mapping", detail)
    overlaps = reading.on("tp_comm_overlap") and layout.sequence_parallel
    layout = replace(layout, async_tensor_parallel=overlaps)
    batch = reading.integer("global_batch_size", 0) or None
    if batch is None:
        batch = layout.micro_batch_size * layout.data_parallel_degree
        reading.assumed("global_batch_size", f"one micro-batch on each data-parallel rank: {batch}")
    return Imported(
        format=wanted,
        layout=layout,
        version=reading.version,
        num_ranks=reading.asked_ranks or reading.num_ranks,
        model=model,
        seq_len=reading.integer("seq_length", 0) or reading.integer("encoder_seq_length", 0) or None,
        global_batch_size=batch,
        notes=tuple(reading),
    )
