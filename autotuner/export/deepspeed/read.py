"""A layout read from DeepSpeed's configuration, or from a script that launches one.

Source of names: DeepSpeedExamples (applications/DeepSpeed-Chat, training/pipeline_parallelism, training/cifar,
training/DeepSpeed-SuperOffload), transformers 5.23.0 (training_args.py), Megatron-DeepSpeed (megatron/arguments.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import ceil
from string import Template

from autotuner.core.choices import AttentionKernel, ContextExchange, Precision, Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.accounted import unread
from autotuner.export.common_rules import LAUNCHED
from autotuner.export.deepspeed.batch import Batch, batch_of
from autotuner.export.deepspeed.keys import (
    BATCH_KEYS,
    CHANGED,
    DEFAULT_BUCKET_ELEMENTS,
    KEYS,
    KNOWN_SECTIONS,
    STAGE_0_ELEMENTS,
    gradient_element_bytes,
)
from autotuner.export.deepspeed.rules import ELSEWHERE, RULES
from autotuner.export.deepspeed.write import VERSION, write
from autotuner.export.documents import json_document, split_document
from autotuner.export.flags import Flags
from autotuner.export.keys import flag_of, flat, heard
from autotuner.export.launched import Launched, launched
from autotuner.export.target import Imported, Note, NoteKind, Target

_READ = {*BATCH_KEYS, *(key.path for key in KEYS)} | {
    *("data_parallel_size", "expert_parallel.enabled", "fp16.enabled", "zero_optimization.stage3_max_live_parameters"),
}
_OFF: tuple[object, ...] = (False, None, "none", 0, 1, {})
"""Values with which a switch, a section or a size changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """A configuration's layout, with what of it was assumed, changed and ignored.

    Attributes:
        num_ranks: None: neither the caller nor the batch sizes say it, and data-parallel degrees are the least.
    """

    layout: Layout
    num_ranks: int | None
    global_batch_size: int | None
    notes: tuple[Note, ...]


def understood(config: Mapping[str, object], num_ranks: int | None) -> Understood:
    """The layout that keys by path say.

    Raises:
        InvalidInput: A value makes no sense, or the ranks do not split so.
    """
    config = _spelled_anew(config)
    plain = {path: raw for path, raw in config.items() if raw != "auto"}
    if "expert_parallel.enabled" in plain and not flag_of("expert_parallel.enabled", plain["expert_parallel.enabled"]):
        plain.pop("expert_parallel.autoep_size", None)
    layout = heard(KEYS, plain, Layout(precision=Precision.FP32))
    layout, assumed = _completed(layout, plain)
    batch = batch_of(plain, _data_ranks(layout, num_ranks))
    layout, split = _with_data_ranks(layout, batch, is_known=batch.num_data_ranks is not None)
    known = batch.num_data_ranks is not None
    return Understood(
        layout=layout,
        num_ranks=layout.world_size if known else None,
        global_batch_size=batch.global_batch_size,
        notes=(*_filled_in(config), *assumed, *split, *_changed(plain), *_ignored(config)),
    )


def _spelled_anew(config: Mapping[str, object]) -> dict[str, object]:
    """Today's name of a section that older configurations spell otherwise (runtime/precision_config.py)."""
    return {("bf16" + path[8:] if path.startswith("bfloat16.") else path): raw for path, raw in config.items()}


def _data_ranks(layout: Layout, num_ranks: int | None) -> int | None:
    if num_ranks is None:
        return None
    inner = layout.tensor_parallel_degree * layout.pipeline_parallel_degree * layout.context_parallel_degree
    if num_ranks % inner:
        raise InvalidInput(
            "num_ranks", num_ranks, f"must be a multiple of {inner} tensor, pipeline and sequence ranks", inner
        )
    return num_ranks // inner


