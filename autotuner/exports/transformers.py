"""Writer and reader of a layout as arguments of Transformers' Trainer.

Source of names and defaults: transformers 5.23.0, ``training_args.py``. Its argument ``activation_checkpointing`` is
written under the name of older releases, which release 5.23.0 reads too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotuner.core.choices import ExportFormat, OptimizerKernel, Precision, Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.rules.rule import Limit, Rule, named, refuse
from autotuner.core.units import MIB
from autotuner.exports import deepspeed
from autotuner.exports.accelerate import (
    RULES,
    SIZES,
    Backend,
    backend_of,
    ds_config_of_accelerate,
    exchanges_heads,
    on_torch_ranks,
    says_sizes,
)
from autotuner.exports.shared.command import Launched, launched, unread
from autotuner.exports.shared.common_rules import decided_in_code, keeps
from autotuner.exports.shared.keys import (
    Key,
    flat,
    number,
    read_flag,
    read_integer,
    read_table,
    switch,
    words,
    write_table,
)
from autotuner.exports.shared.target import Export, ExportedFile, Imported, Notes, Target
from autotuner.exports.shared.texts import json_document, split_document

_VERSION = "5.23.0"
_FSDP_FILE_NAME = "fsdp_config.json"
_MICRO, _STEPS = "per_device_train_batch_size", "gradient_accumulation_steps"
_DEFAULT_MICRO_BATCH = 8

_PREFIX = "PARALLELISM_CONFIG_"
"""Prefix of the names of ``ParallelismConfig`` in the environment that accelerate reads (1.15.0,
parallelism_config.py)."""


def _recomputes_by_fsdp(x: Layout) -> bool:
    """Return True if FSDP's own recomputation is used, which gathers parameters once less."""
    every_layer = x.recompute == Recompute.FULL and x.recompute_every == 1 and not x.offload_activations
    return every_layer and backend_of(x) == Backend.FSDP


