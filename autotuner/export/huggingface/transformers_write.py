"""A layout as arguments of the ``transformers`` Trainer, with the file that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator

from autotuner.core.choices import ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.deepspeed.write import FILE_NAME as DS_FILE_NAME
from autotuner.export.deepspeed.write import zero_defaults
from autotuner.export.huggingface.accelerate_write import ds_config_of_accelerate
from autotuner.export.huggingface.backend import SIZES, Backend, backend_of, says_sizes
from autotuner.export.huggingface.transformers_keys import FSDP_KEYS, KEYS, checkpointing_kwargs
from autotuner.export.huggingface.transformers_rules import ELSEWHERE
from autotuner.export.keys import said
from autotuner.export.sentences import decided_in_code
from autotuner.export.target import Export, ExportedFile

VERSION = "5.23.0"
_FSDP_FILE_NAME = "fsdp_config.json"

ENVIRONMENT_PREFIX = "PARALLELISM_CONFIG_"
"""What stands before the names of ``ParallelismConfig`` where accelerate reads them (1.15.0, parallelism_config.py)."""


def write(job: Job, layout: Layout) -> Export:
    """The layout as arguments, with the configuration of FSDP or DeepSpeed that they name."""
    files, cluster = _files(job, layout), job.cluster
    return Export(
        format=ExportFormat.TRANSFORMERS,
        version=VERSION,
        arguments=tuple(_arguments(job, layout)),
        files=files,
        environment=_sizes(layout) | collective_environment(layout),
        defaults=(*_defaults(layout), decided_in_code(ELSEWHERE, layout, "the script")),
        usage=f"torchrun --nnodes {cluster.num_nodes} --nproc-per-node {cluster.accelerators_per_node} train.py, "
        "with the arguments behind it" + "".join(f" and {file.name} beside it" for file in files),
    )


def _arguments(job: Job, layout: Layout) -> Iterator[str]:
    for name, value in said(KEYS, layout).items():
        yield f"--{name}"
        yield str(value)
    yield "--gradient_accumulation_steps"
    yield str(max(1, job.workload.num_micro_batches(layout)))
    kwargs = checkpointing_kwargs(layout)
    if kwargs:
        yield "--gradient_checkpointing_kwargs"
        yield kwargs
    match backend_of(layout):
        case Backend.DEEPSPEED:
            yield from ("--deepspeed", DS_FILE_NAME)
        case Backend.FSDP:
            yield from ("--fsdp", "--fsdp_config", _FSDP_FILE_NAME)


def _files(job: Job, layout: Layout) -> tuple[ExportedFile, ...]:
    match backend_of(layout):
        case Backend.DDP:
            return ()
        case Backend.FSDP:
            return (ExportedFile(name=_FSDP_FILE_NAME, text=_json({"version": 2, **said(FSDP_KEYS, layout)})),)
        case Backend.DEEPSPEED:
            return (ExportedFile(name=DS_FILE_NAME, text=ds_config_of_accelerate(job, layout)),)


def _json(config: dict[str, object]) -> str:
    return json.dumps(config, indent=2) + "\n"


def _sizes(layout: Layout) -> dict[str, str]:
    """What accelerate cannot tell from the number of processes, as the variables that it reads."""
    if not says_sizes(layout):
        return {}
    sizes = {f"{ENVIRONMENT_PREFIX}{name.upper()}": str(value) for name, value in said(SIZES, layout).items()}
    return {"ACCELERATE_USE_PARALLELISM_CONFIG": "true", **sizes}


def _defaults(layout: Layout) -> Iterator[str]:
    if backend_of(layout) == Backend.DEEPSPEED:
        yield from zero_defaults(layout)
    if layout.context_parallel_degree > 1 and backend_of(layout) == Backend.DEEPSPEED:
        yield "the script's attention exchanges heads for parts of the sequence (UlyssesSPAttentionHF)"
    if layout.compiled:
        yield "torch_compile compiles the whole model, not each layer"
    if layout.shard_level == ShardLevel.NONE and layout.data_parallel_replicate_degree > 1:
        yield "weights and gradients have the format in which the script loads the model"
