"""Flags of scripts that start DeepSpeed, as the keys of ``ds_config.json`` that they stand for.

Source of names: DeepSpeedExamples (applications/DeepSpeed-Chat, training/pipeline_parallelism, training/cifar,
training/DeepSpeed-SuperOffload), transformers 5.23.0 (training_args.py), Megatron-DeepSpeed (megatron/arguments.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autotuner.core.layout import Layout
from autotuner.export.accounted import unread
from autotuner.export.flags import Flags
from autotuner.export.launched import Launched, launched
from autotuner.export.target import Note, NoteKind

_PATHS: dict[str, tuple[str, ...]] = {
    "zero_optimization.stage": ("zero_stage",),
    "train_batch_size": ("train_batch_size", "global_batch_size"),
    "train_micro_batch_size_per_gpu": (
        *("per_device_train_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size"),
        "per_device_batch_size",
    ),
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "tensor_parallel.autotp_size": ("autotp_size", "tensor_parallel_size", "tensor_model_parallel_size", "tp_size"),
    "pipeline.stages": ("pipeline_parallel_size", "pipeline_model_parallel_size"),
    "sequence_parallel_size": ("sequence_parallel_size", "ds_sequence_parallel_size", "sp_size"),
    "expert_parallel.autoep_size": ("autoep_size", "ep_world_size", "moe_expert_parallel_size"),
}

_SWITCHES: dict[str, tuple[str, ...]] = {
    "bf16.enabled": ("bf16",),
    "fp16.enabled": ("fp16",),
    "zero_optimization.offload_optimizer": ("offload",),
}

_RECOMPUTES = ("gradient_checkpointing", "activation_checkpointing", "checkpoint_activations")
_SEQUENCE = ("max_seq_len", "seq_length", "max_seq_length", "max_length", "block_size", "seq_len")
_MODEL = ("model_name_or_path", "model_name", "model_path", "model")
_CONFIGS = ("deepspeed_config", "deepspeed")
"""Flags that name the configuration's file; the second is transformers', and a switch elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a command that starts DeepSpeed says.

    Attributes:
        config: By path of ``ds_config.json``.
        config_file: The configuration that it names, which is not opened.
        recomputes: None: it does not say.
        variables: What it sets, as texts.
        remarks: What of it could not be followed or says nothing of a layout.
        compiles: The Trainer of ``transformers`` compiles the model; None: it does not say.
        optimizer: The optimizer that this Trainer is told to take; empty: none.
        unread: Notes of flags that nothing here reads.
    """

    config: Mapping[str, object] = field(default_factory=dict)
    config_file: str = ""
    recomputes: bool | None = None
    num_ranks: int | None = None
    seq_len: int | None = None
    model_name: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[Note, ...] = ()
    compiles: bool | None = None
    optimizer: str = ""
    unread: tuple[Note, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.config or self.config_file or self.recomputes or self.seq_len or self.model_name)


def script_of(text: str, document: str = "") -> Script:
    """A command that starts DeepSpeed, or nothing where the text has no flags.

    Raises:
        InvalidInput: A value makes no sense.
    """
    return script_of_command(launched(text, document)) if "--" in text else Script()


def script_of_command(command: Launched) -> Script:
    """What a command says that is read already.

    Raises:
        InvalidInput: A value makes no sense.
    """
    flags = command.arguments
    script = Script(
        config=_config(flags),
        config_file=next((name for flag in _CONFIGS if (name := flags.text(flag) or "").endswith(".json")), ""),
        recomputes=flags.switch(*_RECOMPUTES),
        num_ranks=command.num_ranks,
        seq_len=flags.integer(*_SEQUENCE),
        model_name=flags.text(*_MODEL) or "",
        variables=command.variables,
        remarks=command.notes,
        compiles=flags.switch("torch_compile"),
        optimizer=flags.text("optim") or "",
    )
    return replace(script, unread=tuple(unread(flags)))


def as_trainer_says(script: Script, layout: Layout) -> tuple[Layout, list[Note]]:
    """Return a layout with what a script tells the Trainer of ``transformers``, and notes of it and of other flags."""
    notes = list(script.unread)
    if script.compiles is not None:
        layout = replace(layout, compiled=script.compiles)
    if script.optimizer not in ("", "adamw_torch", "adamw_torch_fused"):
        detail = "another optimizer than AdamW, whose time and states are predicted"
        notes.append(Note(kind=NoteKind.CHANGED, setting=f"optim: {script.optimizer}"[:60], detail=detail))
    return layout, notes


def _config(flags: Flags) -> dict[str, object]:
    numbers = {path: flags.integer(*names) for path, names in _PATHS.items()}
    switches = {path: flags.switch(*names) for path, names in _SWITCHES.items()}
    said: dict[str, object] = {p: v for p, v in (numbers | switches).items() if v is not None}
    dtype = (flags.text("dtype", "torch_dtype") or "").removeprefix("torch.")
    if dtype:
        said |= {"bf16.enabled": dtype in ("bf16", "bfloat16"), "fp16.enabled": dtype in ("fp16", "float16", "half")}
    return said