def _with_data_ranks(layout: Layout, batch: Batch, *, is_known: bool) -> tuple[Layout, list[Note]]:
    lenders = layout.tensor_parallel_degree * layout.context_parallel_degree
    num_data_ranks = batch.num_data_ranks or ceil(layout.expert_parallel_degree / lenders)
    notes = []
    if layout.shard_level != ShardLevel.NONE and num_data_ranks * layout.context_parallel_degree == 1 and is_known:
        detail = f"one data-parallel rank has nothing to shard; stage {layout.shard_level.value} runs as stage 0"
        notes.append(Note(kind=NoteKind.CHANGED, setting="zero_optimization.stage", detail=detail))
        layout = replace(layout, shard_level=ShardLevel.NONE, reshard_after_forward=False)
    if batch.micro_batch_size is None:
        detail = "no micro-batch size is said; one sequence is taken"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="train_micro_batch_size_per_gpu", detail=detail))
    shards = layout.shard_level != ShardLevel.NONE
    return (
        replace(
            layout,
            micro_batch_size=batch.micro_batch_size or 1,
            data_parallel_shard_degree=num_data_ranks if shards else 1,
            data_parallel_replicate_degree=1 if shards else num_data_ranks,
        ),
        notes,
    )


def _completed(layout: Layout, plain: Mapping[str, object]) -> tuple[Layout, list[Note]]:
    """The layout with DeepSpeed's defaults for what the configuration does not say."""
    notes = []

    def assume(path: str, detail: str, **values: object) -> None:
        nonlocal layout
        if path not in plain:
            notes.append(Note(kind=NoteKind.ASSUMED, setting=path, detail=detail))
            layout = replace(layout, **values)  # type: ignore[arg-type]  # each field has its own type

    if flag_of("fp16.enabled", plain.get("fp16.enabled", False)):
        layout = replace(layout, precision=Precision.BF16)
        detail = "a layout has no fp16; bf16 takes as much memory and time"
        notes.append(Note(kind=NoteKind.CHANGED, setting="fp16.enabled", detail=detail))
    if layout.precision == Precision.FP32:
        layout = replace(layout, attention_kernel=AttentionKernel.MATH)
        detail = "flash attention computes in 16 bits; in fp32 the math kernel is taken"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="attention", detail=detail))
    if layout.tensor_parallel_degree > 1:
        detail = "every tensor rank holds all logits, unless the model's plan splits a tied head"
        assume("tensor_parallel.vocab_parallel_lm_head", detail, loss_parallel=False)
    else:
        layout = replace(layout, loss_parallel=True)
    if layout.context_parallel_degree > 1:
        layout = replace(layout, context_exchange=ContextExchange.ALL_TO_ALL)
        if layout.precision != Precision.FP32:
            assume("seq_parallel_communication_data_type", "fp32", fp32_gradient_reduce=True)
    return _with_zero_defaults(layout, plain, notes)


def _with_zero_defaults(layout: Layout, plain: Mapping[str, object], notes: list[Note]) -> tuple[Layout, list[Note]]:
    bucket, reuse = "zero_optimization.reduce_bucket_size", "zero_optimization.stage3_max_reuse_distance"
    if layout.shard_level == ShardLevel.NONE:
        detail = f"ZeRO stage 0 reduces {STAGE_0_ELEMENTS:,} elements at once, after the last micro-batch"
        notes.append(Note(kind=NoteKind.ASSUMED, setting=bucket, detail=detail))
    elif layout.shard_level == ShardLevel.OPTIMIZER and bucket not in plain:
        detail = f"{DEFAULT_BUCKET_ELEMENTS:,} elements"
        notes.append(Note(kind=NoteKind.ASSUMED, setting=bucket, detail=detail))
        num_bytes = DEFAULT_BUCKET_ELEMENTS * gradient_element_bytes(layout)
        layout = replace(layout, gradient_bucket_bytes=num_bytes)
    elif layout.shard_level == ShardLevel.PARAMETERS and reuse not in plain:
        detail = "parameters are given away after the forward pass, but for the last thousand million elements"
        notes.append(Note(kind=NoteKind.ASSUMED, setting=reuse, detail=detail))
        layout = replace(layout, reshard_after_forward=True)
    if layout.shard_level in (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS) and bucket in plain:
        detail = "a layout that shards gradients reduces them layer by layer, and says no size"
        notes.append(Note(kind=NoteKind.IGNORED, setting=bucket, detail=detail))
    return layout, notes


def _filled_in(config: Mapping[str, object]) -> Iterator[Note]:
    for path, raw in config.items():
        if raw == "auto" and path in _READ:
            detail = '"auto" is filled in by Hugging Face\'s integration, from arguments that are not seen here'
            yield Note(kind=NoteKind.ASSUMED, setting=path, detail=detail)


