"""Arguments of the ``transformers`` Trainer, on a command line or as JSON, as a layout."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.accounted import unread
from autotuner.export.deepspeed.script import Script, script_of_command
from autotuner.export.deepspeed.understood import understood
from autotuner.export.documents import json_document, split_document
from autotuner.export.huggingface.backend import SIZES
from autotuner.export.huggingface.placed import fp16_note, on_ranks, plain
from autotuner.export.huggingface.transformers_keys import FSDP_KEYS, KEYS
from autotuner.export.huggingface.transformers_write import ENVIRONMENT_PREFIX
from autotuner.export.keys import flag_of, flat, heard, number_of
from autotuner.export.launched import Launched, launched
from autotuner.export.target import Imported, Note, NoteKind

_TELLING = re.compile(r"per_device_train_batch_size|--fsdp\b|--torch_compile\b|--ddp_bucket_cap_mb\b")
_DEFAULT_MICRO_BATCH = 8
"""``per_device_train_batch_size`` (transformers 5.23.0, training_args.py)."""

_OLDER = {
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
}
"""Names of one argument in several releases."""


_HANDLED = (*_OLDER, *_OLDER.values(), "fsdp", "fsdp_config", "deepspeed", "gradient_accumulation_steps", "fp16")
"""Arguments that are read beside ``KEYS``."""


def recognises(text: str) -> bool:
    """Whether it has arguments of the Trainer's."""
    return bool(_TELLING.search(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    """What was said to the Trainer.

    Attributes:
        values: By name of the argument.
        deepspeed: Its configuration by path; None: DeepSpeed does not run it.
        fsdp: Its configuration; None: FSDP does not run it.
    """

    values: Mapping[str, object]
    deepspeed: Mapping[str, object] | None
    fsdp: Mapping[str, object] | None
    sizes: Mapping[str, object]
    script: Script
    notes: list[Note] = field(default_factory=list)


def read(text: str, num_ranks: int | None) -> Imported:
    """The layout that arguments of the Trainer say, with the configuration that stands beside them.

    Raises:
        InvalidInput: There are none, or one makes no sense.
    """
    rest, document = split_document(text)
    command = launched(rest, document) if "--" in rest else Launched()
    asked = _arguments(command, json_document(document) if document else {})
    if not asked.values:
        raise InvalidInput("config", text[:60], "must be arguments of the Trainer, as flags or as JSON")
    ranks = num_ranks or command.num_ranks
    layout, known_ranks, global_batch = (
        _by_zero(asked, ranks) if asked.deepspeed is not None else _by_torch(asked, ranks)
    )
    handled = frozenset((*_HANDLED, *(key.path for key in KEYS)))
    asked.notes.extend(unread(command.arguments, handled))
    asked.notes.extend(command.notes)
    return Imported(
        format=ExportFormat.TRANSFORMERS,
        layout=layout,
        num_ranks=known_ranks,
        model_name=asked.script.model_name,
        seq_len=asked.script.seq_len,
        global_batch_size=global_batch,
        notes=tuple(asked.notes),
    )


def _arguments(command: Launched, document: Mapping[str, Any]) -> _Arguments:
    is_of_trainer = "per_device_train_batch_size" in document or "output_dir" in document
    said: dict[str, object] = dict(document) if is_of_trainer else {}
    said |= {name: " ".join(values) if values else True for name, values in command.arguments.values.items()}
    values = {_OLDER.get(name, name): value for name, value in said.items() if value is not None}
    script, notes = script_of_command(command), []
    zero, fsdp = values.get("deepspeed"), values.get("fsdp")
    beside = {} if is_of_trainer else document
    if isinstance(zero, str) and not beside:
        notes.append(_unseen(zero))
    if isinstance(values.get("fsdp_config"), str) and not beside:
        notes.append(_unseen(str(values["fsdp_config"])))
    return _Arguments(
        values=values,
        deepspeed=flat(zero if isinstance(zero, Mapping) else beside) if zero else None,
        fsdp=_fsdp_config(values, beside) if fsdp or values.get("fsdp_config") else None,
        sizes={  # accelerate reads them in the environment
            name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
            for name, value in command.variables.items()
            if name.startswith(ENVIRONMENT_PREFIX)
        },
        script=script,
        notes=notes,
    )


def _unseen(name: str) -> Note:
    detail = "the file is not opened: paste its contents too, or the layout lacks what they say"
    return Note(kind=NoteKind.IGNORED, setting=name[:60], detail=detail)


def _fsdp_config(values: Mapping[str, object], beside: Mapping[str, Any]) -> dict[str, object]:
    """FSDP's configuration, with what older releases said as words of ``fsdp``."""
    inside = values.get("fsdp_config")
    config = _object("fsdp_config", inside) if inside and not _is_file(inside) else beside
    said = {name.removeprefix("fsdp_"): value for name, value in config.items()}
    words = str(values.get("fsdp", "")).lower().split()
    if "offload" in words:
        said["cpu_offload"] = True
    for word, reshards in (("full_shard", True), ("shard_grad_op", False), ("hybrid_shard", True)):
        if word in words:
            said.setdefault("reshard_after_forward", reshards)
    return said


def _is_file(value: object) -> bool:
    return isinstance(value, str) and not value.lstrip().startswith("{")


def _object(name: str, value: object) -> Mapping[str, Any]:
    """A value that is an object, or the text of one."""
    if isinstance(value, Mapping):
        return value
    try:
        read_value = json.loads(str(value))
    except (ValueError, RecursionError):
        read_value = None
    if not isinstance(read_value, dict):
        raise InvalidInput(name, value, "must be a JSON object")
    return read_value


_ZERO_PATHS = {
    "per_device_train_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "bf16": "bf16.enabled",
    "fp16": "fp16.enabled",
}
"""Arguments that fill in what DeepSpeed's configuration leaves to them."""


def _by_zero(asked: _Arguments, num_ranks: int | None) -> tuple[Layout, int | None, int | None]:
    said = {path: asked.values[name] for name, path in _ZERO_PATHS.items() if name in asked.values}
    said.setdefault("train_micro_batch_size_per_gpu", _DEFAULT_MICRO_BATCH)
    said.setdefault("gradient_accumulation_steps", 1)
    if "sp_size" in asked.sizes:
        said["sequence_parallel_size"] = asked.sizes["sp_size"]
    config = asked.deepspeed or {}
    written = {path: raw for path, raw in config.items() if raw != "auto" or path not in said}
    result = understood({**said, **written}, num_ranks)
    asked.notes.extend(result.notes)
    rest = {name: value for name, value in asked.values.items() if name not in ("per_device_train_batch_size", "bf16")}
    return _with_arguments(result.layout, rest, asked.notes), result.num_ranks, result.global_batch_size


def _by_torch(asked: _Arguments, num_ranks: int | None) -> tuple[Layout, int | None, int | None]:
    notes = asked.notes
    level = ShardLevel.NONE if asked.fsdp is None else ShardLevel.PARAMETERS
    values = {"bf16": False, "per_device_train_batch_size": _DEFAULT_MICRO_BATCH, **asked.values}
    if "per_device_train_batch_size" not in asked.values:
        detail = str(_DEFAULT_MICRO_BATCH)
        notes.append(Note(kind=NoteKind.ASSUMED, setting="per_device_train_batch_size", detail=detail))
    if "fp16" in values and flag_of("fp16", values["fp16"]):
        notes.append(fp16_note("fp16"))
        values["bf16"] = True
    layout = _with_arguments(Layout(shard_level=level), values, notes)
    if asked.fsdp is not None:
        layout = _of_fsdp(layout, asked.fsdp, notes)
    layout = heard(SIZES, asked.sizes, layout)
    layout = plain(layout, notes, says_exchange="cp_comm_strategy" in asked.sizes)
    says_sizes = "dp_shard_size" in asked.sizes or "dp_replicate_size" in asked.sizes
    layout, is_known = on_ranks(layout, num_ranks, notes, says_sizes=says_sizes)
    if not is_known:
        return layout, None, None
    steps = number_of("gradient_accumulation_steps", values.get("gradient_accumulation_steps", 1), at_least=1)
    return layout, layout.world_size, layout.micro_batch_size * steps * layout.data_parallel_degree


def _with_arguments(layout: Layout, values: Mapping[str, object], notes: list[Note]) -> Layout:
    said = dict(values)
    if said.get("optim") not in (None, "adamw_torch", "adamw_torch_fused"):
        detail = "another optimizer than AdamW, whose time and states are predicted"
        notes.append(Note(kind=NoteKind.CHANGED, setting=f"optim: {said.pop('optim')}"[:60], detail=detail))
    if layout.shard_level != ShardLevel.NONE:
        said.pop("ddp_bucket_cap_mb", None)
    layout = heard(KEYS, said, layout)
    kwargs = values.get("gradient_checkpointing_kwargs")
    if kwargs is not None and layout.recompute == Recompute.FULL:
        inside = _object("gradient_checkpointing_kwargs", kwargs)
        layout = replace(
            layout,
            recompute_every=number_of("every_n_layers", inside.get("every_n_layers", 1), at_least=1),
            offload_activations=flag_of("offload", inside.get("offload", False)),
        )
    return layout


def _of_fsdp(layout: Layout, config: Mapping[str, object], notes: list[Note]) -> Layout:
    said = dict(config)
    word = said.get("reshard_after_forward")
    if word is None:
        notes.append(Note(kind=NoteKind.ASSUMED, setting="reshard_after_forward", detail="true"))
        said["reshard_after_forward"] = True
    elif isinstance(word, str) and word.lower() in _STRATEGIES:
        notes.append(Note(kind=NoteKind.CHANGED, setting="fsdp_config.version: 1", detail=f"{word} as FSDP2 has it"))
        said["reshard_after_forward"] = _STRATEGIES[word.lower()]
    if flag_of("cpu_offload", said.get("cpu_offload", False)):
        detail = "parameters wait in the host's memory, which a layout does not say"
        notes.append(Note(kind=NoteKind.CHANGED, setting="fsdp_config.cpu_offload", detail=detail))
    if "activation_checkpointing" in said and not flag_of("activation_checkpointing", said["activation_checkpointing"]):
        del said["activation_checkpointing"]  # the argument may turn it on
    return heard(FSDP_KEYS, said, layout)


_STRATEGIES = {"full_shard": True, "shard_grad_op": False, "hybrid_shard": True, "hybrid_shard_zero2": False}
"""FSDP1's, and whether they reshard after the forward pass."""
