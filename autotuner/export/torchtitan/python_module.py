"""torchtitan 0.3's configuration: a Python module with one function, and flags that override it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from autotuner.core.choices import NARROW_PRECISIONS, AttentionKernel, Fp8Recipe, Precision, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.common_rules import LAUNCHED
from autotuner.export.target import Export, ExportedFile, Imported, Target
from autotuner.export.torchtitan import said
from autotuner.export.torchtitan.catalog import RELEASE_0_3, Flavor, base_of, flavor_of, preset, shapes
from autotuner.export.torchtitan.entries import Entry, Value
from autotuner.export.torchtitan.python_texts import is_configuration, settings_of
from autotuner.export.torchtitan.rules import RULES_0_3, SEARCHED_0_3
from autotuner.export.torchtitan.understood import imported

_MODULE, _FUNCTION = "torchtitan_layout", "layout_config"

Converters = Mapping[str, Mapping[str, object]]
"""Arguments by class of ``torchtitan/components/quantization``."""

_CHECKPOINTS = {Recompute.NONE: "", Recompute.SELECTIVE: "SelectiveAC", Recompute.FULL: "FullAC"}
"""Classes of ``torchtitan/distributed/activation_checkpoint.py``."""

_BACKENDS = {AttentionKernel.FLEX: "flex", AttentionKernel.FLASH: "varlen"}
"""Words of ``attn_backend``; varlen is FlashAttention for sequences of several lengths."""


def _write(job: Job, layout: Layout) -> Export:
    flavor = flavor_of(job.model, RELEASE_0_3.version)
    named = flavor or Flavor(family="llama3", name=job.model.name)
    base = base_of(named.family, named.name) or "llama3_debugmodel"
    settings = dict(_settings(job, layout))
    settings |= {entry.setting: entry.default for entry in _left_to(base) if entry.setting not in settings}
    converters = _converters(job, layout)
    lines = [*_head(layout, named, base, converters), *_body(layout, named, base, settings, converters), ""]
    return Export(
        format=ExportFormat.TORCHTITAN_CONFIG,
        version=RELEASE_0_3.version,
        files=(ExportedFile(name=f"{_MODULE}.py", text="\n".join(lines)),),
        environment=collective_environment(layout),
        defaults=tuple(_defaults(job, settings, base, registered=flavor is not None)),
        usage=f"--module {_MODULE} --config {_FUNCTION}, with the folder of {_MODULE}.py in PYTHONPATH",
    )


def _left_to(base: str) -> Iterator[Entry]:
    """Settings of the function that it starts from, which would stay where the layout's do not matter."""
    own = preset(base) or {}
    return (entry for entry in RELEASE_0_3.entries if entry.setting in own)


def _settings(job: Job, layout: Layout) -> Iterator[tuple[str, Value]]:
    yield from said.batch(job, layout)
    yield "training.mixed_precision_param", "float32" if layout.precision == Precision.FP32 else "bfloat16"
    if layout.pipeline_parallel_degree > 1 or layout.expert_parallel_degree > 1:
        yield "training.disable_cuda_graphs", True  # refused beside a pipeline, and beside most dispatchers
    for setting, value in said.entries(RELEASE_0_3, layout):
        in_bf16 = setting == "optimizer.implementation" and job.workload.optimizer_state_precision == "bf16"
        yield setting, "fused_opt_states_bf16" if in_bf16 else value
    yield from said.stages(job, layout)
    if layout.compiled:
        yield "compile.components", ("model", "loss")


# ---------------------------------------------------------------- Python
def _head(layout: Layout, flavor: Flavor, base: str, converters: Converters) -> Iterator[str]:
    yield f'"""A layout for torchtitan 0.3: --module {_MODULE} --config {_FUNCTION}"""'
    yield ""
    if converters:
        yield f"from torchtitan.components.quantization import {', '.join(sorted(converters))}"
    if _CHECKPOINTS[layout.recompute]:
        yield f"from torchtitan.distributed.activation_checkpoint import {_CHECKPOINTS[layout.recompute]}"
    yield f"from torchtitan.models.{flavor.family} import model_registry"
    yield f"from torchtitan.models.{flavor.family}.config_registry import {base}"
    yield "from torchtitan.trainer import Trainer"
    yield from ("", "")


def _body(
    layout: Layout, flavor: Flavor, base: str, settings: Mapping[str, Value], converters: Converters
) -> Iterator[str]:
    yield f"def {_FUNCTION}() -> Trainer.Config:"
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
    kind = _CHECKPOINTS[layout.recompute]
    yield f"    config.activation_checkpoint = {f'{kind}.Config()' if kind else None}"
    yield "    return config"


def _literal(value: object) -> str:
    """As Python writes it, with the quotes that formatters choose."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value) if isinstance(value, str) and value.isascii() else repr(value)


def _converters(job: Job, layout: Layout) -> dict[str, dict[str, object]]:
    """Classes that round products, with their arguments: of linear modules, and of experts where there are some."""
    if layout.precision not in NARROW_PRECISIONS:
        return {}
    compiled: dict[str, object] = {"model_compile_enabled": layout.compiled}
    if layout.precision == Precision.NVFP4:
        return {"NVFP4LinearConverter": {"fqns": ["layers"], **compiled}}  # the output projection stays in 16 bits
    kind, parts = "Float8", {"recipe_name": RELEASE_0_3.recipes.get(layout.fp8_recipe, "rowwise")}
    kept = {"filter_fqns": ["lm_head", "router.gate"] if job.model.experts else ["lm_head"]}
    linear: dict[str, object] = {**parts, **kept, **compiled}
    if layout.fp8_recipe == Fp8Recipe.MXFP8:
        kind, linear = "MXFP8", {"fqns": ["attention", "shared_experts", "feed_forward"], **compiled}
    elif layout.precision == Precision.FP8_EMULATED:
        linear = {**kept, "emulate": True, **compiled}
    of_experts = {f"{kind}GroupedExpertsConverter": compiled} if job.model.experts else {}
    return {f"{kind}LinearConverter": linear, **of_experts}


def _defaults(job: Job, settings: Mapping[str, Value], base: str, *, registered: bool) -> Iterator[str]:
    if not registered:
        yield f"torchtitan 0.3.0 has no flavor of this model: add it to its family, with {shapes(job.model)}"
    yield f"data set, tokenizer, learning rate, number of steps and all else that is not set is {base}'s"
    if settings.get("compile.enable"):
        yield "the loss is compiled beside the layers, as torchtitan does it by default"
    if "training.disable_cuda_graphs" not in settings:
        yield "CUDA graphs are on, as torchtitan 0.3 has them; no layout says them"
    yield "spmd_backend and the dispatcher of experts are torchtitan's"


def _read(text: str, num_ranks: int | None) -> Imported:
    return imported(RELEASE_0_3, settings_of(text), num_ranks)


TORCHTITAN_CONFIG = Target(
    format=ExportFormat.TORCHTITAN_CONFIG,
    version=RELEASE_0_3.version,
    rules=RULES_0_3,
    elsewhere=LAUNCHED,
    write=_write,
    searched=SEARCHED_0_3,
    read=_read,
    recognises=is_configuration,
)
