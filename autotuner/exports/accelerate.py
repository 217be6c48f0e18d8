"""Writer and reader of accelerate's configuration of a layout, and the backends that it shares with Transformers.

Source of names and defaults: accelerate 1.15.0 (``parallelism_config.py``, ``utils/dataclasses.py``,
``commands/config/config_args.py``, ``commands/config/cluster.py`` and ``commands/launch.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum

import yaml

from autotuner.core.choices import (
    NARROW_PRECISIONS,
    ContextExchange,
    ExportFormat,
    Fp8Recipe,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.rules.rule import Limit, Rule, any_of, held, named, refuse
from autotuner.core.value import require_one_of
from autotuner.exports import deepspeed
from autotuner.exports.deepspeed import (
    NEAREST_TO_FP16,
    RECOMPUTE_FLAG,
    ZERO_RULES,
    Script,
    attending,
    ds_config,
    on_data_ranks,
    zero_defaults,
)
from autotuner.exports.shared.command import Flags, Launched, launched
from autotuner.exports.shared.common_rules import decided_in_code, exchanges_and_batches, keeps
from autotuner.exports.shared.keys import (
    Key,
    flat,
    nested,
    number,
    read_flag,
    read_integer,
    read_table,
    switch,
    words,
    write_table,
)
from autotuner.exports.shared.target import Export, ExportedFile, Imported, Notes, Target
from autotuner.exports.shared.texts import json_document, split_document, split_yaml, yaml_document


class Backend(Enum):
    """The library that accelerate (by Hugging Face) uses to run data-parallel training: DDP, FSDP or DeepSpeed."""

    DDP = "MULTI_GPU"
    FSDP = "FSDP"
    DEEPSPEED = "DEEPSPEED"


_BETWEEN = (ShardLevel.OPTIMIZER, ShardLevel.GRADIENTS)
"""Shard levels that FSDP2 does not have."""


def exchanges_heads(x: Layout) -> bool:
    """Return True if the context-parallel ranks swap parts of the sequence for attention heads (DeepSpeed's Ulysses).

    ``x`` is one layout, or a table of layouts. For a table, the result has one value per layout.
    """
    return (x.context_parallel_degree > 1) & (x.context_exchange == ContextExchange.ALL_TO_ALL)


def backend_of(layout: Layout) -> Backend:
    """Return the backend of accelerate that can run the layout: DeepSpeed, FSDP or DDP."""
    if layout.shard_level in _BETWEEN or exchanges_heads(layout):
        return Backend.DEEPSPEED
    return Backend.FSDP if layout.shard_level == ShardLevel.PARAMETERS else Backend.DDP


def is_by_torch(layout: Layout) -> bool:
    """Return True if PyTorch's own wrappers (FSDP or DDP) run the layout, False if DeepSpeed runs it."""
    return backend_of(layout) != Backend.DEEPSPEED


def _size(name: str, field: str) -> Key:
    return number(name, field, when=lambda x: is_by_torch(x) and getattr(x, field) > 1)


SIZES: tuple[Key, ...] = (
    _size("dp_replicate_size", "data_parallel_replicate_degree"),
    _size("dp_shard_size", "data_parallel_shard_degree"),
    _size("tp_size", "tensor_parallel_degree"),
    _size("cp_size", "context_parallel_degree"),
    words(
        "cp_comm_strategy",
        "context_exchange",
        # "alltoall" permutes keys and values to the next rank (torch 2.13, _AllToAllRotater)
        {"allgather": ContextExchange.ALL_GATHER, "alltoall": ContextExchange.RING},
        when=lambda x: is_by_torch(x) and x.context_parallel_degree > 1,
    ),
    number(
        "sp_size",  # Ulysses, by DeepSpeed
        "context_parallel_degree",
        when=lambda x: not is_by_torch(x) and x.context_parallel_degree > 1,
    ),
)
"""Sizes of ``ParallelismConfig``. Configuration files and the environment spell their names with a prefix."""


def says_sizes(layout: Layout) -> bool:
    """Return True if accelerate's configuration must name the size of each parallel axis for this layout.

    The sizes are necessary if accelerate cannot compute them from the number of processes alone.
    """
    several = layout.tensor_parallel_degree > 1 or layout.context_parallel_degree > 1
    return several or (backend_of(layout) == Backend.FSDP and layout.data_parallel_replicate_degree > 1)


# ---------------------------------------------------------------- ranks
def on_torch_ranks(
    layout: Layout, num_ranks: int | None, steps: object, notes: Notes, *, said: Collection[str]
) -> Imported:
    """Complete an imported layout that runs on FSDP or DDP: set its data-parallel degrees and, if known, its batch.

    The result has a batch size only if the configuration or the caller gives the number of ranks.

    Args:
        layout: The layout as read so far. Its data-parallel degrees are ignored unless ``said`` names them.
        num_ranks: The number of ranks of the whole job; None: unknown.
        steps: Gradient accumulation steps, as the configuration has them.
        notes: The function adds notes here: on assumed defaults of accelerate, and on a shard level that was changed
            because a single rank cannot shard.
        said: The sizes of parallel axes that the configuration sets, as names from ``SIZES``.

    Raises:
        InvalidInput: The number of ranks is not divisible by the degrees, or contradicts them.
    """
    layout = attending(layout, notes)
    if layout.precision != Precision.FP8:
        layout = replace(layout, fp8_recipe=Fp8Recipe.TENSORWISE)
    if layout.context_parallel_degree == 1:
        layout = replace(layout, context_exchange=ContextExchange.RING)
    elif "cp_comm_strategy" not in said:
        notes.assumed("cp_comm_strategy", "allgather")
        layout = replace(layout, context_exchange=ContextExchange.ALL_GATHER)
    is_known = num_ranks is not None
    if "dp_shard_size" in said or "dp_replicate_size" in said:
        if num_ranks not in (None, layout.world_size):
            rule = f"must be {layout.world_size}, the product of the sizes in parallelism_config"
            raise InvalidInput("num_processes", num_ranks, rule, layout.world_size)
        is_known = True
    else:
        layout = _on_ranks(layout, num_ranks, notes)
    found = Imported(format=ExportFormat.ACCELERATE, layout=layout)
    if not is_known:
        return found
    batch = layout.micro_batch_size * read_integer(_STEPS, steps, at_least=1) * layout.data_parallel_degree
    return replace(found, num_ranks=layout.world_size, global_batch_size=batch)


def _on_ranks(layout: Layout, num_ranks: int | None, notes: Notes) -> Layout:
    inner = layout.tensor_parallel_degree * layout.context_parallel_degree * layout.pipeline_parallel_degree
    if num_ranks is not None and num_ranks % inner:
        rule = f"must be a multiple of {inner}, the product of the tensor, context and pipeline degrees"
        raise InvalidInput("num_processes", num_ranks, rule, max(1, round(num_ranks / inner)) * inner)
    num_data_ranks = (num_ranks or inner) // inner
    if num_ranks is not None and num_data_ranks * layout.context_parallel_degree == 1:
        if layout.shard_level != ShardLevel.NONE:
            notes.changed("sharding", "one process has nothing to shard")
        layout = replace(layout, shard_level=ShardLevel.NONE, reshard_after_forward=False)
    return on_data_ranks(layout, num_data_ranks)


# ---------------------------------------------------------------- rules, also of Transformers
_HELD: Mapping[str, tuple[str, str]] = {
    "has-no-pipeline": ("pipeline_parallel_degree", "under accelerate only Megatron-LM has pipelines; one stage runs"),
    "has-no-virtual-stages": (
        "virtual_stages_per_rank",
        "accelerate has no pipeline whose ranks could have several stages",
    ),
    "has-no-schedule": ("pipeline_schedule", "accelerate has no pipeline that could follow a schedule"),
    "sends-to-no-stage": ("p2p_transport", "accelerate has no pipeline whose stages could send data"),
    "plans-no-slack": ("extra_slack", "accelerate has no pipeline that could run ahead"),
    "has-no-delegates": ("num_delegates", "accelerate has no pipeline whose sends could be delegated"),
    "orders-no-stages": ("rank_order", "accelerate has no pipeline whose stages could change places with replicas"),
    "rotates-no-stages": ("stage_rotation", "accelerate has no pipeline whose stages could be rotated"),
    "cuts-no-first-stage": ("first_stage_less_layers", "accelerate has no pipeline with a first stage"),
    "cuts-no-last-stage": ("last_stage_less_layers", "accelerate has no pipeline with a last stage"),
    "has-no-expert-ranks": (
        "expert_parallel_degree",
        "the script decides about expert ranks when it loads the model; accelerate has no setting",
    ),
    "splits-no-norms": (
        "sequence_parallel",
        ("the model's plan for tensor ranks decides about sequence parallelism; accelerate has no setting"),
    ),
    "cuts-no-products": ("async_tensor_parallel", "only code can set this (TorchTensorParallelConfig.enable_async_tp)"),
}
"""Fields that must keep their defaults, each with the reason, by the name of the rule."""

_SHARED_LIMITS: Mapping[str, Limit] = {
    "accelerate-replicates-no-zero-shards": keeps(
        "data_parallel_replicate_degree",
        "ZeRO shards over all {x.data_parallel_degree} data-parallel ranks and has no replicas of shards",
        lambda x, j: any_of(x.shard_level, _BETWEEN) | ((x.shard_level != ShardLevel.NONE) & exchanges_heads(x)),
    ),
    "accelerate-shards-what-it-splits-sequences-of": held(
        "shard_level",
        ShardLevel.PARAMETERS,
        "context ranks that exchange by {x.context_exchange} need FSDP2, which shards parameters",
        lambda x, j: (x.context_parallel_degree > 1) & (x.context_exchange != ContextExchange.ALL_TO_ALL),
    ),
    "accelerate-shards-beside-tensor-ranks": refuse(
        "shard_level",
        lambda x, j: (
            (x.tensor_parallel_degree > 1)
            & (
                any_of(x.shard_level, _BETWEEN)
                | ((x.shard_level == ShardLevel.NONE) & (x.data_parallel_replicate_degree > 1))
            )
        ),
        "ParallelismConfig combines tensor ranks only with FSDP2, which shards parameters",
        ShardLevel.PARAMETERS,
    ),
    "accelerate-exchanges-heads-without-tensor-ranks": refuse(
        "context_exchange",
        lambda x, j: (x.tensor_parallel_degree > 1) & exchanges_heads(x),
        "all_to_all needs DeepSpeed's Ulysses, which cannot be combined with torch's tensor ranks",
        ContextExchange.ALL_GATHER,
    ),
    "accelerate-replicates-shards": refuse(
        "data_parallel_shard_degree",
        lambda x, j: (
            (x.shard_level == ShardLevel.PARAMETERS)
            & (x.data_parallel_shard_degree == 1)
            & (x.data_parallel_replicate_degree > 1)
        ),
        "ParallelismConfig refuses replicas together with context ranks if there are no shard ranks",
        lambda x, j: x.data_parallel_replicate_degree,
    ),
    "accelerate-zero-multiplies-in-16-bits-or-more": refuse(
        "precision",
        lambda x, j: any_of(x.precision, NARROW_PRECISIONS) & (any_of(x.shard_level, _BETWEEN) | exchanges_heads(x)),
        "DeepSpeed's configuration has no key for {x.precision}",
        Precision.BF16,
    ),
    "accelerate-recomputes-all-or-nothing": refuse(
        "recompute",
        lambda x, j: x.recompute == Recompute.SELECTIVE,
        "activation checkpointing recomputes either whole layers or nothing",
        Recompute.FULL,
    ),
    "accelerate-offloads-what-layers-start-from": keeps(
        "offload_activations",
        "only the inputs of recomputed layers can be kept in the host's memory",
        lambda x, j: x.recompute != Recompute.FULL,
    ),
}

RULES: tuple[Rule, ...] = (
    *(rule for rule in ZERO_RULES if rule.field == "gradient_bucket_bytes" and "whole" in rule.name),
    *exchanges_and_batches("accelerate"),
    *named({f"accelerate-{name}": held(field, OPTIONS[field].default, why) for name, (field, why) in _HELD.items()}),
    *named(_SHARED_LIMITS),
)
"""Rules about layouts that accelerate cannot run, whichever program starts it."""


_VERSION = "1.15.0"
_FILE_NAME = "accelerate.yaml"
_PARALLELISM = "parallelism_config.parallelism_config_"
"""Prefix of the names of ``ParallelismConfig``."""

_MICRO, _STEPS = "per_device_train_batch_size", "gradient_accumulation_steps"
"""Names of the micro-batch size and the accumulation steps in the scripts that accelerate launches (examples/pytorch of
transformers, run_clm_no_trainer.py)."""

_RESHARD = "fsdp_config.fsdp_reshard_after_forward"


def _is_fsdp(layout: Layout) -> bool:
    return backend_of(layout) == Backend.FSDP


def _in_its_section(key: Key) -> Key:
    return replace(key, path=f"{_PARALLELISM}{key.path}", write=lambda x: key.write(x) if says_sizes(x) else None)


_COMPILED = words(
    "dynamo_config.dynamo_backend", "compiled", {"INDUCTOR": True, "NO": False}, when=lambda layout: layout.compiled
)
"""Key for compilation, which applies to every backend."""

_KEYS: tuple[Key, ...] = (
    words(
        "mixed_precision",
        "precision",
        {"bf16": Precision.BF16, "no": Precision.FP32, "fp8": Precision.FP8, "fp16": Precision.BF16},
        when=is_by_torch,  # a configuration file of DeepSpeed's says it there
    ),
    words(
        "fp8_config.backend",
        "fp8_recipe",
        {"AO": Fp8Recipe.TENSORWISE, "TE": Fp8Recipe.DELAYED},
        when=lambda layout: layout.precision == Precision.FP8,
    ),
    switch(_RESHARD, "reshard_after_forward", _is_fsdp),
    words(
        "fsdp_config.fsdp_activation_checkpointing",
        "recompute",
        {True: Recompute.FULL, False: Recompute.NONE},
        when=_is_fsdp,
    ),
    switch(
        "fsdp_config.fsdp_activation_checkpointing_offload",
        "offload_activations",
        lambda layout: _is_fsdp(layout) and layout.offload_activations,
    ),
    _COMPILED,
    *(_in_its_section(key) for key in SIZES),
)
"""Keys of the configuration, in the order in which they are read."""

_MEGATRON_KEYS: tuple[Key, ...] = (
    number("megatron_lm_config.megatron_lm_tp_degree", "tensor_parallel_degree"),
    number("megatron_lm_config.megatron_lm_pp_degree", "pipeline_parallel_degree"),
    number("megatron_lm_config.megatron_lm_context_parallel_size", "context_parallel_degree"),
    number("megatron_lm_config.megatron_lm_expert_model_parallel_size", "expert_parallel_degree"),
    switch("megatron_lm_config.megatron_lm_sequence_parallelism", "sequence_parallel"),
    words(
        "megatron_lm_config.megatron_lm_recompute_activations",
        "recompute",
        {True: Recompute.SELECTIVE, False: Recompute.NONE},
    ),
    words(
        "megatron_lm_config.megatron_lm_recompute_granularity",
        "recompute",
        {"selective": Recompute.SELECTIVE, "full": Recompute.FULL},
    ),
    words(
        "megatron_lm_config.megatron_lm_use_distributed_optimizer",
        "shard_level",
        {True: ShardLevel.OPTIMIZER, False: ShardLevel.NONE},
    ),
)
"""Keys for Megatron-LM. They are read but not written, because Megatron's own flags express more."""

_ELSEWHERE = frozenset({"attention_kernel", "fused_norm", "optimizer_kernel", "fp32_gradient_reduce", "loss_parallel"})
"""Options that the user's script decides: the model that it loads, its plan for tensor ranks, the format of its weights
(and of the gradients), and the optimizer."""

_LIMITS: Mapping[str, Limit] = {
    "accelerate-sizes-no-bucket": keeps(
        "gradient_bucket_bytes",
        "the script sets the bucket size (DistributedDataParallelKwargs.bucket_cap_mb); without it torch uses 25 MiB",
        lambda x, j: x.shard_level == ShardLevel.NONE,
    ),
    "accelerate-recomputes-every-layer": keeps(
        "recompute_every", "fsdp_activation_checkpointing recomputes every layer"
    ),
    "accelerate-offloads-with-fsdp": keeps(
        "offload_activations",
        "only FSDP2 has fsdp_activation_checkpointing_offload",
        lambda x, j: (x.shard_level != ShardLevel.PARAMETERS) | exchanges_heads(x),
    ),
    "accelerate-multiplies-in-8-bits-or-more": refuse(
        "precision",
        lambda x, j: any_of(x.precision, (Precision.BF16, Precision.FP32, Precision.FP8)) == 0,
        "mixed_precision has no value for {x.precision}",
        Precision.BF16,
    ),
    "accelerate-scales-tensors": refuse(
        "fp8_recipe",
        lambda x, j: (
            (x.precision == Precision.FP8) & (any_of(x.fp8_recipe, (Fp8Recipe.TENSORWISE, Fp8Recipe.DELAYED)) == 0)
        ),
        "fp8_config has only the recipes tensorwise (AO) and delayed (TE), not {x.fp8_recipe}",
        Fp8Recipe.TENSORWISE,
    ),
    "accelerate-shards-on-gpus": held(
        "shard_level",
        ShardLevel.NONE,
        "on CPUs accelerate ignores FSDP and DeepSpeed without a warning, and trains replicas",
        lambda x, j: j.cluster.accelerator.kind == "cpu",
        is_of_hardware=True,
    ),
}

_RULES: tuple[Rule, ...] = (*RULES, *named(_LIMITS))


# ---------------------------------------------------------------- write
def _write(job: Job, layout: Layout) -> Export:
    """Return the layout as ``accelerate.yaml``, the script's arguments and, for DeepSpeed, a ``ds_config.json``."""
    config, backend = yaml.safe_dump(_config(job, layout), sort_keys=False), backend_of(layout)
    files = [ExportedFile(name=_FILE_NAME, text=config)]
    arguments = [f"--{_MICRO}", str(layout.micro_batch_size)]
    arguments += [f"--{_STEPS}", str(max(1, job.workload.num_micro_batches(layout)))]
    duties = ["the script must read its batch sizes from the arguments, because a configuration of accelerate has none"]
    if job.cluster.num_nodes > 1:
        duties.append(
            "machine_rank, main_process_ip and main_process_port differ between machines: set them in "
            "each configuration or in the environment"
        )
    if backend == Backend.DEEPSPEED:
        files.append(ExportedFile(name=deepspeed.FILE_NAME, text=ds_config_of_accelerate(job, layout)))
        duties += zero_defaults(layout)
    if layout.tensor_parallel_degree > 1:
        duties.append("the script must load its model with a plan for tensor ranks")
    if layout.compiled:
        duties.append(
            "the whole model is compiled, unless dynamo_use_regional_compilation is set, which compiles each layer"
        )
    if layout.recompute == Recompute.FULL and backend != Backend.FSDP:
        arguments.append(RECOMPUTE_FLAG)
        how = f"the script must turn recomputation on ({RECOMPUTE_FLAG})"
        duties.append(f"{how}, because without FSDP the configuration has no key for it")
    return Export(
        format=ExportFormat.ACCELERATE,
        layout=layout,
        version=_VERSION,
        arguments=tuple(arguments),
        files=tuple(files),
        environment=collective_environment(layout),
        left_to_trainer=(*duties, decided_in_code(_ELSEWHERE, layout, "the script")),
        usage=f"accelerate launch --config_file {_FILE_NAME} train.py, followed by the arguments",
    )


def _config(job: Job, layout: Layout) -> dict[str, object]:
    backend, on_cores = backend_of(layout), job.cluster.accelerator.kind == "cpu"
    kind = backend.value if layout.world_size > 1 else "NO"
    companions: dict[str, object] = {}
    if backend == Backend.FSDP:
        companions |= {"fsdp_config.fsdp_version": 2, "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    if backend == Backend.DEEPSPEED:
        companions["deepspeed_config.deepspeed_config_file"] = deepspeed.FILE_NAME
        companions["deepspeed_config.zero3_init_flag"] = layout.shard_level == ShardLevel.PARAMETERS
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_CPU" if on_cores and kind == Backend.DDP.value else kind,
        "use_cpu": on_cores,
        "num_machines": job.cluster.num_nodes,
        "machine_rank": 0,
        "num_processes": layout.world_size,
        **nested(companions | write_table(_KEYS, layout)),
    }


def ds_config_of_accelerate(job: Job, layout: Layout) -> str:
    """Return the text of ``ds_config.json`` for a job that accelerate starts with DeepSpeed."""
    config = ds_config(job, layout)
    for name in ("sequence_parallel_size", "data_parallel_size"):
        config.pop(name, None)  # accelerate lays these ranks itself
    return json.dumps(config, indent=2) + "\n"


# ---------------------------------------------------------------- read
_TELLING = re.compile(r"""(^|\s|")(distributed_type|fsdp_config|deepspeed_config|parallelism_config)"?\s*:""")
_STARTED = re.compile(r"\baccelerate(\.commands\.launch|\s+launch)\b")

_ZERO_PATHS = {
    "deepspeed_config.zero_stage": "zero_optimization.stage",
    "deepspeed_config.gradient_accumulation_steps": "gradient_accumulation_steps",
    "deepspeed_config.offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "deepspeed_config.offload_param_device": "zero_optimization.offload_param.device",
    f"{_PARALLELISM}sp_size": "sequence_parallel_size",
}
"""Keys of accelerate, each with the key of DeepSpeed that it sets."""

_LAUNCH = {
    *("compute_environment", "distributed_type", "num_machines", "num_processes", "machine_rank", "use_cpu", "debug"),
    *("main_training_function", "rdzv_backend", "same_network", "gpu_ids", "main_process_ip", "main_process_port"),
    *("fsdp_config.fsdp_version", "fsdp_config.fsdp_sharding_strategy", "downcast_bf16", "tpu_env", "tpu_use_cluster"),
    *("tpu_use_sudo", "enable_cpu_affinity", "deepspeed_config", "fsdp_config", "fsdp_config.fsdp_auto_wrap_policy"),
    *("mixed_precision", "fsdp_config.fsdp_state_dict_type", "fsdp_config.fsdp_cpu_ram_efficient_loading"),
}
"""Names that do not describe a layout, or that are read separately."""

_STRATEGIES = {
    "FULL_SHARD": (ShardLevel.PARAMETERS, True),
    "SHARD_GRAD_OP": (ShardLevel.PARAMETERS, False),
    "NO_SHARD": (ShardLevel.NONE, False),
    "HYBRID_SHARD": (ShardLevel.PARAMETERS, True),
    "HYBRID_SHARD_ZERO2": (ShardLevel.PARAMETERS, False),
}
"""FSDP1's sharding strategies, in the order of their numbers from 1 (utils/constants.py, FSDP_SHARDING_STRATEGY)."""

_OFFLOADED = (
    "parameters are kept in the host's memory, which a layout cannot express: its predicted "
    "memory counts them on the device"
)


def _read(text: str, num_ranks: int | None) -> Imported:
    """Return the layout that a configuration and the launch command describe."""
    rest, document = split_document(text)
    written, shell = split_yaml(rest)
    config = flat(yaml_document(written)) if written.strip() else {}
    command = launched(shell, document) if "--" in shell else Launched()
    if "distributed_type" in document:
        config, document = flat(json_document(document)), ""
    script = deepspeed.script_of_command(command)
    config = {**_of_launcher(command.launcher), **config}
    if not config:
        raise InvalidInput(
            "config",
            text[:60],
            "must be a configuration of accelerate, or a command such as accelerate launch --use_fsdp train.py",
        )
    said = config.get("num_processes")
    asked = num_ranks or (None if said in (None, -1) else read_integer("num_processes", said, at_least=1))
    asked, kind = asked or command.num_ranks, _kind(config)
    if kind == "DEEPSPEED":
        found = deepspeed.understood(_zero_config(config, script, document), asked)
        found = replace(found, layout=read_table((_COMPILED,), config, found.layout))
    else:
        found = _of_torch(kind, config, script, asked)
    notes = Notes(found.notes)
    layout = deepspeed.as_trainer_says(script, found.layout, notes)
    notes += command.notes
    if script.recomputes:
        layout = replace(layout, recompute=Recompute.FULL)
    elif script.recomputes is None and layout.recompute == Recompute.NONE:
        notes.assumed("gradient_checkpointing", deepspeed.NO_RECOMPUTATION)
    if kind == "MEGATRON_LM":
        detail = "only the settings of accelerate for Megatron-LM are read, although Megatron has more arguments"
        notes.ignored("megatron_lm_config", detail)
    return replace(
        found,
        format=ExportFormat.ACCELERATE,
        layout=layout,
        model_name=script.model_name,
        seq_len=script.seq_len,
        notes=tuple(notes),
    )


_SECTIONS = (
    ("fsdp_.*", "fsdp_config."),
    ("parallelism_config_.*", "parallelism_config."),
    ("zero_stage|gradient_accumulation_steps|offload_(optimizer|param)_device", "deepspeed_config."),
    ("dynamo_backend", "dynamo_config."),
    ("mixed_precision|num_processes|num_machines", ""),
)
"""Sections of a configuration, by the flags of ``accelerate launch`` that set them."""


def _of_launcher(flags: Flags) -> dict[str, object]:
    """Return the flags of ``accelerate launch`` on a command line, as the configuration that they set."""
    config: dict[str, object] = {
        f"{section}{name}": values[0] if values else True
        for name, values in flags.values.items()
        for pattern, section in _SECTIONS
        if re.fullmatch(pattern, name)
    }
    for word, kind in (("use_fsdp", "FSDP"), ("use_deepspeed", "DEEPSPEED"), ("multi_gpu", "MULTI_GPU")):
        if flags.switch(word):
            config["distributed_type"] = kind
    return config


def _kind(config: Mapping[str, object]) -> str:
    said = str(config.get("distributed_type", ""))
    if said:
        return said
    if any(path.startswith("fsdp_config.") for path in config):
        return "FSDP"
    return "DEEPSPEED" if any(path.startswith("deepspeed_config.") for path in config) else "MULTI_GPU"


def _zero_config(config: Mapping[str, object], script: Script, document: str) -> dict[str, object]:
    """Return the keys of DeepSpeed's own configuration that accelerate's keys and DeepSpeed's document set."""
    said = {_ZERO_PATHS[path]: raw for path, raw in config.items() if path in _ZERO_PATHS}
    precision = config.get("mixed_precision")
    if precision is not None:
        said |= {"bf16.enabled": precision == "bf16", "fp16.enabled": precision == "fp16"}
    said |= {path: raw for path, raw in script.config.items() if path not in said}
    written = flat(json_document(document)) if document else {}
    return {**said, **{path: raw for path, raw in written.items() if raw != "auto" or path not in said}}


def _of_torch(kind: str, config: Mapping[str, object], script: Script, num_ranks: int | None) -> Imported:
    """Return the layout that a configuration describes for DistributedDataParallel, FSDP or Megatron-LM."""
    notes = Notes()
    keys = (*_KEYS[:1], *_MEGATRON_KEYS) if kind == "MEGATRON_LM" else _KEYS
    level, settings = _settings(kind, config, notes)
    known = {key.path for key in keys}
    # the precision is that of the Trainer's own arguments, where accelerate's configuration has none
    precision = next((word for word in ("bf16", "fp16") if script.config.get(f"{word}.enabled") is True), "no")
    said = {path: raw for path, raw in settings.items() if path in known and raw is not None}
    layout = read_table(keys, {"mixed_precision": precision, **said}, Layout(shard_level=level))
    if config.get("mixed_precision") == "fp16":
        notes.changed("mixed_precision: fp16", NEAREST_TO_FP16)
    micro = script.config.get("train_micro_batch_size_per_gpu")
    if micro is None:
        detail = "neither the configuration of accelerate nor an argument gives the batch size; one sequence is assumed"
        notes.assumed(_MICRO, detail)
    layout = replace(layout, micro_batch_size=read_integer(_MICRO, 1 if micro is None else micro, at_least=1))
    sizes = {path.removeprefix(_PARALLELISM) for path, raw in config.items() if raw is not None}
    found = on_torch_ranks(layout, num_ranks, script.config.get(_STEPS, 1), notes, said=sizes)
    _note_others(config, known, notes)
    return replace(found, layout=_on_nodes(config, found.layout), notes=tuple(notes))


def _settings(kind: str, config: Mapping[str, object], notes: Notes) -> tuple[ShardLevel, Mapping[str, object]]:
    """Return the shard level, and the settings that apply with it."""
    if kind != "FSDP":
        return ShardLevel.NONE, {path: raw for path, raw in config.items() if not path.startswith("fsdp_config.")}
    if read_integer("fsdp_version", config.get("fsdp_config.fsdp_version", 1)) == 2:
        if _RESHARD not in config:
            notes.assumed("fsdp_reshard_after_forward", "true")
        return ShardLevel.PARAMETERS, {_RESHARD: True, **config}
    word = str(config.get("fsdp_config.fsdp_sharding_strategy", config.get(_RESHARD, "FULL_SHARD"))).upper()
    strategy = list(_STRATEGIES)[int(word) - 1] if word in ("1", "2", "3", "4", "5") else word
    require_one_of("fsdp_sharding_strategy", strategy, _STRATEGIES)
    notes.changed("fsdp_version: 1", f"{strategy} is read as the strategy of FSDP2")
    level, reshards = _STRATEGIES[strategy]
    return level, {**config, _RESHARD: reshards}


def _on_nodes(config: Mapping[str, object], layout: Layout) -> Layout:
    """Return the layout on nodes: FSDP1's hybrid strategies shard inside a node and replicate between nodes."""
    if not str(config.get("fsdp_config.fsdp_sharding_strategy", "")).upper().startswith(("HYBRID", "4", "5")):
        return layout
    machines = read_integer("num_machines", config.get("num_machines", 1), at_least=1)
    shards, rest = divmod(layout.data_parallel_shard_degree, machines)
    if rest or layout.shard_level == ShardLevel.NONE:
        return layout
    return replace(layout, data_parallel_shard_degree=shards, data_parallel_replicate_degree=machines)


def _note_others(config: Mapping[str, object], known: Collection[str], notes: Notes) -> None:
    rest = [path for path in config if path not in known and path not in _LAUNCH]
    offload = "fsdp_config.fsdp_offload_params"
    if offload in rest:
        rest.remove(offload)
        if read_flag(offload, config[offload]):
            notes.changed(offload, _OFFLOADED)
    if ignored := [path.rpartition(".")[2] for path in rest]:
        names = ", ".join(ignored[:8]) + (" ..." if len(ignored) > 8 else "")
        notes.ignored(names, "has no effect on the layout")


ACCELERATE = Target(
    format=ExportFormat.ACCELERATE,
    version=_VERSION,
    rules=_RULES,
    decided_elsewhere=_ELSEWHERE,
    write=_write,
    read=_read,
    recognises=lambda text: bool(_TELLING.search(text) or _STARTED.search(text)),
)
