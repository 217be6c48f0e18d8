"""Writer and reader of overrides for the recipes of Megatron-Bridge and NeMo.

The fields are those of megatron-core's dataclasses (0.16.1: TransformerConfig, DistributedDataParallelConfig). Their
sections are those of ConfigContainer of Megatron-Bridge 0.6.0, training/config.py; MegatronStrategy and the recipes of
NeMo 2, lightning/pytorch/strategies and collections/llm/recipes. Precisions: training/mixed_precision.py of
Megatron-Bridge, recipes/precision/mixed_precision.py of NeMo. Recipes contain the model, and have the distributed
optimizer and overlaps switched on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from autotuner.catalog.models import model_called
from autotuner.core.choices import AttentionKernel, ExportFormat, Fp8Recipe, Precision, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.rule import Rule, named, refuse
from autotuner.exports.megatron.layout import (
    OPTIMIZER_OFFLOAD,
    environment,
    layout_settings,
    left_at_default,
    read_layout,
)
from autotuner.exports.megatron.rules import MEGATRON_RULES, keeps_parameters
from autotuner.exports.shared.command import Flags, unfollowed, unread
from autotuner.exports.shared.common_rules import LAUNCHED
from autotuner.exports.shared.keys import Reading, Value, Written
from autotuner.exports.shared.shell import read_script
from autotuner.exports.shared.target import Export, Imported, Target
from autotuner.exports.shared.texts import assigned, assignments, functions_of, parse, require_short

_OVERRIDE = re.compile(
    r"(?:^|[\s'\"+])([A-Za-z_]\w*(?:\.\w+)+|[a-z_]\w+)=('[^'\n]*'|\"[^\"\n]*\"|\[[^\]\n]*\]|[^\s'\"\\]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The values that a recipe or a list of overrides assigns to dotted names such as ``cfg.model.num_layers``."""

    values: Mapping[str, tuple[str, ...]]
    """Values as words, by the path that is assigned (``cfg.model.num_layers``). A list has several words."""
    function: str = ""
    """Name of the function that contains these assignments; empty: there is none."""
    others: tuple[str, ...] = ()
    """Names of functions whose assignments were ignored."""
    remarks: tuple[str, ...] = ()
    """Notes about parts of a script that could not be followed, as sentences without full stops."""
    is_script: bool = False
    """True if the values are arguments of a script's command."""


def read_recipe(text: str) -> Assigned:
    """Return the assignments in a recipe function, in a script that changes a recipe, or in a list of overrides.

    If the text has several functions, only one is read. Functions with "pretrain" in their names are preferred, then
    the function with the most assignments, then the first one. If the function calls others, their assignments are
    included, unless the function assigns the same name itself.

    Raises:
        InvalidInput: The text is longer than a recipe can be.
    """
    require_short(text)
    try:
        body = parse(text).body
    except InvalidInput:
        return _of_script(text) or Assigned(values={path: _words(value) for path, value in _OVERRIDE.findall(text)})
    functions = functions_of(body)
    found = {name: dict(assignments(node)) for name, node in functions.items()}
    outside = dict(assigned([node for node in body if not isinstance(node, ast.FunctionDef)], {}))
    if not any(found.values()):
        return Assigned(values=outside)
    chosen = max(found, key=lambda name: ("pretrain" in name, len(found[name])))
    called = [name for name in functions if name != chosen and name in _called(functions[chosen])]
    for name in called:
        outside |= found[name]
    others = tuple(name for name, values in found.items() if values and name not in (chosen, *called))
    return Assigned(values=outside | found[chosen], function=chosen, others=others)


def _of_script(text: str) -> Assigned | None:
    """Return the overrides in a script's command.

    Return None if the text is not a script, or if its commands have no overrides.
    """
    try:
        script = read_script(text)
    except InvalidInput:
        return None
    found = [(dict(_overrides(command.words)), command) for command in script.commands]
    values, command = max(found, key=lambda one: (len(one[0]), one[1].is_certain), default=({}, None))
    if command is None or not any("." in path for path in values):
        return None
    for others, fragment in found:
        if others and "=" in fragment.words[0]:  # overrides on lines of their own, without a program
            values |= others
    return Assigned(values=values, remarks=tuple(unfollowed(command, script)), is_script=True)


