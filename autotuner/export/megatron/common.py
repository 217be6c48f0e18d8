"""A layout as settings by the names of Megatron's namespace, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotuner.core.choices import RankOrder, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.stages import layers_per_stage
from autotuner.export.megatron.degrees import read_degrees, read_sharding, write_degrees, write_sharding
from autotuner.export.megatron.model import MOST_LAYERS, read_shapes
from autotuner.export.megatron.numerics import read_numerics, read_recompute, write_numerics, write_recompute
from autotuner.export.megatron.pipeline import read_pipeline, write_pipeline
from autotuner.export.megatron.reading import Reading, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What settings say."""

    layout: Layout
    num_ranks: int | None
    model: TransformerSpec | None
    seq_len: int | None
    global_batch_size: int | None


def layout_settings(job: Job, layout: Layout) -> Settings:
    """The layout, without the model."""
    written = write_degrees(job, layout)
    written |= write_pipeline(job, layout)
    written |= write_sharding(job, layout)
    written |= write_recompute(job, layout)
    written |= write_numerics(layout)
    if layout.async_tensor_parallel:
        written["tp_comm_overlap"] = True
    return written


def environment(layout: Layout) -> dict[str, str]:
    """Variables that the layout needs.

    One connection to the device keeps kernels in the order in which they are launched, so that collectives of tensor
    and context ranks overlap; Megatron demands it before Blackwell. FSDP demands more than one; 8 is CUDA's default.
    Source: training/arguments.py of core_v0.16.1, validate_args.
    """
    if layout.shard_level in (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS):
        connections = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    elif layout.tensor_parallel_degree * layout.context_parallel_degree > 1:
        connections = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    else:
        connections = {}
    return connections | collective_environment(layout)


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


def read_layout(reading: Reading, num_layers: int | None = None) -> Found:
    """The layout that settings say.

    Args:
        reading: Settings by the names of Megatron's namespace.
        num_layers: Of the model that a recipe names, where the settings have none.

    Raises:
        InvalidInput: A setting is no such value, or settings contradict each other.
    """
    model = read_shapes(reading)
    fields, degrees = read_degrees(reading)
    numerics, precision = read_numerics(reading)
    fields |= numerics | read_sharding(reading, degrees, precision)
    num_layers = (model.num_layers if model else reading.count("num_layers", 0, most=MOST_LAYERS)) or num_layers
    fields |= read_pipeline(reading, num_layers, degrees.pipeline)
    between = layers_per_stage(_layout(fields), num_layers) if num_layers else None
    fields |= read_recompute(reading, between) | _rank_order(reading, _layout(fields))
    fields |= _tensor_overlap(reading, fields)
    layout = _layout(fields)
    batch = reading.count("global_batch_size", 0) or None
    if batch is None:
        batch = layout.micro_batch_size * layout.data_parallel_degree
        reading.assumed("global_batch_size", f"one micro-batch on each data-parallel rank: {batch}")
    return Found(
        layout=layout,
        num_ranks=reading.asked_ranks or reading.num_ranks,
        model=model,
        seq_len=reading.count("seq_length", 0) or reading.count("encoder_seq_length", 0) or None,
        global_batch_size=batch,
    )


def _rank_order(reading: Reading, layout: Layout) -> dict[str, object]:
    """Order tp-cp-ep-pp-dp, which a layout can say where all data-parallel ranks are replicas."""
    if not reading.on("use_tp_pp_dp_mapping") or 1 in (layout.pipeline_parallel_degree, layout.data_parallel_degree):
        return {}
    if layout.data_parallel_shard_degree > 1:
        detail = "data-parallel ranks that share parts lie inside a stage in a layout; it has the usual order"
        reading.changed("use_tp_pp_dp_mapping", detail)
        return {}
    return {"rank_order": RankOrder.REPLICAS_OUTERMOST}


def _layout(fields: Mapping[str, Any]) -> Layout:
    return Layout(**fields)


def _tensor_overlap(reading: Reading, fields: Mapping[str, object]) -> dict[str, object]:
    return {"async_tensor_parallel": reading.on("tp_comm_overlap") and bool(fields["sequence_parallel"])}
