"""A layout as ``ds_config.json``, with what has to be said in the script beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.common_rules import decided_in_code
from autotuner.export.deepspeed.keys import DEFAULT_BUCKET_ELEMENTS, KEYS, NEVER_REUSED, STAGE_0_ELEMENTS
from autotuner.export.deepspeed.rules import ELSEWHERE
from autotuner.export.keys import nested, said
from autotuner.export.target import Export, ExportedFile

VERSION = "0.19.8"
FILE_NAME = "ds_config.json"

RECOMPUTE_FLAG = "--gradient_checkpointing"
"""What scripts call it that start DeepSpeed (DeepSpeedExamples applications/DeepSpeed-Chat, transformers)."""


def write(job: Job, layout: Layout) -> Export:
    """The layout as ``ds_config.json`` and an argument for the script."""
    text = json.dumps(ds_config(job, layout), indent=2) + "\n"
    cluster = job.cluster
    return Export(
        format=ExportFormat.DEEPSPEED,
        version=VERSION,
        arguments=(RECOMPUTE_FLAG,) if _recomputes_in_code(layout) else (),
        files=(ExportedFile(name=FILE_NAME, text=text),),
        environment=collective_environment(layout),
        defaults=(*_defaults(layout), decided_in_code(ELSEWHERE, layout, "the script")),
        usage=f"deepspeed --num_nodes {cluster.num_nodes} --num_gpus {cluster.accelerators_per_node} train.py "
        f"--deepspeed --deepspeed_config {FILE_NAME}, with the arguments behind it",
    )


def ds_config(job: Job, layout: Layout) -> dict[str, object]:
    """What DeepSpeed reads of the layout."""
    num_micro_batches = max(1, job.workload.num_micro_batches(layout))
    return {
        "train_batch_size": layout.micro_batch_size * num_micro_batches * layout.data_parallel_degree,
        "gradient_accumulation_steps": num_micro_batches,
        **nested(said(KEYS, layout) | _companions(layout)),
    }


def _companions(layout: Layout) -> dict[str, object]:
    """Keys without which others do nothing."""
    values: dict[str, object] = {}
    if layout.context_parallel_degree > 1:
        values["data_parallel_size"] = layout.data_parallel_degree  # a mesh is made where both sizes are said
    if layout.expert_parallel_degree > 1:
        values["expert_parallel.enabled"] = True
    if layout.shard_level == ShardLevel.PARAMETERS and not layout.reshard_after_forward:
        values["zero_optimization.stage3_max_live_parameters"] = NEVER_REUSED  # else it prefetches no more beyond
    return values


def _recomputes_in_code(layout: Layout) -> bool:
    return layout.recompute == Recompute.FULL and layout.pipeline_parallel_degree == 1


def _defaults(layout: Layout) -> Iterator[str]:
    yield from zero_defaults(layout)
    if layout.pipeline_parallel_degree > 1:
        yield (
            f"the script builds PipelineModule(num_stages={layout.pipeline_parallel_degree}): DeepSpeed does not read "
            "pipeline.stages itself"
        )
    if layout.tensor_parallel_degree > 1:
        yield "the script feeds every rank of a tensor group the same batch, else DeepSpeed stops"
    if layout.context_parallel_degree > 1:
        yield "the script's attention exchanges heads for parts of the sequence (UlyssesSPAttentionHF)"
    if layout.expert_parallel_degree > 1:
        yield "AutoEP finds the experts by the type of the model; others are named in expert_parallel"
    if _recomputes_in_code(layout):
        yield f"the script turns recomputation on ({RECOMPUTE_FLAG}): DeepSpeed has no key for it"


def zero_defaults(layout: Layout) -> Iterator[str]:
    """What ZeRO does that a layout does not say."""
    if layout.shard_level == ShardLevel.NONE:
        yield f"ZeRO stage 0 reduces {STAGE_0_ELEMENTS:,} elements at once, after the last micro-batch"
    elif layout.shard_level == ShardLevel.OPTIMIZER:
        yield f"allgather_bucket_size is {DEFAULT_BUCKET_ELEMENTS:,} elements"
    else:
        yield f"reduce_bucket_size is {DEFAULT_BUCKET_ELEMENTS:,} elements"
