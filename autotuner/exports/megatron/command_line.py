"""Megatron-LM's command line: the flags for the names in its namespace, and the form in which it prints them.

Flags and the names that they are stored under are those of add_megatron_arguments in core_v0.16.1 and core_v0.19.0,
read from the parser itself. A table here lists the flags that are not the name with dashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from autotuner.core.choices import AttentionKernel, ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.exports.megatron.layout import environment, layout_settings, left_at_default, read_layout
from autotuner.exports.megatron.model_shapes import unsaid_shapes, write_shapes
from autotuner.exports.megatron.rules import MEGATRON_RULES
from autotuner.exports.shared.command import Flags, Launched, launched, unread
from autotuner.exports.shared.common_rules import LAUNCHED
from autotuner.exports.shared.keys import Reading, Written
from autotuner.exports.shared.target import Export, Imported, Target

_VERSION = "0.16.1"
"""Release of Megatron-LM that configurations are written for. Release 0.19.0 reads them too."""

_VERSION_OF_FLASH_3 = "0.19.0"
"""First release that has ``--flash-attention-version``."""

_RENAMED = {"fp8": "fp8-format", "fp4": "fp4-format", "layernorm_epsilon": "norm-epsilon", "nccl_ub": "use-nccl-ub"}
"""Flags that differ from the name that they are stored under."""

_SWITCHED_OFF = {
    "add_bias_linear": "disable-bias-linear",
    "gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "grad_reduce_in_fp32": "grad-reduce-in-bf16",
    "overlap_p2p_comm": "no-overlap-p2p-communication",
    "masked_softmax_fusion": "no-masked-softmax-fusion",
    "torch_fsdp2_reshard_after_forward": "torch-fsdp2-no-reshard-after-forward",
    "add_position_embedding": "no-position-embedding",
    "apply_rope_fusion": "no-rope-fusion",
}
"""Flags that switch off an option that is on by default."""

_SWITCHED_ON = {"grad_reduce_in_fp32": "accumulate-allreduce-grads-in-fp32"}
"""Second flags for options that can be switched on by two flags."""

_RENAMED_BACK = {flag.replace("-", "_"): name for name, flag in _RENAMED.items()}
_SWITCHED_BACK = {flag.replace("-", "_"): name for name, flag in _SWITCHED_OFF.items() if name != "grad_reduce_in_fp32"}

_ONLY_IN = {
    "0.19.0": (
        *("flash_attention_version", "step_batch_size_schedule", "cuda_graph_modules", "hybrid_layer_pattern"),
        *("moe_paged_stash", "use_transformer_engine_op_fuser", "moe_flex_dispatcher_num_sms", "mla_down_proj_fusion"),
        *("megatron_fsdp_main_params_dtype", "megatron_fsdp_main_grads_dtype", "fused_residual_rmsnorm", "use_mup"),
        *("eval_global_batch_size", "tensor_parallel_num_weight_shards", "activation_offload_fraction"),
    ),
    "0.16.1": (
        *("moe_use_legacy_grouped_gemm", "no_async_tensor_model_parallel_allreduce", "legacy_tokenizer"),
        *("use_legacy_models", "moe_extended_tp", "no_scatter_gather_tensors_in_pipeline", "tiktoken_special_tokens"),
    ),
}
"""Names in the namespace by which a release is recognised."""

_RECOGNISED = (
    *(
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "use_distributed_optimizer",
        "context_parallel_size",
    ),
    *("expert_model_parallel_size", "num_layers_per_virtual_pipeline_stage", "use_mcore_models", "use_megatron_fsdp"),
    *("recompute_granularity", "swiglu", "untie_embeddings_and_output_weights", "disable_bias_linear"),
    *("num_attention_heads", "ds_sequence_parallel_size"),
)
"""Flags that only Megatron-LM has, by which its command line is recognised."""

_SAID_ELSEWHERE = {
    "step_batch_size_schedule": "the batch grows during training; its last size is used",
    "rampup_batch_size": "the batch grows during training; its last size is used",
    "fp8_param_gather": "the software stack decides whether weights are gathered in 8 bits",
    "first_last_layers_bf16": "a layout has one precision for all layers",
    "overlap_moe_expert_parallel_comm": "the software stack decides how much of the dispatch of tokens is hidden",
    "delay_wgrad_compute": "the software stack decides how much communication is hidden",
    "cuda_graph_impl": "the software stack decides how long kernel launches take",
    "enable_cuda_graph": "the software stack decides how long kernel launches take",
    "exp_avg_dtype": "the format of Adam's moments is a setting of the workload",
}
"""Settings that change speed or memory but have no field in a layout, each with its effect."""


_BEFORE_FLASH_3 = (
    ("releases before 0.19 have no --flash-attention-version and call the FlashAttention that is installed"),
)


# ---------------------------------------------------------------- written
def _write(job: Job, layout: Layout) -> Export:
    names_flash_3 = layout.attention_kernel == AttentionKernel.FLASH_3
    return Export(
        format=ExportFormat.MEGATRON_LM,
        layout=layout,
        version=_VERSION_OF_FLASH_3 if names_flash_3 else _VERSION,
        arguments=tuple(_arguments(write_shapes(job) | layout_settings(job, layout))),
        environment=environment(layout),
        left_to_trainer=(
            *left_at_default(layout),
            *unsaid_shapes(job.model),
            *(_BEFORE_FLASH_3 if names_flash_3 else ()),
            "you choose the data, the tokenizer, the learning rate and the number of steps",
        ),
        usage="torchrun ... pretrain_gpt.py, followed by these and by your data and schedule; on "
        f"{layout.world_size} ranks",
    )


def _arguments(settings: Written) -> Iterator[str]:
    for name, value in settings.items():
        flag = _RENAMED.get(name, name.replace("_", "-"))
        if value is True:
            yield f"--{_SWITCHED_ON.get(name, flag)}"
        elif value is False:
            yield f"--{_SWITCHED_OFF[name]}"
        else:
            yield f"--{flag}"
            yield from map(str, value if isinstance(value, tuple) else (value,))


# ---------------------------------------------------------------- read
def _read(text: str, num_ranks: int | None) -> Imported:
    settings, command = _settings(text)
    settings = Flags(_of_deepspeed(dict(settings.values)))
    reading = Reading(settings=settings, asked_ranks=num_ranks, version=_version(settings))
    reading.num_ranks = command.num_ranks if command is not None else settings.integer("world_size")
    found = read_layout(reading, ExportFormat.MEGATRON_LM)
    for name, detail in _SAID_ELSEWHERE.items():
        value = reading.word(name, "on" if name in settings else "")
        if value and value not in ("false", "none", "0", "fp32", "torch.float32"):
            reading.ignored(name, detail)
    if command is None:
        return replace(found, notes=tuple(reading))
    notes = (replace(note, setting=_spelled(note.setting)) for note in (*reading, *unread(settings)))
    return replace(found, notes=(*notes, *command.notes))


def _spelled(setting: str) -> str:
    """Return the flag of a setting, for messages."""
    return setting if setting.startswith("--") else f"--{_RENAMED.get(setting, setting.replace('_', '-'))}"


_PRINTED = re.compile(r"(?:^|\s|:)(\w+) \.{3,} (.*)$")
"""Pattern of a line of the namespace that Megatron prints at start, after any prefix (training/arguments.py)."""

_FEWEST_PRINTED = 10


def _settings(text: str) -> tuple[Flags, Launched | None]:
    """Return the settings by their names in the namespace.

    They are read from a printed namespace, or from the flags of a command.
    """
    found = (_PRINTED.search(line) for line in text.splitlines())
    printed = {one[1]: _words(one[2].strip()) for one in found if one is not None and one[2].strip() != "None"}
    if len(printed) >= _FEWEST_PRINTED:
        return Flags(printed), None
    command = launched(text)
    stored = {
        _SWITCHED_BACK.get(flag) or _RENAMED_BACK.get(flag, flag): ("False",) if flag in _SWITCHED_BACK else values
        for flag, values in command.arguments.values.items()
    }
    return Flags(stored), command


def _of_deepspeed(settings: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the settings, with those of Megatron-DeepSpeed (its megatron/arguments.py) under Megatron's own names.

    DeepSpeed's stages 1 to 3 shard the same as Megatron's sharding strategies, in the same order.
    """
    if "deepspeed" not in settings:
        return settings
    flags = Flags(settings)
    stage = flags.number("zero_stage")
    if stage is not None and stage not in _ZERO_STAGES:
        raise InvalidInput("zero_stage", stage, "must be 0, 1, 2 or 3", min(max(stage, 0), 3))
    found = {name: values for name, values in settings.items() if name not in ("deepspeed", "zero_stage")}
    if stage is not None:
        found |= _ZERO_STAGES[stage]
    if "ds_sequence_parallel_size" in found:
        found |= {"context_parallel_size": found.pop("ds_sequence_parallel_size"), "cp_comm_type": ("a2a",)}
    return found


_ZERO_STAGES: dict[float, dict[str, tuple[str, ...]]] = {
    0: {},
    1: {"use_distributed_optimizer": ()},
    2: {"use_megatron_fsdp": (), "data_parallel_sharding_strategy": ("optim_grads",)},
    3: {"use_megatron_fsdp": (), "data_parallel_sharding_strategy": ("optim_grads_params",)},
}


def _words(value: str) -> tuple[str, ...]:
    """Return a printed value as words; of a list, its elements."""
    if value.startswith(("['", '["')):
        return tuple(re.findall(r"['\"]([^'\"]*)['\"]", value))
    return (value,)


def _version(settings: Flags) -> str:
    return next((version for version, names in _ONLY_IN.items() if any(name in settings for name in names)), "")


def _recognises(text: str) -> bool:
    try:
        settings, _ = _settings(text)
    except InvalidInput:
        return False
    names = {*settings.values}
    return any(name in names or _SWITCHED_BACK.get(name) in names for name in _RECOGNISED)


MEGATRON_LM = Target(
    format=ExportFormat.MEGATRON_LM,
    version=_VERSION,
    rules=MEGATRON_RULES,
    decided_elsewhere=LAUNCHED,
    write=_write,
    read=_read,
    recognises=_recognises,
)
