"""Writes a layout for torchtitan: the TOML job file of 0.2, or the Python module with one function of 0.3."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from autotuner.core.choices import FP8_PRECISIONS, NARROW_PRECISIONS, AttentionKernel, Fp8Recipe, Precision, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.stages import ONE_STAGE_SCHEDULES, layers_per_stage
from autotuner.exports.shared.keys import Value, Written, write_table
from autotuner.exports.shared.target import Export, ExportedFile
from autotuner.exports.torchtitan.releases import (
    RELEASE_0_2,
    RELEASE_0_3,
    Flavor,
    Release,
    base_of,
    flavor_of,
    preset,
    shapes,
)
from autotuner.exports.torchtitan.rules import shards


# ---------------------------------------------------------------- both
def _batch(job: Job, layout: Layout) -> Written:
    """Return the batch settings.

    The sequences of a replica are one micro-batch with accumulation, or in a pipeline all micro-batches of a step.
    """
    pipelined = layout.pipeline_parallel_degree > 1
    at_once = job.workload.num_micro_batches(layout) if pipelined else 1
    written: Written = {
        "training.local_batch_size": layout.micro_batch_size * max(1, at_once),
        "training.global_batch_size": job.workload.global_batch_size,
        "training.seq_len": job.workload.seq_len,
    }
    return written | ({"parallelism.pipeline_parallel_microbatch_size": layout.micro_batch_size} if pipelined else {})


def _fields(release: Release, layout: Layout) -> Written:
    """Return the settings that set one field each, without those that have no effect with the degrees."""
    written: Written = write_table(release.keys, layout)  # type: ignore[assignment]  # of these keys
    if shards(layout):
        written["parallelism.fsdp_reshard_after_forward"] = "always" if layout.reshard_after_forward else "never"
    return written


def _stages(job: Job, layout: Layout) -> Written:
    """Return the setting for layers per stage, if torchtitan's default gives other stages than the layout.

    torchtitan makes ceil((layers + first less + last less) / layers per stage) stages, and splits layers as a layout
    does (``generate_llm_fqn_per_model_part`` of torchtitan 0.2.2). Without the setting, it makes one or two stages per
    rank.
    """
    usual = 1 if layout.pipeline_schedule in ONE_STAGE_SCHEDULES else 2
    if layout.pipeline_parallel_degree == 1 or layout.virtual_stages_per_rank == usual:
        return {}
    share = layers_per_stage(layout, job.model.num_layers)
    return {"parallelism.pipeline_parallel_layers_per_stage": max(1, share)}


def _mixed_precision(layout: Layout) -> Written:
    return {"training.mixed_precision_param": "float32" if layout.precision == Precision.FP32 else "bfloat16"}


# ---------------------------------------------------------------- 0.2
FILE_NAME = "torchtitan.toml"
"""Name of the exported configuration."""

_ORDER = ("model", "training", "parallelism", "activation_checkpoint", "compile", "optimizer")
"""Sections in the order of torchtitan's own files. Tables of quantization come last."""


def write_0_2(job: Job, layout: Layout) -> Export:
    """Return the layout as the TOML job file of torchtitan 0.2, with the environment variables of its launch."""
    flavor = flavor_of(job.model, RELEASE_0_2.version)
    settings: Written = {"model.name": "llama3", "model.flavor": job.model.name}
    if flavor is not None:
        settings = {"model.name": flavor.family, "model.flavor": flavor.attending_by(layout.attention_kernel)}
    settings |= _batch(job, layout) | _fields(RELEASE_0_2, layout) | _stages(job, layout)
    if layout.expert_parallel_degree > 1:  # whether tensor ranks split experts is a fact of the job's software
        degree = layout.tensor_parallel_degree if job.stack.splits_experts else 1
        settings["parallelism.expert_tensor_parallel_degree"] = degree
    settings |= _checkpoints(layout) | _mixed_precision(layout)
    if layout.precision in FP8_PRECISIONS:
        settings |= _quantized(job, layout)
    return Export(
        format=RELEASE_0_2.format,
        layout=layout,
        version=RELEASE_0_2.version,
        files=(ExportedFile(name=FILE_NAME, text=_toml(settings)),),
        environment=collective_environment(layout),
        left_to_trainer=tuple(_left_out_of_0_2(job, layout, registered=flavor is not None)),
        usage=f"CONFIG_FILE={FILE_NAME} ./run_train.sh, or --job.config_file {FILE_NAME}",
    )


