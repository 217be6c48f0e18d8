"""DeepSpeed: writes a layout as ``ds_config.json``, and reads it from a file, a launch script, or both in one text.

Names, defaults and limits are those of deepspeed 0.19.8: ``runtime/config.py``, ``runtime/zero/config.py``,
``runtime/tensor_parallel/config.py``, ``module_inject/auto_ep_config.py``, and ``__init__.py`` for data and sequence
sizes; the source file is stated at each limit. Flags of scripts: DeepSpeedExamples (applications/DeepSpeed-Chat,
training/pipeline_parallelism, training/cifar, training/DeepSpeed-SuperOffload), transformers 5.23.0 (training_args.py),
Megatron-DeepSpeed (megatron/arguments.py). The table ``KEYS`` is used for writing and reading. Functions handle
everything else (the batch equation, ZeRO's defaults).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import ceil
from string import Template

from autotuner.core.choices import AttentionKernel, ContextExchange, ExportFormat, Precision, Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.rules.rule import Limit, any_of, held, named, refuse
from autotuner.exports.shared.command import Launched, launched, unread
from autotuner.exports.shared.common_rules import (
    LAUNCHED,
    decided_in_code,
    exchanges_and_batches,
    keeps,
    sends_and_places,
)
from autotuner.exports.shared.keys import (
    Key,
    flat,
    nested,
    number,
    read_flag,
    read_integer,
    read_table,
    words,
    write_table,
)
from autotuner.exports.shared.target import Export, ExportedFile, Imported, Note, Notes, Target
from autotuner.exports.shared.texts import json_document, split_document

VERSION = "0.19.8"
FILE_NAME = "ds_config.json"
RECOMPUTE_FLAG = "--gradient_checkpointing"  # of scripts: DeepSpeedExamples' DeepSpeed-Chat, transformers
BUCKET_ELEMENTS = 500_000_000  # reduce_bucket_size (runtime/zero/config.py); MEMORY_OPT_ALLREDUCE_SIZE at stage 0
NEVER_REUSED = 10**13  # a stage3_max_reuse_distance beyond twice the parameters of any model keeps all that is gathered
DECIDED_IN_CODE = frozenset({"attention_kernel", "fused_norm", "compiled", "optimizer_kernel"})

_STAGE, _BUCKET = "zero_optimization.stage", "zero_optimization.reduce_bucket_size"
_REUSE = "zero_optimization.stage3_max_reuse_distance"
_MICRO, _BATCH, _STEPS = "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps"
_SHARDS_BY_LAYER = (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)


def _splits_whole_model(x: Layout) -> bool:
    """Return True if AutoTP splits the model. In a pipeline, the model's own layers are split."""
    return x.tensor_parallel_degree > 1 and x.pipeline_parallel_degree == 1


def gradient_element_bytes(x: Layout) -> int:
    """Return the bytes of one gradient element while it is reduced: 2, or 4 in fp32.

    ``x`` is one layout, or a table of layouts. For a table, the result has one value per layout.
    """
    return 2 + 2 * (x.precision == Precision.FP32)


