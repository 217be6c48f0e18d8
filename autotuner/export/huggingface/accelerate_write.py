"""A layout as the configuration of ``accelerate launch``."""

from __future__ import annotations

import json
from collections.abc import Iterator

import yaml

from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.deepspeed.write import FILE_NAME as DS_FILE_NAME
from autotuner.export.deepspeed.write import RECOMPUTE_FLAG, ds_config, zero_defaults
from autotuner.export.huggingface.accelerate_keys import KEYS
from autotuner.export.huggingface.accelerate_rules import ELSEWHERE
from autotuner.export.huggingface.backend import Backend, backend_of
from autotuner.export.keys import nested, said
from autotuner.export.sentences import decided_in_code
from autotuner.export.target import Export, ExportedFile

VERSION = "1.15.0"
_FILE_NAME = "accelerate.yaml"

_BATCH_FLAGS = ("--per_device_train_batch_size", "--gradient_accumulation_steps")
"""What the scripts call it that are launched so (examples/pytorch of transformers, run_clm_no_trainer.py)."""


def write(job: Job, layout: Layout) -> Export:
    """The layout as ``accelerate.yaml``, a ``ds_config.json`` where DeepSpeed runs it, and the script's arguments."""
    config = yaml.safe_dump(_config(job, layout), sort_keys=False)
    files = [ExportedFile(name=_FILE_NAME, text=config)]
    if backend_of(layout) == Backend.DEEPSPEED:
        files.append(ExportedFile(name=DS_FILE_NAME, text=ds_config_of_accelerate(job, layout)))
    return Export(
        format=ExportFormat.ACCELERATE,
        version=VERSION,
        arguments=tuple(_arguments(job, layout)),
        files=tuple(files),
        environment=collective_environment(layout),
        defaults=(*_defaults(job, layout), decided_in_code(ELSEWHERE, layout, "the script")),
        usage=f"accelerate launch --config_file {_FILE_NAME} train.py, with the arguments behind it",
    )


def _config(job: Job, layout: Layout) -> dict[str, object]:
    backend, on_cores = backend_of(layout), job.cluster.accelerator.kind == "cpu"
    kind = backend.value if layout.world_size > 1 else "NO"
    companions: dict[str, object] = {}
    if backend == Backend.FSDP:
        companions |= {"fsdp_config.fsdp_version": 2, "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    if backend == Backend.DEEPSPEED:
        companions["deepspeed_config.deepspeed_config_file"] = DS_FILE_NAME
        companions["deepspeed_config.zero3_init_flag"] = layout.shard_level == ShardLevel.PARAMETERS
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_CPU" if on_cores and backend == Backend.DDP and layout.world_size > 1 else kind,
        "use_cpu": on_cores,
        "num_machines": job.cluster.num_nodes,
        "machine_rank": 0,
        "num_processes": layout.world_size,
        **nested(companions | said(KEYS, layout)),
    }


def ds_config_of_accelerate(job: Job, layout: Layout) -> str:
    """``ds_config.json`` where accelerate starts DeepSpeed."""
    config = ds_config(job, layout)
    for name in ("sequence_parallel_size", "data_parallel_size"):
        config.pop(name, None)  # accelerate lays these ranks itself
    return json.dumps(config, indent=2) + "\n"


def _arguments(job: Job, layout: Layout) -> Iterator[str]:
    for flag, value in zip(
        _BATCH_FLAGS, (layout.micro_batch_size, max(1, job.workload.num_micro_batches(layout))), strict=True
    ):
        yield flag
        yield str(value)
    if _recomputes_in_code(layout):
        yield RECOMPUTE_FLAG


def _recomputes_in_code(layout: Layout) -> bool:
    return layout.recompute == Recompute.FULL and backend_of(layout) != Backend.FSDP


def _defaults(job: Job, layout: Layout) -> Iterator[str]:
    yield "the script reads its batch sizes from the arguments: a configuration of accelerate has none"
    if job.cluster.num_nodes > 1:
        yield "machine_rank, main_process_ip and main_process_port differ per machine, or stand in the environment"
    if backend_of(layout) == Backend.DEEPSPEED:
        yield from zero_defaults(layout)
    if layout.tensor_parallel_degree > 1:
        yield "the script loads its model with a plan for tensor ranks"
    if layout.compiled:
        yield "the whole model is compiled, unless dynamo_use_regional_compilation compiles each layer"
    if _recomputes_in_code(layout):
        yield f"the script turns recomputation on ({RECOMPUTE_FLAG}): the configuration has no key for it without FSDP"
