"""Notes of the flags that no reader asked for: each is named, with the reason or as not understood."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autotuner.export.flags import Flags
from autotuner.export.target import Note, NoteKind

__all__ = ["unread"]

_REASONS: tuple[tuple[str, str], ...] = (
    (
        r"use_liger_kernel|liger_kernel_config",
        "Liger's fused kernels change times and memory, and no field of a layout says them",
    ),
    (r"torch_compile_.*|torchdynamo", "a layout says only whether layers are compiled"),
    (r"use_flash_attn.*|attn_implementation|flash_attn.*", "which attention kernel runs is not read from this flag"),
    (r"fsdp_.*wrap.*|fsdp_min_num_params", "a layout wraps each layer"),
    (r"deepspeed_config", "the file is not opened: paste its contents too, or the layout lacks what they say"),
    (r"no_pipeline_parallel", "the number of stages says it"),
    (r"lora_.*|use_peft|peft_.*|qlora|load_in_[48]bit", "adapters and quantised weights are not modelled"),
    (
        r"lr|lr_.*|min_lr|learning_rate|warmup_.*|weight_decay.*|(start|end)_weight_decay.*|adam_.*|optimizer|optim_.*"
        r"|clip_grad|max_grad_norm|(initial_|min_)?loss_scale.*|hysteresis|seed|init_method_std|.*dropout.*|label_smoothing.*",
        "the optimizer's settings change no time and no memory that is predicted",
    ),
    (
        r"train_(iters|samples|tokens|steps)|max_steps|num_train_epochs|(num_)?epochs|exit_.*|skip_train|do_(train|eval|predict)",
        "how long the training lasts is no part of a layout",
    ),
    (
        r"(\w+_)?data(_.*|set(_.*)?)?|train_file|validation_file|split|dataloader_.*|num_workers|tokenizer.*|vocab_.*|merge_file"
        r"|mock_data|reset_.*|eod_.*|create_attention_mask.*|no_create_attention_mask.*|preprocessing_.*|streaming|packing"
        r"|remove_unused_columns|group_by_length",
        "data and tokenizer are no part of a layout",
    ),
    (
        r"save(_.*)?|load(_.*)?|no_(save|load)_.*|finetune|output_dir|overwrite_output_dir|resume_.*|ckpt_.*|checkpoint_.*"
        r"|dist_ckpt.*|async_save|use_(dist|checkpoint).*|pretrained_.*|override_opt_param_scheduler|cache_dir|hub_.*|push_to_hub",
        "checkpoints are no part of a layout",
    ),
    (
        r"log_.*|logging_.*|report_to|run_name|tensorboard_.*|wandb_.*|eval_.*|evaluation_.*|timing_.*|profile.*|no_barrier.*"
        r"|disable_tqdm|per_device_eval_batch_size|ddp_timeout|distributed_(backend|timeout.*)|local_rank|job_name|one_logger.*",
        "logs, evaluation and process groups are no part of a layout",
    ),
)
"""Why a flag is ignored, by its name."""


def unread(
    flags: Flags, handled: frozenset[str] = frozenset(), spelled: Mapping[str, str] | None = None
) -> Iterator[Note]:
    """Yield a note for every flag that no reader asked for.

    Args:
        flags: With the names that were asked for so far.
        handled: Names that a reader took by another way.
        spelled: How the text spells them, where they are no flags.
    """
    for name, values in flags.values.items():
        if name in flags.asked or name in handled:
            continue
        flag = " ".join((f"--{name.replace('_', '-')}", *values))
        setting = (spelled or {}).get(name, flag)[:60]
        reason = _reason(name)
        if reason:
            yield Note(kind=NoteKind.IGNORED, setting=setting, detail=reason)
        else:
            yield Note(kind=NoteKind.UNKNOWN, setting=setting, detail="is not understood, or has no effect here")


def _reason(name: str) -> str:
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, name)), "")