def _checkpoints(layout: Layout) -> Written:
    """Return the settings for activation checkpointing.

    Full recomputation of every n-th layer is a kind of the selective mode.
    """
    by_interval = layout.recompute == Recompute.FULL and layout.recompute_every > 1
    if not by_interval and layout.recompute != Recompute.SELECTIVE:
        return {"activation_checkpoint.mode": layout.recompute.label}
    option = str(layout.recompute_every) if by_interval else "op"
    return {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": option}


def _quantized(job: Job, layout: Layout) -> Written:
    """Return the settings of the 8-bit converters with their recipe.

    Emulation and float8 gathers need the recipe tensorwise.
    """
    kind = "mx" if layout.fp8_recipe == Fp8Recipe.MXFP8 else "float8"
    linear, grouped, has_experts = f"quantize.linear.{kind}", f"quantize.grouped_mm.{kind}", bool(job.model.experts)
    written: Written = {
        "model.converters": (linear, grouped) if has_experts else (linear,),
        f"{linear}.filter_fqns": ("output", "router.gate") if has_experts else ("output",),
    }
    if has_experts:
        written[f"{grouped}.fqns"] = ("experts",)
    if kind == "mx":
        return written | {f"{linear}.recipe_name": "mxfp8_cublas"}
    if layout.precision == Precision.FP8_EMULATED:
        return written | {f"{linear}.emulate": True}
    if job.stack.gathers_fp8_parameters and layout.fp8_recipe == Fp8Recipe.TENSORWISE and shards(layout):
        gathers = ("enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp")
        return written | {f"{linear}.{name}": True for name in gathers}
    return written | {f"{linear}.recipe_name": RELEASE_0_2.recipes.get(layout.fp8_recipe, "tensorwise")}


def _left_out_of_0_2(job: Job, layout: Layout, *, registered: bool) -> Iterator[str]:
    if not registered:
        how = "add it to the family of the model"
        yield f"torchtitan 0.2.2 has no flavor of this model: {how}, with {shapes(job.model)}"
    yield (
        "data set, tokenizer, learning rate, clipping, number of steps, checkpoints and logs keep torchtitan's defaults"
    )
    if layout.compiled:
        yield "compile.components keeps its default, model and loss"
    yield ("the flavor decides the attention: scaled_dot_product_attention uses the cuDNN kernel, or else flash")
    every = layout.recompute_every
    if layout.recompute == Recompute.FULL and every > 1:
        how = f"layers {every}, {2 * every} ... recompute, but those of a layout are layers 1, {every + 1} ..."
        yield f"in each rank, {how}"


def _toml(settings: Mapping[str, Value]) -> str:
    tables: dict[str, list[str]] = {name: [] for name in _ORDER}
    for setting, value in settings.items():
        table, _, key = setting.rpartition(".")
        tables.setdefault(table, []).append(f"{key} = {_toml_value(value)}")
    return "\n".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items() if lines)


def _toml_value(value: Value) -> str:
    """Return a value in TOML.

    JSON's escapes are valid in TOML's basic strings, except for DEL and lone surrogates.
    """
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str):
        plain = value.encode("utf-8", "replace").decode()
        return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---------------------------------------------------------------- 0.3
MODULE, FUNCTION = "torchtitan_layout", "layout_config"
"""Names of the exported module and of its function, which returns the configuration."""

_Converters = Mapping[str, Mapping[str, object]]
"""Arguments for classes of ``torchtitan/components/quantization``, by class name."""

_CHECKPOINTS = {Recompute.NONE: "", Recompute.SELECTIVE: "SelectiveAC", Recompute.FULL: "FullAC"}
"""Classes of ``torchtitan/distributed/activation_checkpoint.py`` for each kind of recomputation."""

_BACKENDS = {AttentionKernel.FLEX: "flex", AttentionKernel.FLASH: "varlen"}
"""Values of ``attn_backend`` for each kernel. ``varlen`` is FlashAttention for sequences of several lengths."""