def _changed(plain: Mapping[str, object]) -> Iterator[Note]:
    for name, detail in CHANGED.items():
        inside = [raw for path, raw in plain.items() if path == name or path.startswith(f"{name}.")]
        if any(raw not in _OFF for raw in inside):
            yield Note(kind=NoteKind.CHANGED, setting=name, detail=detail)


def _ignored(config: Mapping[str, object]) -> Iterator[Note]:
    rest = [path for path in config if path not in _READ and not path.startswith(tuple(CHANGED))]
    for section in dict.fromkeys(path.split(".")[0] for path in rest):
        if section in KNOWN_SECTIONS:
            inside = [path for path in rest if path.split(".")[0] == section]
            setting = ", ".join(inside) if len(inside) < 4 else section
            yield Note(kind=NoteKind.IGNORED, setting=setting, detail="says nothing of a layout")
        else:
            near = get_close_matches(section, sorted(KNOWN_SECTIONS), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            detail = f"DeepSpeed knows no such key, and ignores it without a word{hint}"
            yield Note(kind=NoteKind.IGNORED, setting=section[:60], detail=detail)


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


_TELLING = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size")
_STARTED = re.compile(r"(^|\s)(deepspeed(\.launcher\.runner)?\s|--deepspeed|--zero[_-]stage)")


def recognises(text: str) -> bool:
    """Whether it is a configuration of DeepSpeed's, or a command that starts it."""
    rest, document = split_document(text)
    return any(f'"{name}"' in document for name in _TELLING) or bool(_STARTED.search(rest))


def read(text: str, num_ranks: int | None) -> Imported:
    """The layout that a configuration says, a script says, or a script that writes its configuration.

    Raises:
        InvalidInput: It is none, or a setting makes no sense.
    """
    rest, document = split_document(text)
    script = script_of(rest, document)
    if not document and not script:
        raise InvalidInput("config", text[:60], "must be a ds_config.json, or a command that starts DeepSpeed")
    config = flat(json_document(_with_variables(document, script.variables))) if document else _unseen(script)
    result = understood(_merged(config, script), num_ranks or script.num_ranks)
    return _imported(result, script, has_config=bool(document))


def _with_variables(document: str, variables: Mapping[str, str]) -> str:
    """A document with the variables of the script that writes it."""
    return Template(document).safe_substitute(variables) if "$" in document else document


def _unseen(script: Script) -> dict[str, object]:
    """What a configuration that is made elsewhere most likely says of precision."""
    says = "bf16.enabled" in script.config or "fp16.enabled" in script.config
    return {} if says else {"bf16.enabled": True}


def _merged(config: Mapping[str, object], script: Script) -> dict[str, object]:
    """The configuration, with the script's flags for what it leaves to them."""
    return {**config, **{path: raw for path, raw in script.config.items() if config.get(path, "auto") == "auto"}}


def _imported(result: Understood, script: Script, *, has_config: bool) -> Imported:
    layout, said = as_trainer_says(script, result.layout)
    notes = [*result.notes, *said]
    if script.recomputes:
        layout = replace(layout, recompute=Recompute.FULL)
    if not has_config:
        notes += _of_what_is_unseen(script)
    if script.recomputes is None and layout.recompute == Recompute.NONE:
        detail = "no recomputation; scripts turn it on in code, and many name it gradient_checkpointing"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="gradient_checkpointing", detail=detail))
    notes += script.remarks
    return Imported(
        format=ExportFormat.DEEPSPEED,
        layout=layout,
        num_ranks=result.num_ranks,
        model_name=script.model_name,
        seq_len=script.seq_len,
        global_batch_size=result.global_batch_size,
        notes=tuple(notes),
    )


def _of_what_is_unseen(script: Script) -> list[Note]:
    notes = []
    if script.config_file:
        detail = "the file is not opened: paste its contents too, or the layout lacks what they say"
        notes.append(Note(kind=NoteKind.IGNORED, setting=script.config_file, detail=detail))
    if "bf16.enabled" not in script.config and "fp16.enabled" not in script.config:
        detail = "the configuration that the script makes in code is not seen; bf16 is taken"
        notes.append(Note(kind=NoteKind.ASSUMED, setting="bf16.enabled", detail=detail))
    return notes


DEEPSPEED = Target(
    format=ExportFormat.DEEPSPEED,
    version=VERSION,
    rules=RULES,
    elsewhere=ELSEWHERE | LAUNCHED,
    write=write,
    read=read,
    recognises=recognises,
)
