"""Notes of what no reader asked for: each flag and each variable is named, with the reason or as not understood."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from autotuner.export.flags import Flags
from autotuner.export.nccl import COLLECTIVES
from autotuner.export.target import Note, NoteKind

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
    (r"bf16|fp16", "another flag says the number format"),
    (r"max_position_embeddings", "the length of the sequences says what is computed"),
    (r"overlap_.*|tp_comm_overlap.*|tp_comm_.*", "the stack says how much communication is hidden"),
    (
        r"use_mcore_models|transformer_impl|use_legacy_models|.*_fusion(_.*)?|no_persist_layer_norm|persist_layer_norm",
        "which kernels run beside products and attention is a fact of the stack",
    ),
    (r"make_vocab_size_divisible_by", "the vocabulary is taken as it is said, without padding"),
    (
        r"rotary_.*|use_rotary_.*|position_embedding_.*|rope_.*|use_rope_scaling|attention_softmax_in_fp32|apply_layernorm_1p"
        r"|(layer)?norm_epsilon|fp8_(amax|margin|interval).*|squared_relu|openai_gelu|quick_gelu|calculate_per_token_loss",
        "it changes what is computed, and neither time nor memory as they are predicted",
    ),
    (
        r"empty_unused_memory_level|manual_gc.*|use_cpu_initialization|te_rng_tracker|deterministic_mode|enable_experimental"
        r"|high_priority_.*|cuda_graph_.*|enable_cuda_graph|main_(grads|params)_dtype|inference_.*",
        "what it changes of time and memory is not predicted",
    ),
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


# ---------------------------------------------------------------- beside the program
_OF_LAUNCHERS = re.compile(
    # torchrun (torch 2.13, distributed/run.py)
    r"rdzv_.*|standalone|max_restarts|monitor_interval|start_method|role|no_python|run_path|log_dir|r|redirects|t|tee"
    r"|local_ranks_filter|node_rank|local_addr|logs_specs|use_env|numa_binding|duplicate_.*|master_(addr|port)"
    # deepspeed (0.19.8, launcher/runner.py)
    r"|H|hostfile|i|include|e|exclude|min_elastic_nodes|max_elastic_nodes|launcher(_args)?|force_multi|ssh_port|no_ssh.*"
    r"|enable_each_rank_log|bind_cores.*|bind_core_list|save_pid|venv_script|no_local_rank"
    # srun(1), Slurm 25.05
    r"|[AcDeJKlopqtuwx]|account|partition|qos|time|job_name|output|error|label|unbuffered|export|chdir|nodelist|exclude"
    r"|constraint|reservation|exclusive|gres|gpus.*|cpus_per_.*|mem|mem_.*|cpu_bind|gpu_bind|mpi|wait|kill_on_bad_exit"
    r"|no_kill|overlap|exact|container_.*|jobid|environment|ntasks_per_(gpu|core|socket)|cpu_freq|signal|open_mode"
)
"""Flags of launchers that say where ranks start and how they meet."""

_OF_VARIABLES: tuple[tuple[str, str], ...] = (
    (
        r"(MASTER|MAIN_PROCESS)_.*|(WORLD|NODE|LOCAL)_(SIZE|RANK|WORLD_SIZE)|RANK|NNODES|NPROC.*|NGPU|GPUS_PER_NODE"
        r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|SLURM_.*|SRUN_.*|RDZV_.*|PET_.*|HOSTFILE",
        "where ranks start and how they meet is no part of a layout",
    ),
    (
        r"(TORCH_)?NCCL_.*|UCX_.*|UCC_.*|GLOO_.*|FI_.*|OFI_.*|TP_SOCKET.*|SHARP_.*|TORCH_DISTRIBUTED_.*|OMPI_.*|RDMA.*",
        "the network is taken from the description of the cluster",
    ),
    (
        r"CUDA_.*|OMP_.*|MKL_.*|KMP_.*|PYTORCH_.*|TORCH_.*|TORCHINDUCTOR_.*|TRITON_.*|NVTE_.*|CUBLAS.*|CUDNN_.*|XLA_.*|DS_.*"
        r"|FLASH_.*",
        "what it changes of time and memory is not predicted",
    ),
    (
        r"HF_.*|HUGGING.*|TRANSFORMERS_.*|TOKENIZERS_.*|DATASETS_.*|WANDB_.*|MLFLOW_.*|PYTHON.*|(LD_LIBRARY_)?PATH|HOME|TMPDIR"
        r"|\w*(CACHE|LOG|TOKEN|KEY)\w*|VIRTUAL_ENV|CONDA_.*|LC_.*|LANG|http.*_proxy",
        "files, logs and packages are no part of a layout",
    ),
)

_READ_ELSEWHERE = re.compile(rf"{COLLECTIVES}|CONFIG_FILE|NGPU|WORLD_SIZE|SLURM_(N|NT|JOB_NUM_N).*")
"""Variables that another reader takes (``nccl``, ``torchtitan``, ``launched``)."""

_MOST_NAMED = 6


def of_launcher(launcher: Flags, counted: Collection[str]) -> Iterator[Note]:
    """Yield what becomes of the flags before the program.

    Args:
        launcher: These flags.
        counted: Names of those that say how many ranks there are.
    """
    rest = [name for name in launcher.values if name not in counted]
    known = [name for name in rest if _OF_LAUNCHERS.fullmatch(name)]
    if known:
        detail = "where ranks start and how they meet is no part of a layout"
        yield Note(kind=NoteKind.IGNORED, setting=_named(map(_flag, known)), detail=detail)
    if others := [name for name in rest if name not in known]:
        detail = "is no flag of a launcher that is known here"
        yield Note(kind=NoteKind.UNKNOWN, setting=_named(map(_flag, others)), detail=detail)


def of_variables(exported: Iterable[str], unused: Iterable[str]) -> Iterator[Note]:
    """Yield what becomes of the variables that a script sets.

    Args:
        exported: Names that the program finds in its environment.
        unused: Names of others that nothing in the script asks for.
    """
    by_reason: dict[str, list[str]] = {}
    for name in exported:
        if not _READ_ELSEWHERE.fullmatch(name):
            reason = next((reason for pattern, reason in _OF_VARIABLES if re.fullmatch(pattern, name)), "")
            by_reason.setdefault(reason, []).append(name)
    unknown = by_reason.pop("", [])
    for reason, names in by_reason.items():
        yield Note(kind=NoteKind.IGNORED, setting=_named(names), detail=reason)
    if unknown:
        detail = "a variable of the environment; what the program makes of it is not known"
        yield Note(kind=NoteKind.UNKNOWN, setting=_named(unknown), detail=detail)
    if names := list(unused):
        yield Note(kind=NoteKind.IGNORED, setting=_named(names), detail="nothing in the script uses it")


def _flag(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def _named(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_MOST_NAMED]) + (f" and {len(every) - _MOST_NAMED} more" if every[_MOST_NAMED:] else "")