def _overrides(words: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for word in words:
        found = re.fullmatch(r"[+~]{0,2}([A-Za-z_]\w*(?:\.\w+)*)=(.*)", word.strip("'\""), re.DOTALL)
        if found:
            yield found[1], _words(found[2])


def _called(function: ast.FunctionDef) -> set[str]:
    """Return the names of the functions that a function calls."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return {call.id for call in calls if isinstance(call, ast.Name)}


def _words(value: str) -> tuple[str, ...]:
    """Return a value as words; of a bracketed list, one word per item."""
    plain = value.strip("'\"")
    if plain.startswith("["):
        return tuple(word.strip(" '\"") for word in plain.strip("[]").split(",") if word.strip())
    return (plain,)


CORE_FIELDS = {
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
    "ddp_bucket_size": "bucket_size",
}
"""Fields of megatron-core's dataclasses whose names differ from Megatron-LM's namespace."""

_NUMERICS = ("bf16", "fp8", "fp8_recipe", "fp4", "fp4_recipe", "grad_reduce_in_fp32")
"""Names of settings that the registered precision decides."""

_STRATEGY = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "sequence_parallel"),
    *("expert_model_parallel_size", "expert_tensor_parallel_size", "virtual_pipeline_model_parallel_size"),
    *("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"),
    *("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "use_tp_pp_dp_mapping"),
)
"""Arguments of NeMo's MegatronStrategy."""

_DDP = (
    *("use_distributed_optimizer", "num_distributed_optimizer_instances", "use_megatron_fsdp", "bucket_size"),
    *("data_parallel_sharding_strategy", "overlap_grad_reduce", "overlap_param_gather"),
)
"""Fields of DistributedDataParallelConfig."""

_SCALED = {
    Fp8Recipe.DELAYED: "delayed_scaling",
    Fp8Recipe.TENSORWISE: "current_scaling",
    Fp8Recipe.BLOCKWISE: "subchannel_scaling",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """The sections in which a trainer's recipe has its fields."""

    format: ExportFormat
    version: str
    sections: Mapping[str | None, str]
    """Section of each field. The section under ``None`` has all other fields."""
    precision: str
    """Name of the field that holds the registered precision."""
    known: tuple[str, ...]
    """Paths by which a text in this format is recognised."""
    usage: str
    others: Mapping[str, str] = field(default_factory=dict)
    """Fields whose names differ from megatron-core's."""
    rules: tuple[Rule, ...] = ()
    """Rules for options that this format cannot express although megatron-core can."""

    def path(self, name: str) -> str:
        """Return the path ``section.field`` of a name in the namespace."""
        core = CORE_FIELDS.get(name, name)
        return f"{self.sections.get(core, self.sections[None])}.{self.others.get(core, core)}"

    def write(self, job: Job, layout: Layout) -> Export:
        """Return the layout as overrides.

        Recipes sum gradients in fp32, and free gathered parameters that they shard.
        """
        wide, sharded = layout.precision != Precision.FP32, layout.shard_level == ShardLevel.PARAMETERS
        as_run = replace(layout, fp32_gradient_reduce=wide, reshard_after_forward=sharded)
        return Export(
            format=self.format,
            layout=layout,
            version=self.version,
            arguments=tuple(self._written(layout_settings(job, as_run) | {"seq_length": job.workload.seq_len}, layout)),
            environment=environment(layout),
            left_to_trainer=(
                *left_at_default(layout),
                "the recipe decides the model, the optimizer, the data and the schedule of learning rates",
                "the registered precision decides the format in which gradients are summed: fp32",
            ),
            usage=self.usage,
        )

    def _written(self, settings: Written, layout: Layout) -> Iterator[str]:
        for name, value in settings.items():
            if name not in _NUMERICS and not (self.rules and name == "flash_attention_version"):
                yield f"{self.path(name)}={_said(name, value)}"
        if "use_distributed_optimizer" not in settings:
            yield f"{self.path('use_distributed_optimizer')}=false"  # recipes switch it on
        if "cpu_offloading_num_layers" in settings:
            yield f"{self.path('cpu_offloading')}=true"
        yield f"{self.precision}={_precision(layout)}"

    def read(self, text: str, num_ranks: int | None) -> Imported:
        """Return the layout that a recipe or its overrides describe.

        Raises:
            InvalidInput: The text assigns no field, or the value of a setting is not valid.
        """
        recipe = read_recipe(text)
        settings = _settings(recipe)
        if not settings:
            raise InvalidInput(
                "config",
                text[:60],
                f"does not set any field of a recipe of {self.format}, such as tensor_model_parallel_size",
            )
        reading = Reading(settings=Flags(settings), asked_ranks=num_ranks, version=self.version)
        reading.num_ranks = _num_ranks(reading, recipe.function)
        for remark in recipe.remarks:
            reading.ignored("script", remark)
        if recipe.others:
            names = ", ".join(recipe.others[:8])
            reading.ignored(recipe.function, f"only this one of several functions is read, not {names}")
        named = _model_name(recipe.function or text)
        known = model_called(named) if named else None
        found = read_layout(reading, self.format, known.num_layers if known else None)
        if recipe.is_script:
            spelled = {_mapped(path): f"{path}={','.join(words)}" for path, words in recipe.values.items()}
            reading.extend(unread(reading.settings, _COUNTED, spelled))
        return replace(found, model_name=known.name if known else named, notes=tuple(reading))


_FLASH_3 = refuse(
    "attention_kernel",
    lambda x, j: x.attention_kernel == AttentionKernel.FLASH_3,
    "the installed packages decide which FlashAttention NeMo calls, so flash is written",
    AttentionKernel.FLASH,
)

_BRIDGE = _Dialect(
    format=ExportFormat.MEGATRON_BRIDGE,
    version="0.6.0",
    sections={
        None: "model",
        "micro_batch_size": "train",
        "global_batch_size": "train",
        "ckpt_format": "checkpoint",
        "tp_comm_overlap": "comm_overlap",
        "use_tp_pp_dp_mapping": "dist",
        **dict.fromkeys(_DDP, "ddp"),
        **dict.fromkeys(OPTIMIZER_OFFLOAD, "optimizer"),
    },
    precision="mixed_precision",
    known=("cfg.model.", "model.tensor_model_parallel_size", "model.pipeline_model_parallel_size", "ConfigContainer"),
    usage="after the name of the recipe, as its overrides",
)

_NEMO = _Dialect(
    format=ExportFormat.NEMO,
    version="2.0",
    sections={
        None: "model.config",
        "micro_batch_size": "data",
        "global_batch_size": "data",
        "seq_length": "data",
        "ckpt_format": "trainer.strategy",
        **dict.fromkeys(_STRATEGY, "trainer.strategy"),
        **dict.fromkeys(_DDP, "trainer.strategy.ddp"),
        **dict.fromkeys(OPTIMIZER_OFFLOAD, "optim.config"),
    },
    precision="trainer.plugins",
    known=("trainer.strategy.", "MegatronStrategy", "nemo_run", "recipe.trainer", "nemo llm"),
    usage="nemo llm pretrain --factory RECIPE, followed by these",
    others={"ckpt_format": "save_ckpt_format"},
    rules=named({"nemo-names-no-flash-version": _FLASH_3}),
)


def _said(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if name == "cp_comm_type" and isinstance(value, tuple):
        return str(value[0])
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _precision(layout: Layout) -> str:
    """Return the registered word for the layout's precision."""
    if layout.precision == Precision.FP32:
        return "null"
    if layout.precision == Precision.NVFP4:
        return "bf16_with_nvfp4_mixed"
    if layout.precision == Precision.BF16:
        return "bf16_mixed"
    if layout.fp8_recipe == Fp8Recipe.MXFP8:
        return "bf16_with_mxfp8_mixed"
    return f"bf16_with_fp8_{_SCALED.get(layout.fp8_recipe, 'current_scaling')}_mixed"


_FROM_CORE = {core: name for name, core in CORE_FIELDS.items()} | {
    "num_moe_experts": "num_experts",
    "gated_linear_unit": "swiglu",
    "sequence_length": "seq_length",
    "tensor_parallelism": "tensor_model_parallel_size",  # arguments of NeMo's recipes
    "pipeline_parallelism": "pipeline_model_parallel_size",
    "virtual_pipeline_parallelism": "num_virtual_stages_per_pipeline_rank",
    "context_parallelism": "context_parallel_size",
    "sequence_parallelism": "sequence_parallel",
    "expert_parallelism": "expert_model_parallel_size",
    "devices": "num_gpus_per_node",
    "activations_checkpoint_granularity": "recompute_granularity",  # NeMo 1 (nlp/modules/common/megatron)
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
}
"""Names in the namespace, by the names of recipes' fields."""

_RECIPE_DEFAULTS = {"use_distributed_optimizer": ("true",), "overlap_grad_reduce": ("true",), "bf16": ("true",)}
"""Default values of settings in recipes."""


def _settings(assigned: Assigned) -> dict[str, tuple[str, ...]]:
    """Return the settings by their names in the namespace.

    The last part of a path names the field.
    """
    found: dict[str, tuple[str, ...]] = {}
    for path, words in assigned.values.items():
        name = path.rpartition(".")[2]
        if name in ("mixed_precision", "plugins", "precision"):
            found |= _of_precision(" ".join(words))
        elif words and words != ("null",):
            found[_mapped(path)] = words
    return _RECIPE_DEFAULTS | found if found else {}


_WORDS: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    ("mxfp8|_mx$", {"fp8": ("e4m3",), "fp8_recipe": ("mxfp8",)}),
    ("current|_cs$", {"fp8": ("hybrid",), "fp8_recipe": ("tensorwise",)}),
    ("subchannel|blockwise|_sc$", {"fp8": ("hybrid",), "fp8_recipe": ("blockwise",)}),
    ("nvfp4", {"fp4": ("e2m1",)}),
    ("fp8", {"fp8": ("hybrid",), "fp8_recipe": ("delayed",)}),
)
"""Settings of registered precisions, by a pattern of the precision's name. The first pattern that occurs counts."""


def _of_precision(word: str) -> dict[str, tuple[str, ...]]:
    name = word.lower().replace("-", "_")
    if name in ("null", "none", "", "fp32", "32", "32_true"):
        return {"bf16": ("false",)}
    settings = next((dict(found) for pattern, found in _WORDS if re.search(pattern, name)), {})
    if "16" in name and "bf16" not in name:
        settings |= {"fp16": ("true",), "bf16": ("false",)}
    return settings


def _mapped(path: str) -> str:
    name = path.rpartition(".")[2]
    return _FROM_CORE.get(name, name)


_COUNTED = frozenset((*_RECIPE_DEFAULTS, *_NUMERICS))
"""Settings that recipes switch on by default, and settings that a registered precision decides."""


def _num_ranks(reading: Reading, function: str) -> int | None:
    """Return the number of ranks.

    It is nodes times devices, or the number in the name of a Megatron-Bridge recipe (``_64gpu_``).
    """
    devices, nodes = reading.integer("num_gpus_per_node", 0), reading.integer("num_nodes", 0)
    named = re.search(r"_(\d{1,6})gpu_", function)
    return devices * nodes or (int(named[1]) if named else 0) or None


_NAMED = re.compile(
    r"(?:^|[^a-z0-9])((?:llama|qwen|mixtral|mistral|deepseek|gpt|nemotron|gemma|kimi|glm)[a-z0-9]*(?:_[a-z0-9]+){0,4}?)"
    r"(?:_(?:pretrain|sft|peft|recipe|config|perf)|[^a-z0-9_]|$)",
    re.IGNORECASE,
)
"""Pattern of a model's name inside a recipe's name: ``llama3_8b_pretrain_config``, ``--factory llama3_70b``."""

_SIZED = re.compile(r"\d+(?:x\d+)?[bm]", re.IGNORECASE)


def _model_name(text: str) -> str:
    """Return the first model name with a size that the text contains."""
    return next((found[1] for found in _NAMED.finditer(text) if _SIZED.search(found[1]) and len(found[1]) < 60), "")


_RECIPE_RULES = named(
    {
        "recipe-reshards": refuse(
            "reshard_after_forward",
            lambda x, j: keeps_parameters(x),
            "recipes shard parameters with Megatron-FSDP, which reshards them after each forward pass",
            True,
        ),
        "recipe-buckets-hold-elements": refuse(
            "gradient_bucket_bytes",
            lambda x, j: x.gradient_bucket_bytes % 4 != 0,
            "recipes sum gradients in fp32, and {x.gradient_bucket_bytes} bytes are not a multiple of 4",
            lambda x, j: max(1, x.gradient_bucket_bytes // 4) * 4,
        ),
    }
)


def _target(dialect: _Dialect) -> Target:
    return Target(
        format=dialect.format,
        version=dialect.version,
        rules=(*MEGATRON_RULES, *_RECIPE_RULES, *dialect.rules),
        decided_elsewhere=LAUNCHED | {"fp32_gradient_reduce"},
        write=dialect.write,
        read=dialect.read,
        recognises=lambda text: any(known in text for known in dialect.known),
    )


MEGATRON_BRIDGE = _target(_BRIDGE)
NEMO = _target(_NEMO)