def _bucket_elements(x: Layout) -> int | None:
    """Return the bucket size of ZeRO stage 1 in elements.

    Stage 0 has no such key, and stages 2 and 3 reduce layer by layer.
    """
    if x.shard_level != ShardLevel.OPTIMIZER:
        return None
    return max(1, x.gradient_bucket_bytes // gradient_element_bytes(x))


def _read_bucket(path: str, raw: object, x: Layout) -> int:
    elements = read_integer(path, raw, at_least=1)
    is_used = x.shard_level == ShardLevel.OPTIMIZER
    return elements * gradient_element_bytes(x) if is_used else x.gradient_bucket_bytes


def _sequence_dtype(x: Layout) -> str | None:
    """Return the reduction format with sequence ranks, where it replaces ``communication_data_type``."""
    if x.context_parallel_degree == 1 or x.precision == Precision.FP32:
        return None
    return "fp32" if x.fp32_gradient_reduce else "bf16"


def _reduces_in_fp32(raw: object, x: Layout) -> bool:
    return raw == "fp32" and x.precision != Precision.FP32


KEYS: tuple[Key, ...] = (
    number(
        _MICRO,
        "micro_batch_size",
        when=lambda x: True,
        flags=("per_device_train_batch_size", _MICRO, "micro_batch_size", "per_device_batch_size"),
    ),
    words("bf16.enabled", "precision", {True: Precision.BF16, False: Precision.FP32}, flags=("bf16",)),
    words(_STAGE, "shard_level", {level.value: level for level in ShardLevel}, flags=("zero_stage",)),
    Key(
        path="tensor_parallel.autotp_size",  # 0 switches it off
        field="tensor_parallel_degree",
        write=lambda x: x.tensor_parallel_degree if _splits_whole_model(x) else None,
        read=lambda path, raw, x: max(1, read_integer(path, raw)),
        flags=("autotp_size", "tensor_parallel_size", "tensor_model_parallel_size", "tp_size"),
    ),
    words(
        "tensor_parallel.vocab_parallel_lm_head",  # unset: whole logits, but for a tied head with a plan of its own
        "loss_parallel",
        {True: True, False: False},
        when=_splits_whole_model,
    ),
    number(
        "pipeline.stages", "pipeline_parallel_degree", flags=("pipeline_parallel_size", "pipeline_model_parallel_size")
    ),
    Key(
        path="pipeline.activation_checkpoint_interval",  # layers per checkpoint; 0 keeps what they save
        field="recompute",
        write=lambda x: 1 if x.pipeline_parallel_degree > 1 and x.recompute == Recompute.FULL else None,
        read=lambda path, raw, x: Recompute.FULL if read_integer(path, raw) else x.recompute,
    ),
    number(
        "sequence_parallel_size",
        "context_parallel_degree",
        flags=("sequence_parallel_size", "ds_sequence_parallel_size", "sp_size"),
    ),
    number(
        "expert_parallel.autoep_size",
        "expert_parallel_degree",
        flags=("autoep_size", "ep_world_size", "moe_expert_parallel_size"),
    ),
    Key(path=_BUCKET, field="gradient_bucket_bytes", write=_bucket_elements, read=_read_bucket),
    Key(
        path=_REUSE,
        field="reshard_after_forward",
        write=lambda x: (
            None if x.shard_level != ShardLevel.PARAMETERS else 0 if x.reshard_after_forward else NEVER_REUSED
        ),
        # distances from 10^12 on keep a whole model
        read=lambda path, raw, x: read_integer(path, raw) < 10**12 and x.shard_level == ShardLevel.PARAMETERS,
    ),
    Key(
        path="communication_data_type",
        field="fp32_gradient_reduce",
        write=lambda x: "fp32" if x.fp32_gradient_reduce and x.context_parallel_degree == 1 else None,
        read=lambda path, raw, x: _reduces_in_fp32(raw, x) and x.context_parallel_degree == 1,
    ),
    Key(
        path="seq_parallel_communication_data_type",  # default fp32
        field="fp32_gradient_reduce",
        write=_sequence_dtype,
        read=lambda path, raw, x: _reduces_in_fp32(raw, x) if x.context_parallel_degree > 1 else x.fp32_gradient_reduce,
    ),
)
"""Keys in the order in which they are read. Precision and level come before the keys whose meaning depends on them."""

CHANGED: Mapping[str, str] = {
    "zero_optimization.offload_optimizer": (
        "optimizer states are kept in the host's memory, which a layout cannot express: its "
        "predicted memory counts them on the device"
    ),
    "zero_optimization.offload_param": (
        "parameters are kept in the host's memory, which a layout cannot express: its predicted "
        "memory counts them on the device"
    ),
    "zero_optimization.zero_hpz_partition_size": (
        "each node keeps a second copy of the parameters, which a layout cannot express"
    ),
    "zero_optimization.zero_quantized_weights": "parameters are gathered in 8 bits, which a layout cannot express",
    "zero_optimization.zero_quantized_gradients": "gradients are sent in 4 and 8 bits, which a layout cannot express",
    "activation_checkpointing.partition_activations": (
        "the inputs of recomputation are split over tensor ranks, which a layout cannot express"
    ),
    "activation_checkpointing.cpu_checkpointing": (
        "the inputs of recomputation are kept in the host's memory, which a layout cannot express"
    ),
    "tensor_parallel.tp_overlap_comm": (
        "tensor ranks communicate while gradients of weights are computed; the closest option of a "
        "layout is async_tensor_parallel, which splits matrix products"
    ),
    "compile.deepcompile": "DeepSpeed compiles the whole model, but a layout only says whether each layer is compiled",
}
"""Keys that change a run but have no field in a layout, by path or section, each with its effect."""

_READ = {key.path for key in KEYS} | {
    *(_MICRO, _BATCH, _STEPS, "data_parallel_size", "expert_parallel.enabled", "fp16.enabled"),
    "zero_optimization.stage3_max_live_parameters",
}
KNOWN_SECTIONS = frozenset(path.split(".")[0] for path in (*_READ, *CHANGED)) | {
    *("fp16", "bfloat16", "torch_autocast", "optimizer", "scheduler", "gradient_clipping", "prescale_gradients"),
    *("gradient_predivide_factor", "gradient_allreduce_op", "steps_per_print", "wall_clock_breakdown"),
    *("memory_breakdown", "dump_state", "disable_allgather", "disable_python_gc", "dataloader_drop_last", "log_level"),
    *("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "data_types", "data_efficiency", "aio"),
    *("checkpoint", "comms_logger", "tensorboard", "wandb", "csv_monitor", "comet", "flops_profiler", "autotuning"),
    *("hybrid_engine", "weight_quantization", "timers", "data_parallel_size", "use_data_before_expert_parallelism"),
    *("managed_gradient_accumulation", "datastates", "vocabulary_size", "nebula", "amp", "compression_training"),
    *("sparse_gradients", "sparse_attention", "elasticity", "eigenvalue", "curriculum_learning", "quantize_training"),
}
"""Top-level sections of this and older releases. DeepSpeed silently ignores any other section."""

ZERO_RULES = named(
    {
        # runtime/engine.py: seq_data_parallel_group
        "deepspeed-shards-over-all-replicas": keeps(
            "data_parallel_replicate_degree",
            "ZeRO shards over all {x.data_parallel_degree} data-parallel ranks and has no "
            "{x.data_parallel_replicate_degree} replicas of the shards",
            lambda x, j: x.shard_level != ShardLevel.NONE,
        ),
        # runtime/engine.py: MEMORY_OPT_ALLREDUCE_SIZE
        "deepspeed-sizes-no-bucket-at-stage-0": keeps(
            "gradient_bucket_bytes",
            f"ZeRO stage 0 has no key for its buckets: it reduces {BUCKET_ELEMENTS:,} elements at once, "
            "after the last micro-batch",
            lambda x, j: x.shard_level == ShardLevel.NONE,
        ),
        "deepspeed-counts-whole-elements": refuse(
            "gradient_bucket_bytes",
            lambda x, j: (
                (x.shard_level == ShardLevel.OPTIMIZER) & (x.gradient_bucket_bytes % gradient_element_bytes(x) != 0)
            ),
            lambda x, j: (
                f"reduce_bucket_size is a number of elements of {gradient_element_bytes(x)} bytes, and "
                f"{x.gradient_bucket_bytes} bytes are not a multiple of that"
            ),
            lambda x, j: x.gradient_bucket_bytes + -x.gradient_bucket_bytes % gradient_element_bytes(x),
        ),
    }
)
"""Rules about layouts that ZeRO cannot run, whichever program starts it."""

_BALANCED = (
    "PipelineModule balances parameters or layers over the stages (partition_method); a single "
    "stage cannot get its own number of layers"
)

_LIMITS: Mapping[str, Limit] = {
    # runtime/pipe/engine.py
    "deepspeed-pipelines-shard-optimizers-at-most": refuse(
        "shard_level",
        lambda x, j: (x.pipeline_parallel_degree > 1) & any_of(x.shard_level, _SHARDS_BY_LAYER),
        "DeepSpeed's pipeline engine refuses ZeRO stage {x.shard_level.value}",
        ShardLevel.OPTIMIZER,
    ),
    # runtime/pipe/schedule.py
    "deepspeed-pipelines-run-1f1b": keeps(
        "pipeline_schedule", "DeepSpeed's pipeline engine always runs 1f1b (TrainSchedule), not {x.pipeline_schedule}"
    ),
    # runtime/pipe/module.py, as the next two
    "deepspeed-has-one-stage-per-rank": keeps(
        "virtual_stages_per_rank", "PipelineModule gives each rank one stage, not {x.virtual_stages_per_rank}"
    ),
    "deepspeed-cuts-no-first-stage": keeps("first_stage_less_layers", _BALANCED),
    "deepspeed-cuts-no-last-stage": keeps("last_stage_less_layers", _BALANCED),
    # AutoTP has its own groups; pipe/engine.py asserts the grid's
    "deepspeed-splits-no-stage-over-tensor-ranks": keeps(
        "tensor_parallel_degree",
        "AutoTP splits only whole models, not the stages of a PipelineModule; in code, "
        "PipeModelDataParallelTopology can place a model whose layers are already tensor-parallel",
        lambda x, j: x.pipeline_parallel_degree > 1,
    ),
    # __init__.py: no mesh beside a PipelineModule
    "deepspeed-splits-no-sequence-in-stages": keeps(
        "context_parallel_degree",
        "the grid of a DeepSpeed pipeline has axes for stages, data and tensor ranks, but none for context ranks",
        lambda x, j: x.pipeline_parallel_degree > 1,
    ),
    # __init__.py, utils/groups.py: _init_tp_mesh_device
    "deepspeed-splits-sequence-or-tensors": keeps(
        "context_parallel_degree",
        "Ulysses and AutoTP each build their own mesh of ranks, so they cannot be combined",
        lambda x, j: x.tensor_parallel_degree > 1,
    ),
    # runtime/sequence_parallel/ulysses_sp.py
    "deepspeed-exchanges-heads-for-sequence": held(
        "context_exchange",
        ContextExchange.ALL_TO_ALL,
        "DeepSpeed's Ulysses exchanges only by all_to_all, not by {x.context_exchange}",
        lambda x, j: x.context_parallel_degree > 1,
    ),
    # module_inject/auto_tp.py
    "deepspeed-splits-no-norms": keeps(
        "sequence_parallel", "AutoTP keeps norms and their activations whole on every tensor rank"
    ),
    # runtime/tensor_parallel/config.py
    "deepspeed-cuts-no-products": keeps(
        "async_tensor_parallel",
        "AutoTP does not split matrix products; its tp_overlap_comm overlaps all-reduces of the backward pass",
    ),
    # module_inject/auto_ep_folding.py
    "deepspeed-splits-experts-outside-pipelines": keeps(
        "expert_parallel_degree",
        "AutoEP finds experts only in whole models, not in the stages of a PipelineModule",
        lambda x, j: x.pipeline_parallel_degree > 1,
    ),
    # engine.py: _validate_zero3_moe_compatibility
    "deepspeed-shards-no-parameters-beside-sequence-and-experts": refuse(
        "shard_level",
        lambda x, j: (
            (x.expert_parallel_degree > 1) & (x.context_parallel_degree > 1) & (x.shard_level == ShardLevel.PARAMETERS)
        ),
        "AutoEP refuses ZeRO stage 3 together with Ulysses",
        ShardLevel.GRADIENTS,
    ),
    "deepspeed-recomputes-all-or-nothing": refuse(
        "recompute",
        lambda x, j: x.recompute == Recompute.SELECTIVE,
        "scripts for DeepSpeed recompute either whole layers (gradient_checkpointing) or nothing",
        Recompute.FULL,
    ),
    # runtime/pipe/module.py
    "deepspeed-recomputes-every-layer": keeps(
        "recompute_every",
        "scripts for DeepSpeed recompute either every layer or none; the "
        "activation_checkpoint_interval of a pipeline is the number of layers that are recomputed "
        "together",
    ),
    # runtime/config.py
    "deepspeed-multiplies-in-16-bits-or-more": keeps(
        "precision",
        "ds_config.json has no key for {x.precision}; bf16 runs instead",
        lambda x, j: x.precision != Precision.FP32,
    ),
    # runtime/activation_checkpointing/config.py, compile/config.py
    "deepspeed-keeps-activations": keeps(
        "offload_activations",
        "activations stay on the device: cpu_checkpointing moves only the inputs of recomputation, "
        "and compile.offload_activation only as much as a memory limit requires",
    ),
}

RULES = (*ZERO_RULES, *exchanges_and_batches("DeepSpeed"), *sends_and_places("DeepSpeed"), *named(_LIMITS))


# ---------------------------------------------------------------- write
def write(job: Job, layout: Layout) -> Export:
    """Return the layout as ``ds_config.json``, with the arguments and environment variables of its launch."""
    in_code = layout.recompute == Recompute.FULL and layout.pipeline_parallel_degree == 1
    return Export(
        format=ExportFormat.DEEPSPEED,
        layout=layout,
        version=VERSION,
        arguments=(RECOMPUTE_FLAG,) if in_code else (),
        files=(ExportedFile(name=FILE_NAME, text=json.dumps(ds_config(job, layout), indent=2) + "\n"),),
        environment=collective_environment(layout),
        left_to_trainer=(*_script_duties(layout, in_code), decided_in_code(DECIDED_IN_CODE, layout, "the script")),
        usage=f"deepspeed --num_nodes {job.cluster.num_nodes} --num_gpus {job.cluster.accelerators_per_node} train.py "
        f"--deepspeed --deepspeed_config {FILE_NAME}, followed by the arguments",
    )


def ds_config(job: Job, layout: Layout) -> dict[str, object]:
    """Return the contents of ``ds_config.json`` for the layout as nested sections."""
    num_micro_batches = max(1, job.workload.num_micro_batches(layout))
    values = write_table(KEYS, layout)
    if layout.context_parallel_degree > 1:
        values["data_parallel_size"] = layout.data_parallel_degree  # a mesh is made only where both sizes are given
    if layout.expert_parallel_degree > 1:
        values["expert_parallel.enabled"] = True
    if values.get(_REUSE) == NEVER_REUSED:
        # otherwise it prefetches nothing beyond the limit
        values["zero_optimization.stage3_max_live_parameters"] = NEVER_REUSED
    return {
        _BATCH: layout.micro_batch_size * num_micro_batches * layout.data_parallel_degree,
        _STEPS: num_micro_batches,
        **nested(values),
    }


def zero_defaults(layout: Layout) -> Iterator[str]:
    """Yield sentences, without full stops, on defaults of DeepSpeed's ZeRO that no field of a layout can change."""
    if layout.shard_level == ShardLevel.NONE:
        yield f"ZeRO stage 0 reduces {BUCKET_ELEMENTS:,} elements at once, after the last micro-batch"
    elif layout.shard_level == ShardLevel.OPTIMIZER:
        yield f"allgather_bucket_size is {BUCKET_ELEMENTS:,} elements"
    else:
        yield f"reduce_bucket_size is {BUCKET_ELEMENTS:,} elements"


def _script_duties(layout: Layout, recomputes_in_code: bool) -> Iterator[str]:
    yield from zero_defaults(layout)
    if layout.pipeline_parallel_degree > 1:
        yield (
            f"the script must build PipelineModule(num_stages={layout.pipeline_parallel_degree}), "
            "because DeepSpeed does not read pipeline.stages itself"
        )
    if layout.tensor_parallel_degree > 1:
        yield "the script must give every rank of a tensor group the same batch, or DeepSpeed stops"
    if layout.context_parallel_degree > 1:
        yield ("the script's attention must exchange heads for parts of the sequence (UlyssesSPAttentionHF)")
    if layout.expert_parallel_degree > 1:
        yield "AutoEP finds the experts by the type of the model; name other experts in expert_parallel"
    if recomputes_in_code:
        yield (f"the script must turn recomputation on ({RECOMPUTE_FLAG}), because DeepSpeed has no key for it")


# ---------------------------------------------------------------- read
_STARTED = re.compile(r"(^|\s)(deepspeed(\.launcher\.runner)?\s|--deepspeed|--zero[_-]stage)")
_RECOMPUTES = ("gradient_checkpointing", "activation_checkpointing", "checkpoint_activations")
_SEQUENCE = ("max_seq_len", "seq_length", "max_seq_length", "max_length", "block_size", "seq_len")
_MODEL = ("model_name_or_path", "model_name", "model_path", "model")
_OTHER_FLAGS = {_BATCH: (_BATCH, "global_batch_size"), _STEPS: (_STEPS,)}
_OTHER_SWITCHES = {"fp16.enabled": ("fp16",), "zero_optimization.offload_optimizer": ("offload",)}

NO_RECOMPUTATION = (
    "no recomputation is assumed; scripts turn it on in code, often with an argument gradient_checkpointing"
)
UNOPENED = "the file is not read: paste its contents too, because its settings are missing from the layout"
OTHER_OPTIMIZER = "the predicted time and states are those of AdamW, not of this optimizer"
NEAREST_TO_FP16 = "a layout has no fp16; bf16, which needs the same memory and time, is assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The arguments of a command that starts DeepSpeed, as settings that an import can look up."""

    config: Mapping[str, object] = field(default_factory=dict)
    """Values by their path in ``ds_config.json``."""
    config_file: str = ""
    """Name of the configuration file that the script uses. The file is not opened."""
    recomputes: bool | None = None
    """True or False if the script switches recomputation on or off; None if it does neither."""
    seq_len: int | None = None
    model_name: str = ""
    compiles: bool | None = None
    """True if the Trainer of ``transformers`` compiles the model; None if the script does not say."""
    optimizer: str = ""
    """Optimizer that the script selects for this Trainer; empty: none."""
    unread: tuple[Note, ...] = ()
    """Notes about flags that are not read."""

    def __bool__(self) -> bool:
        return bool(self.config or self.config_file or self.recomputes or self.seq_len or self.model_name)


def script_of_command(command: Launched) -> Script:
    """Return the arguments of a command that starts DeepSpeed, as settings that an import can look up.

    Raises:
        InvalidInput: A value must be a number and is not.
    """
    flags = command.arguments
    named = {key.path: key.flags for key in KEYS if key.flags and not key.is_switch} | _OTHER_FLAGS
    switched = {key.path: key.flags for key in KEYS if key.flags and key.is_switch} | _OTHER_SWITCHES
    config: dict[str, object] = {path: flags.integer(*names) for path, names in named.items()}
    config |= {path: flags.switch(*names) for path, names in switched.items()}
    config = {path: value for path, value in config.items() if value is not None}
    dtype = (flags.text("dtype", "torch_dtype") or "").removeprefix("torch.")
    if dtype:
        config |= {"bf16.enabled": dtype in ("bf16", "bfloat16"), "fp16.enabled": dtype in ("fp16", "float16", "half")}
    files = (flags.text(flag) or "" for flag in ("deepspeed_config", "deepspeed"))
    script = Script(
        config=config,
        config_file=next((name for name in files if name.endswith(".json")), ""),
        recomputes=flags.switch(*_RECOMPUTES),
        seq_len=flags.integer(*_SEQUENCE),
        model_name=flags.text(*_MODEL) or "",
        compiles=flags.switch("torch_compile"),
        optimizer=flags.text("optim") or "",
    )
    return replace(script, unread=tuple(unread(flags)))


def as_trainer_says(script: Script, layout: Layout, notes: Notes) -> Layout:
    """Return a layout, changed by the arguments that a script gives to the Trainer of Hugging Face's ``transformers``.

    Args:
        script: The script's settings.
        layout: The layout before the change.
        notes: Receives notes of an optimizer that layouts do not support, and of flags that were not read.
    """
    notes.extend(script.unread)
    if script.optimizer not in ("", "adamw_torch", "adamw_torch_fused"):
        notes.changed(f"optim: {script.optimizer}"[:60], OTHER_OPTIMIZER)
    return layout if script.compiles is None else replace(layout, compiled=script.compiles)


def recognises(text: str) -> bool:
    """Return True if the text is a DeepSpeed configuration or a command that starts DeepSpeed."""
    rest, document = split_document(text)
    return any(f'"{name}"' in document for name in ("zero_optimization", _MICRO, _BATCH)) or bool(_STARTED.search(rest))


def read(text: str, num_ranks: int | None) -> Imported:
    """Return the layout in a ``ds_config.json``, a launch script, or a script that writes its own ``ds_config.json``.

    Args:
        text: The text of the file or script.
        num_ranks: The number of ranks of the whole job; None: read it from the script, if the script has it.

    Raises:
        InvalidInput: The text is none of these, or a setting has an invalid value.
    """
    rest, document = split_document(text)
    command = launched(rest, document) if "--" in rest else Launched()
    script = script_of_command(command)
    if not document and not script:
        raise InvalidInput(
            "config",
            text[:60],
            "must be a ds_config.json, or a command that starts DeepSpeed, for example deepspeed train.py "
            "--deepspeed_config ds_config.json",
        )
    if document:
        filled = Template(document).safe_substitute(command.variables) if "$" in document else document
        config = flat(json_document(filled))
    else:
        config = {} if {"bf16.enabled", "fp16.enabled"} & script.config.keys() else {"bf16.enabled": True}
    config |= {path: raw for path, raw in script.config.items() if config.get(path, "auto") == "auto"}
    found = understood(config, num_ranks or command.num_ranks)
    notes = Notes(found.notes)
    layout = as_trainer_says(script, found.layout, notes)
    if script.recomputes:
        layout = replace(layout, recompute=Recompute.FULL)
    if not document:
        _note_unseen(script, notes)
    if script.recomputes is None and layout.recompute == Recompute.NONE:
        notes.assumed("gradient_checkpointing", NO_RECOMPUTATION)
    notes += command.notes
    return replace(found, layout=layout, model_name=script.model_name, seq_len=script.seq_len, notes=tuple(notes))


def _note_unseen(script: Script, notes: Notes) -> None:
    if script.config_file:
        notes.ignored(script.config_file, UNOPENED)
    if not {"bf16.enabled", "fp16.enabled"} & script.config.keys():
        notes.assumed("bf16.enabled", "the script makes its configuration in code, which is not read; bf16 is assumed")


def understood(config: Mapping[str, object], num_ranks: int | None) -> Imported:
    """Return the layout that settings of DeepSpeed describe.

    Args:
        config: Values by dotted path, such as ``zero_optimization.stage``.
        num_ranks: The number of ranks of the whole job; None: unknown. If the settings do not contain it either, the
            field ``num_ranks`` of the result is None.

    Raises:
        InvalidInput: A value is not valid, or the number of ranks does not fit the degrees.
    """
    config = {re.sub(r"^bfloat16\.", "bf16.", path): raw for path, raw in config.items()}  # runtime/precision_config.py
    given = {path: raw for path, raw in config.items() if raw != "auto"}
    if not read_flag("expert_parallel.enabled", given.get("expert_parallel.enabled", True)):
        given.pop("expert_parallel.autoep_size", None)
    notes = Notes()
    for path in (path for path, raw in config.items() if raw == "auto" and path in _READ):
        notes.assumed(
            path,
            '"auto" is replaced by Hugging Face\'s integration with the value of an argument that is not given here',
        )
    layout = read_table(KEYS, given, Layout(precision=Precision.FP32))
    layout = _with_zero_defaults(_with_defaults(layout, given, notes), given, notes)
    layout, batch, is_known = _with_batch(layout, given, num_ranks, notes)
    _note_others(config, given, notes)
    return Imported(
        format=ExportFormat.DEEPSPEED,
        layout=layout,
        num_ranks=layout.world_size if is_known else None,
        global_batch_size=batch,
        notes=tuple(notes),
    )


def _with_defaults(x: Layout, given: Mapping[str, object], notes: Notes) -> Layout:
    """Return the layout with DeepSpeed's defaults for numerics and for tensor and sequence ranks."""
    if read_flag("fp16.enabled", given.get("fp16.enabled", False)):
        x = replace(x, precision=Precision.BF16)
        notes.changed("fp16.enabled", NEAREST_TO_FP16)
    x = attending(x, notes)
    if x.tensor_parallel_degree == 1:
        x = replace(x, loss_parallel=True)
    elif "tensor_parallel.vocab_parallel_lm_head" not in given:
        x = replace(x, loss_parallel=False)
        detail = "every tensor rank holds all logits, unless the model's plan splits a tied head"
        notes.assumed("tensor_parallel.vocab_parallel_lm_head", detail)
    if x.context_parallel_degree > 1:
        x = replace(x, context_exchange=ContextExchange.ALL_TO_ALL)
        if x.precision != Precision.FP32 and "seq_parallel_communication_data_type" not in given:
            x = replace(x, fp32_gradient_reduce=True)
            notes.assumed("seq_parallel_communication_data_type", "fp32")
    return x


def attending(x: Layout, notes: Notes) -> Layout:
    """Return the layout with an attention kernel that supports the layout's precision, and add a note of the change.

    Flash attention computes in 16 bits, so an fp32 layout gets the math kernel.
    """
    if x.precision != Precision.FP32:
        return x
    notes.assumed("attention", "flash attention computes only in 16 bits, so for fp32 the math kernel is assumed")
    return replace(x, attention_kernel=AttentionKernel.MATH)


def _with_zero_defaults(x: Layout, given: Mapping[str, object], notes: Notes) -> Layout:
    if x.shard_level == ShardLevel.NONE:
        notes.assumed(_BUCKET, next(zero_defaults(x)))
    elif x.shard_level == ShardLevel.OPTIMIZER and _BUCKET not in given:
        notes.assumed(_BUCKET, f"{BUCKET_ELEMENTS:,} elements")
        x = replace(x, gradient_bucket_bytes=BUCKET_ELEMENTS * gradient_element_bytes(x))
    elif x.shard_level == ShardLevel.PARAMETERS and _REUSE not in given:
        detail = "parameters are resharded after the forward pass, except the last 10^9 elements"
        notes.assumed(_REUSE, detail)
        x = replace(x, reshard_after_forward=True)
    if x.shard_level in _SHARDS_BY_LAYER and _BUCKET in given:
        notes.ignored(_BUCKET, "a layout that shards gradients reduces them layer by layer and has no bucket size")
    return x


def _with_batch(
    x: Layout, given: Mapping[str, object], num_ranks: int | None, notes: Notes
) -> tuple[Layout, int | None, bool]:
    """Return the layout with the batch sizes that solve DeepSpeed's batch equation.

    The equation is ``train_batch_size`` = micro-batch x accumulation x data-parallel ranks. DeepSpeed checks it only
    after the ranks have connected (runtime/config.py), so it is checked here.

    Returns:
        The layout with its data-parallel ranks, the global batch size, and whether the number of ranks is known.

    Raises:
        InvalidInput: The sizes contradict each other or the number of ranks.
    """
    inner = x.tensor_parallel_degree * x.pipeline_parallel_degree * x.context_parallel_degree
    if num_ranks is not None and num_ranks % inner:
        rule = f"must be a multiple of {inner}, the product of the tensor, pipeline and sequence (context) degrees"
        raise InvalidInput("num_ranks", num_ranks, rule, inner)
    whole, micro, steps = (
        read_integer(path, given[path], at_least=1) if path in given else None for path in (_BATCH, _MICRO, _STEPS)
    )
    ranks = None if num_ranks is None else num_ranks // inner
    if ranks is None and whole and micro and steps:
        ranks = _quotient(whole, micro * steps, "micro-batch size times accumulation steps")
    if ranks is not None:
        each = steps or 1
        if micro is None and whole is not None:
            micro = _quotient(whole, ranks * each, "data-parallel ranks times accumulation steps")
        if micro is not None:
            whole = whole or micro * each * ranks
            if whole % (micro * each * ranks) or (steps is not None and whole != micro * each * ranks):
                rule = f"must be micro-batch size times accumulation steps ({micro * each}) times the {ranks} "
                raise InvalidInput(_BATCH, whole, rule + "data-parallel ranks", micro * each * ranks)
    is_known = ranks is not None
    ranks = ranks or ceil(x.expert_parallel_degree / (x.tensor_parallel_degree * x.context_parallel_degree))
    if x.shard_level != ShardLevel.NONE and ranks * x.context_parallel_degree == 1 and is_known:
        detail = f"one data-parallel rank has nothing to shard, so stage {x.shard_level.value} runs as stage 0"
        notes.changed(_STAGE, detail)
        x = replace(x, shard_level=ShardLevel.NONE, reshard_after_forward=False)
    if micro is None:
        notes.assumed(_MICRO, "no micro-batch size is given; one sequence is assumed")
    return on_data_ranks(replace(x, micro_batch_size=micro or 1), ranks), whole, is_known


def on_data_ranks(x: Layout, num_ranks: int) -> Layout:
    """Return the layout with ``num_ranks`` data-parallel ranks.

    If the layout has a shard level, all these ranks form one shard group. Otherwise all of them are replicas.
    """
    shards, replicas = (num_ranks, 1) if x.shard_level != ShardLevel.NONE else (1, num_ranks)
    return replace(x, data_parallel_shard_degree=shards, data_parallel_replicate_degree=replicas)


def _quotient(whole: int, part: int, name: str) -> int:
    if whole % part:
        nearest = max(1, round(whole / part)) * part
        raise InvalidInput(_BATCH, whole, f"must be a multiple of {name} ({part})", nearest)
    return whole // part


def _note_others(config: Mapping[str, object], given: Mapping[str, object], notes: Notes) -> None:
    """Add notes about settings that a layout cannot express, and about settings that do not describe a layout."""
    for name, detail in CHANGED.items():
        values = [raw for path, raw in given.items() if path == name or path.startswith(f"{name}.")]
        if any(raw not in (False, None, "none", 0, 1, {}) for raw in values):
            notes.changed(name, detail)
    rest = [path for path in config if path not in _READ and not path.startswith(tuple(CHANGED))]
    for section in dict.fromkeys(path.split(".")[0] for path in rest):
        if section in KNOWN_SECTIONS:
            inside = [path for path in rest if path.split(".")[0] == section]
            notes.ignored(", ".join(inside) if len(inside) < 4 else section, "has no effect on the layout")
        else:
            near = get_close_matches(section, sorted(KNOWN_SECTIONS), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            notes.ignored(section[:60], f"is not a key of DeepSpeed, which ignores it without a warning{hint}")


DEEPSPEED = Target(
    format=ExportFormat.DEEPSPEED,
    version=VERSION,
    rules=RULES,
    decided_elsewhere=DECIDED_IN_CODE | LAUNCHED,
    write=write,
    read=read,
    recognises=recognises,
)
