"""Arguments of Transformers' Trainer for a layout, written and read.

Source of names and defaults: transformers 5.23.0, ``training_args.py``. Its ``activation_checkpointing`` is called as
older releases call it, which this one reads too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotuner.core.choices import OptimizerKernel, Precision, Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.rules.rule import Rule
from autotuner.core.trial_spec import ExportFormat
from autotuner.core.units import MIB
from autotuner.export.accounted import unread
from autotuner.export.common_rules import decided_in_code
from autotuner.export.deepspeed.read import Script, script_of_command, understood
from autotuner.export.deepspeed.write import FILE_NAME as DS_FILE_NAME
from autotuner.export.deepspeed.write import zero_defaults
from autotuner.export.documents import json_document, split_document
from autotuner.export.huggingface.accelerate import ds_config_of_accelerate
from autotuner.export.huggingface.shared import (
    RULES,
    SIZES,
    Backend,
    backend_of,
    exchanges_heads,
    fp16_note,
    on_ranks,
    plain,
    says_sizes,
)
from autotuner.export.keys import Key, count, flag_of, flat, heard, number_of, said, words
from autotuner.export.launched import Launched, launched
from autotuner.export.target import Export, ExportedFile, Imported, Note, NoteKind


def recomputes_by_fsdp(layout: Layout) -> bool:
    """Whether FSDP's own recomputation says it, which gathers parameters once less."""
    return (
        backend_of(layout) == Backend.FSDP
        and layout.recompute == Recompute.FULL
        and layout.recompute_every == 1
        and not layout.offload_activations
    )


def checkpointing_kwargs(layout: Layout) -> str | None:
    """What ``gradient_checkpointing_kwargs`` says of it."""
    said: dict[str, object] = {"every_n_layers": layout.recompute_every} if layout.recompute_every > 1 else {}
    if layout.offload_activations:
        said["offload"] = True
    return json.dumps(said) if said else None


KEYS: tuple[Key, ...] = (
    count("per_device_train_batch_size", "micro_batch_size", when=lambda x: True),
    words("bf16", "precision", {True: Precision.BF16, False: Precision.FP32}),
    words(
        "gradient_checkpointing",
        "recompute",
        {True: Recompute.FULL, False: Recompute.NONE},
        when=lambda x: x.recompute == Recompute.FULL and not recomputes_by_fsdp(x),
    ),
    words(
        "optim",
        "optimizer_kernel",
        {"adamw_torch_fused": OptimizerKernel.FUSED, "adamw_torch": OptimizerKernel.FOREACH},
    ),
    words("torch_compile", "compiled", {True: True, False: False}, when=lambda x: x.compiled),
    Key(
        path="ddp_bucket_cap_mb",  # MiB
        field="gradient_bucket_bytes",
        said=lambda x: (
            max(1, x.gradient_bucket_bytes // MIB)
            if x.shard_level == ShardLevel.NONE and x.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES
            else None
        ),
        heard=lambda path, raw, x: number_of(path, raw, at_least=1) * MIB,
    ),
)
"""Arguments, in the order in which they are read."""

FSDP_KEYS: tuple[Key, ...] = (
    words("reshard_after_forward", "reshard_after_forward", {True: True, False: False}),
    words(
        "activation_checkpointing",
        "recompute",
        {True: Recompute.FULL, False: Recompute.NONE},
        when=recomputes_by_fsdp,
    ),
)
"""What ``fsdp_config`` says."""


ELSEWHERE = frozenset({"attention_kernel", "fused_norm", "fp32_gradient_reduce"})
"""What the script decides where it loads its model: attention, norms, and the format of weights and gradients."""

TRANSFORMERS_RULES: tuple[Rule, ...] = (
    *RULES,
    Rule(
        "transformers-splits-no-tensors",
        "tensor_parallel_degree",
        lambda x, j: x.tensor_parallel_degree > 1,
        lambda x, j: (
            "no argument splits tensors: the script loads its model so (DistributedConfig), or DeepSpeed does (AutoTP)"
        ),
        lambda x, j: 1,
    ),
    Rule(
        "transformers-sizes-whole-mebibytes",
        "gradient_bucket_bytes",
        lambda x, j: (x.shard_level == ShardLevel.NONE) & (x.gradient_bucket_bytes % MIB != 0),
        lambda x, j: f"ddp_bucket_cap_mb counts MiB, and {x.gradient_bucket_bytes} bytes are no whole number of them",
        lambda x, j: x.gradient_bucket_bytes + -x.gradient_bucket_bytes % MIB,
    ),
    Rule(
        "transformers-sizes-no-bucket-beside-ulysses",
        "gradient_bucket_bytes",
        lambda x, j: (
            (x.shard_level == ShardLevel.NONE) & exchanges_heads(x) & (x.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES)
        ),
        lambda x, j: "DeepSpeed runs it, and stage 0 has no key for its buckets",
        lambda x, j: DEFAULT_BUCKET_BYTES,
    ),
    Rule(
        "transformers-multiplies-in-16-bits-or-more",
        "precision",
        lambda x, j: (x.precision != Precision.BF16) & (x.precision != Precision.FP32),
        lambda x, j: f"the Trainer has no argument for {x.precision}; bf16 runs instead",
        lambda x, j: Precision.BF16.label,
    ),
    Rule(
        "transformers-shards-parameters-on-gpus",
        "shard_level",
        lambda x, j: (x.shard_level == ShardLevel.PARAMETERS) & (j.cluster.accelerator.kind == "cpu"),
        lambda x, j: "on cores the Trainer leaves FSDP out without a word and trains replicas; DeepSpeed's stages run",
        lambda x, j: ShardLevel.GRADIENTS.label,
        is_of_hardware=True,
    ),
)


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
    asked = _asked_arguments(command, json_document(document) if document else {})
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


def _asked_arguments(command: Launched, document: Mapping[str, Any]) -> _Arguments:
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