def write_0_3(job: Job, layout: Layout) -> Export:
    """Return the layout as a Python module for torchtitan 0.3, whose one function returns the configuration."""
    flavor = flavor_of(job.model, RELEASE_0_3.version)
    named = flavor or Flavor(family="llama3", name=job.model.name)
    base = base_of(named.family, named.name) or "llama3_debugmodel"
    settings = _batch(job, layout) | _mixed_precision(layout)
    if layout.pipeline_parallel_degree > 1 or layout.expert_parallel_degree > 1:
        settings["training.disable_cuda_graphs"] = True  # refused beside a pipeline, and beside most dispatchers
    settings |= _fields(RELEASE_0_3, layout)
    if "optimizer.implementation" in settings and job.workload.optimizer_state_precision == "bf16":
        settings["optimizer.implementation"] = "fused_opt_states_bf16"
    settings |= _stages(job, layout)
    if layout.compiled:
        settings["compile.components"] = ("model", "loss")
    own = preset(base) or {}  # settings of the function that it starts from stay where the layout's do not matter
    left = {key.path: key.default for key in RELEASE_0_3.keys if key.path in own and key.path not in settings}
    lines = _module(layout, named, base, {**settings, **left}, _converters(job, layout))
    return Export(
        format=RELEASE_0_3.format,
        layout=layout,
        version=RELEASE_0_3.version,
        files=(ExportedFile(name=f"{MODULE}.py", text="\n".join(lines) + "\n"),),
        environment=collective_environment(layout),
        left_to_trainer=tuple(_left_out_of_0_3(job, settings, base, registered=flavor is not None)),
        usage=f"--module {MODULE} --config {FUNCTION}, with the folder of {MODULE}.py in PYTHONPATH",
    )


def _module(
    layout: Layout, flavor: Flavor, base: str, settings: Mapping[str, object], converters: _Converters
) -> Iterator[str]:
    kind = _CHECKPOINTS[layout.recompute]
    yield f'"""A layout for torchtitan 0.3: --module {MODULE} --config {FUNCTION}"""'
    yield ""
    if converters:
        yield f"from torchtitan.components.quantization import {', '.join(sorted(converters))}"
    if kind:
        yield f"from torchtitan.distributed.activation_checkpoint import {kind}"
    yield f"from torchtitan.models.{flavor.family} import model_registry"
    yield f"from torchtitan.models.{flavor.family}.config_registry import {base}"
    yield from ("from torchtitan.trainer import Trainer", "", "")
    yield f"def {FUNCTION}() -> Trainer.Config:"
    yield f"    config = {base}()"
    yield "    config.model_spec = model_registry("
    yield f"        {_literal(flavor.name)},"
    yield f"        attn_backend={_literal(_BACKENDS.get(layout.attention_kernel, 'flex'))},"
    if converters:
        yield "        converters=["
        for name, given in converters.items():
            arguments = ", ".join(f"{argument}={_literal(value)}" for argument, value in given.items())
            yield f"            {name}.Config({arguments}),"
        yield "        ],"
    yield "    )"
    for setting, value in settings.items():
        yield f"    config.{setting} = {_literal(value)}"
    yield f"    config.activation_checkpoint = {f'{kind}.Config()' if kind else None}"
    yield "    return config"


def _literal(value: object) -> str:
    """Return a value as a Python literal, with the quotes that code formatters use."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value) if isinstance(value, str) and value.isascii() else repr(value)


def _converters(job: Job, layout: Layout) -> dict[str, dict[str, object]]:
    """Return the converter classes that round the operands of products, with their arguments.

    One is for linear modules, and one for experts if the model has them.
    """
    if layout.precision not in NARROW_PRECISIONS:
        return {}
    compiled: dict[str, object] = {"model_compile_enabled": layout.compiled}
    if layout.precision == Precision.NVFP4:
        return {"NVFP4LinearConverter": {"fqns": ["layers"], **compiled}}  # the output projection stays in 16 bits
    kind, recipe = "Float8", RELEASE_0_3.recipes.get(layout.fp8_recipe, "rowwise")
    kept = {"filter_fqns": ["lm_head", "router.gate"] if job.model.experts else ["lm_head"]}
    linear: dict[str, object] = {"recipe_name": recipe, **kept, **compiled}
    if layout.fp8_recipe == Fp8Recipe.MXFP8:
        kind, linear = "MXFP8", {"fqns": ["attention", "shared_experts", "feed_forward"], **compiled}
    elif layout.precision == Precision.FP8_EMULATED:
        linear = {**kept, "emulate": True, **compiled}
    of_experts = {f"{kind}GroupedExpertsConverter": compiled} if job.model.experts else {}
    return {f"{kind}LinearConverter": linear, **of_experts}


def _left_out_of_0_3(job: Job, settings: Mapping[str, Value], base: str, *, registered: bool) -> Iterator[str]:
    if not registered:
        yield f"torchtitan 0.3.0 has no flavor of this model: add it to its family, with {shapes(job.model)}"
    yield (f"data set, tokenizer, learning rate, number of steps and all other settings are those of {base}")
    if settings.get("compile.enable"):
        yield "the loss is compiled too, which is torchtitan's default"
    if "training.disable_cuda_graphs" not in settings:
        yield ("CUDA graphs are on, which is the default of torchtitan 0.3; a layout has no option for them")
    yield "spmd_backend and the dispatcher of experts keep torchtitan's defaults"