_KEYS: tuple[Key, ...] = (
    number(_MICRO, "micro_batch_size", when=lambda x: True),
    words("bf16", "precision", {True: Precision.BF16, False: Precision.FP32}),
    words(
        "gradient_checkpointing",
        "recompute",
        {True: Recompute.FULL, False: Recompute.NONE},
        when=lambda x: x.recompute == Recompute.FULL and not _recomputes_by_fsdp(x),
    ),
    words(
        "optim",
        "optimizer_kernel",
        {"adamw_torch_fused": OptimizerKernel.FUSED, "adamw_torch": OptimizerKernel.FOREACH},
    ),
    switch("torch_compile", "compiled", lambda x: x.compiled),
    Key(
        path="ddp_bucket_cap_mb",  # MiB
        field="gradient_bucket_bytes",
        write=lambda x: (
            max(1, x.gradient_bucket_bytes // MIB)
            if x.shard_level == ShardLevel.NONE and x.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES
            else None
        ),
        read=lambda path, raw, x: read_integer(path, raw, at_least=1) * MIB,
    ),
)
"""Arguments, in the order in which they are read."""

_FSDP_KEYS: tuple[Key, ...] = (
    switch("reshard_after_forward", "reshard_after_forward"),
    words(
        "activation_checkpointing", "recompute", {True: Recompute.FULL, False: Recompute.NONE}, when=_recomputes_by_fsdp
    ),
)
"""Keys of ``fsdp_config``, in the order in which they are read."""

_ELSEWHERE = frozenset({"attention_kernel", "fused_norm", "fp32_gradient_reduce"})
"""Options that the user's script decides when it loads the model: attention, norms, and the format of weights and
gradients."""

_LIMITS: Mapping[str, Limit] = {
    "transformers-splits-no-tensors": keeps(
        "tensor_parallel_degree",
        "the Trainer has no argument that splits tensors: the script (DistributedConfig) or "
        "DeepSpeed (AutoTP) does this",
    ),
    "transformers-sizes-whole-mebibytes": refuse(
        "gradient_bucket_bytes",
        lambda x, j: (x.shard_level == ShardLevel.NONE) & (x.gradient_bucket_bytes % MIB != 0),
        "ddp_bucket_cap_mb counts MiB, and {x.gradient_bucket_bytes} bytes are not a multiple of 1 MiB",
        lambda x, j: x.gradient_bucket_bytes + -x.gradient_bucket_bytes % MIB,
    ),
    "transformers-sizes-no-bucket-beside-ulysses": keeps(
        "gradient_bucket_bytes",
        "DeepSpeed runs this, and ZeRO stage 0 has no key for its buckets",
        lambda x, j: (x.shard_level == ShardLevel.NONE) & exchanges_heads(x),
    ),
    "transformers-multiplies-in-16-bits-or-more": keeps(
        "precision",
        "the Trainer has no argument for {x.precision}; bf16 runs instead",
        lambda x, j: x.precision != Precision.FP32,
    ),
    "transformers-shards-parameters-on-gpus": refuse(
        "shard_level",
        lambda x, j: (x.shard_level == ShardLevel.PARAMETERS) & (j.cluster.accelerator.kind == "cpu"),
        "on CPUs the Trainer ignores FSDP without a warning and trains replicas; DeepSpeed's ZeRO stages do run",
        ShardLevel.GRADIENTS,
        is_of_hardware=True,
    ),
}

_RULES: tuple[Rule, ...] = (*RULES, *named(_LIMITS))


# ---------------------------------------------------------------- write
def _write(job: Job, layout: Layout) -> Export:
    """Return the layout as arguments, with the configuration file of FSDP or DeepSpeed that they name."""
    cluster, backend = job.cluster, backend_of(layout)
    arguments = [word for name, value in write_table(_KEYS, layout).items() for word in (f"--{name}", str(value))]
    arguments += ["--gradient_accumulation_steps", str(max(1, job.workload.num_micro_batches(layout)))]
    kwargs: dict[str, object] = {"every_n_layers": layout.recompute_every} if layout.recompute_every > 1 else {}
    if layout.offload_activations:
        kwargs["offload"] = True
    if kwargs:
        arguments += ["--gradient_checkpointing_kwargs", json.dumps(kwargs)]
    files: tuple[ExportedFile, ...] = ()
    if backend == Backend.DEEPSPEED:
        arguments += ["--deepspeed", deepspeed.FILE_NAME]
        files = (ExportedFile(name=deepspeed.FILE_NAME, text=ds_config_of_accelerate(job, layout)),)
    elif backend == Backend.FSDP:
        arguments += ["--fsdp", "--fsdp_config", _FSDP_FILE_NAME]
        config = json.dumps({"version": 2, **write_table(_FSDP_KEYS, layout)}, indent=2) + "\n"
        files = (ExportedFile(name=_FSDP_FILE_NAME, text=config),)
    sizes: dict[str, str] = {}
    if says_sizes(layout):  # what accelerate cannot tell from the number of processes, as variables that it reads
        found = write_table(SIZES, layout)
        sizes = {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"}
        sizes |= {f"{_PREFIX}{name.upper()}": str(value) for name, value in found.items()}
    return Export(
        format=ExportFormat.TRANSFORMERS,
        layout=layout,
        version=_VERSION,
        arguments=tuple(arguments),
        files=files,
        environment=sizes | collective_environment(layout),
        left_to_trainer=(*_duties(layout), decided_in_code(_ELSEWHERE, layout, "the script")),
        usage=f"torchrun --nnodes {cluster.num_nodes} --nproc-per-node {cluster.accelerators_per_node} train.py, "
        "with the arguments behind it" + "".join(f" and {file.name} beside it" for file in files),
    )


def _duties(layout: Layout) -> Iterator[str]:
    if backend_of(layout) == Backend.DEEPSPEED:
        yield from deepspeed.zero_defaults(layout)
        if layout.context_parallel_degree > 1:
            yield ("the script's attention must exchange heads for parts of the sequence (UlyssesSPAttentionHF)")
    if layout.compiled:
        yield "torch_compile compiles the whole model, not each layer"
    if layout.shard_level == ShardLevel.NONE and layout.data_parallel_replicate_degree > 1:
        yield "weights and gradients have the format in which the script loads the model"


# ---------------------------------------------------------------- read
_TELLING = re.compile(r"per_device_train_batch_size|--fsdp\b|--torch_compile\b|--ddp_bucket_cap_mb\b")

_OLDER = {
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
    "per_gpu_train_batch_size": _MICRO,
}
"""Present names of arguments, each with its name in older releases."""

_HANDLED = frozenset(
    (
        *(*_OLDER, *_OLDER.values(), *(key.path for key in _KEYS)),
        *("fsdp", "fsdp_config", "deepspeed", "gradient_accumulation_steps", "fp16"),
    )
)
"""Arguments that are read, although not all of them are plain flags."""

_ZERO_PATHS = {
    _MICRO: "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "bf16": "bf16.enabled",
    "fp16": "fp16.enabled",
}
"""Arguments of the Trainer that set keys which DeepSpeed's configuration leaves to them."""

_STRATEGIES = {"full_shard": True, "shard_grad_op": False, "hybrid_shard": True, "hybrid_shard_zero2": False}
"""Sharding strategies of FSDP1; True if the strategy reshards after the forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    """Arguments of the Trainer, grouped by the library that reads them."""

    values: Mapping[str, object]
    """Values by name of the argument."""
    deepspeed: Mapping[str, object] | None
    """DeepSpeed's configuration by path; None if DeepSpeed does not run the script."""
    fsdp: Mapping[str, object] | None
    """FSDP's configuration; None if FSDP does not run the script."""
    sizes: Mapping[str, object]
    """Values of ``ParallelismConfig`` by name."""
    notes: Notes = field(default_factory=Notes)


def _read(text: str, num_ranks: int | None) -> Imported:
    """Return the layout that arguments of the Trainer and the configuration next to them describe."""
    rest, document = split_document(text)
    command = launched(rest, document) if "--" in rest else Launched()
    written = json_document(document) if document else {}
    script, asked = deepspeed.script_of_command(command), _asked_arguments(command, written)
    if not asked.values:
        raise InvalidInput(
            "config",
            text[:60],
            "must be arguments of the Trainer as flags or as JSON, for example --per_device_train_batch_size 1",
        )
    found = (_by_torch if asked.deepspeed is None else _by_zero)(asked, num_ranks or command.num_ranks)
    asked.notes.extend(unread(command.arguments, _HANDLED))
    asked.notes.extend(command.notes)
    return replace(found, model_name=script.model_name, seq_len=script.seq_len, notes=tuple(asked.notes))


def _asked_arguments(command: Launched, document: Mapping[str, Any]) -> _Arguments:
    is_of_trainer = _MICRO in document or "output_dir" in document
    said: dict[str, object] = dict(document) if is_of_trainer else {}
    said |= {name: " ".join(values) if values else True for name, values in command.arguments.values.items()}
    values = {_OLDER.get(name, name): value for name, value in said.items() if value is not None}
    zero, fsdp_config = values.get("deepspeed"), values.get("fsdp_config")
    beside, notes = {} if is_of_trainer else document, Notes()
    for name in (zero, fsdp_config):
        if isinstance(name, str) and not beside:
            notes.ignored(name[:60], deepspeed.UNOPENED)
    return _Arguments(
        values=values,
        deepspeed=flat(zero if isinstance(zero, Mapping) else beside) if zero else None,
        fsdp=_fsdp_config(values, beside) if values.get("fsdp") or fsdp_config else None,
        sizes={  # accelerate reads them in the environment
            name.removeprefix(_PREFIX).lower(): value
            for name, value in command.variables.items()
            if name.startswith(_PREFIX)
        },
        notes=notes,
    )


def _fsdp_config(values: Mapping[str, object], beside: Mapping[str, Any]) -> dict[str, object]:
    """Return FSDP's configuration, including settings that older releases wrote as words of ``fsdp``."""
    inside = values.get("fsdp_config")
    is_file = isinstance(inside, str) and not inside.lstrip().startswith("{")
    config = _object("fsdp_config", inside) if inside and not is_file else beside
    said = {name.removeprefix("fsdp_"): value for name, value in config.items()}
    words_of_fsdp = str(values.get("fsdp", "")).lower().split()
    if "offload" in words_of_fsdp:
        said["cpu_offload"] = True
    for word in ("full_shard", "shard_grad_op", "hybrid_shard"):
        if word in words_of_fsdp:
            said.setdefault("reshard_after_forward", _STRATEGIES[word])
    return said


def _object(name: str, value: object) -> Mapping[str, Any]:
    """Return a value that is an object, or that is the JSON text of an object."""
    if isinstance(value, Mapping):
        return value
    try:
        read_value = json.loads(str(value))
    except (ValueError, RecursionError):
        read_value = None
    if not isinstance(read_value, dict):
        raise InvalidInput(name, value, "must be a JSON object")
    return read_value


def _by_zero(asked: _Arguments, num_ranks: int | None) -> Imported:
    said: dict[str, object] = {_MICRO: _DEFAULT_MICRO_BATCH, "gradient_accumulation_steps": 1, **asked.values}
    config = {path: said[name] for name, path in _ZERO_PATHS.items() if name in said}
    if "sp_size" in asked.sizes:
        config["sequence_parallel_size"] = asked.sizes["sp_size"]
    zero = asked.deepspeed or {}
    written = {path: raw for path, raw in zero.items() if raw != "auto" or path not in config}
    found = deepspeed.understood({**config, **written}, num_ranks)
    asked.notes.extend(found.notes)
    rest = {name: value for name, value in asked.values.items() if name not in (_MICRO, "bf16")}
    layout = _with_arguments(found.layout, rest, asked.notes)
    return replace(found, format=ExportFormat.TRANSFORMERS, layout=layout)


def _by_torch(asked: _Arguments, num_ranks: int | None) -> Imported:
    notes = asked.notes
    level = ShardLevel.NONE if asked.fsdp is None else ShardLevel.PARAMETERS
    values = {"bf16": False, _MICRO: _DEFAULT_MICRO_BATCH, **asked.values}
    if _MICRO not in asked.values:
        notes.assumed(_MICRO, str(_DEFAULT_MICRO_BATCH))
    if "fp16" in values and read_flag("fp16", values["fp16"]):
        notes.changed("fp16", deepspeed.NEAREST_TO_FP16)
        values["bf16"] = True
    layout = _with_arguments(Layout(shard_level=level), values, notes)
    if asked.fsdp is not None:
        layout = _of_fsdp(layout, asked.fsdp, notes)
    layout = read_table(SIZES, asked.sizes, layout)
    found = on_torch_ranks(layout, num_ranks, values.get(_STEPS, 1), notes, said=asked.sizes)
    return replace(found, format=ExportFormat.TRANSFORMERS)


def _with_arguments(layout: Layout, values: Mapping[str, object], notes: Notes) -> Layout:
    said = dict(values)
    if said.get("optim") not in (None, "adamw_torch", "adamw_torch_fused"):
        notes.changed(f"optim: {said.pop('optim')}"[:60], deepspeed.OTHER_OPTIMIZER)
    if layout.shard_level != ShardLevel.NONE:
        said.pop("ddp_bucket_cap_mb", None)
    layout = read_table(_KEYS, said, layout)
    kwargs = values.get("gradient_checkpointing_kwargs")
    if kwargs is None or layout.recompute != Recompute.FULL:
        return layout
    inside = _object("gradient_checkpointing_kwargs", kwargs)
    return replace(
        layout,
        recompute_every=read_integer("every_n_layers", inside.get("every_n_layers", 1), at_least=1),
        offload_activations=read_flag("offload", inside.get("offload", False)),
    )


def _of_fsdp(layout: Layout, config: Mapping[str, object], notes: Notes) -> Layout:
    said = dict(config)
    word = said.get("reshard_after_forward")
    if word is None:
        notes.assumed("reshard_after_forward", "true")
        said["reshard_after_forward"] = True
    elif isinstance(word, str) and word.lower() in _STRATEGIES:
        notes.changed("fsdp_config.version: 1", f"{word} is read as the strategy of FSDP2")
        said["reshard_after_forward"] = _STRATEGIES[word.lower()]
    if read_flag("cpu_offload", said.get("cpu_offload", False)):
        notes.changed(
            "fsdp_config.cpu_offload", "parameters are kept in the host's memory, which a layout cannot express"
        )
    if not read_flag("activation_checkpointing", said.get("activation_checkpointing", True)):
        del said["activation_checkpointing"]  # the Trainer's argument may switch it on
    return read_table(_FSDP_KEYS, said, layout)


TRANSFORMERS = Target(
    format=ExportFormat.TRANSFORMERS,
    version=_VERSION,
    rules=_RULES,
    decided_elsewhere=_ELSEWHERE,
    write=_write,
    read=_read,
    recognises=lambda text: bool(_TELLING.search(text)),
)
