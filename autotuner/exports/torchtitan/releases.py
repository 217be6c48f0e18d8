"""Torchtitan's releases, the settings of each release that set a field of a layout, and the known models and presets.

Names and defaults are those of ``torchtitan/config/job_config.py`` (torchtitan 0.2.2) and of
``torchtitan/config/configs.py`` (0.3.0). The names of schedules are those that ``get_schedule_class`` accepts (torch
2.13).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from autotuner.catalog.models import load_model
from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    ExportFormat,
    Fp8Recipe,
    OptimizerKernel,
    PipelineSchedule,
)
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.exports.shared.keys import Key, number, switch, words

SCHEDULES: Mapping[str, PipelineSchedule] = {
    "GPipe": PipelineSchedule.GPIPE,
    "1F1B": PipelineSchedule.ONE_F_ONE_B,
    "Interleaved1F1B": PipelineSchedule.INTERLEAVED_1F1B,
    "InterleavedZeroBubble": PipelineSchedule.ZERO_BUBBLE,
    "ZBVZeroBubble": PipelineSchedule.ZBV,
    "DualPipeV": PipelineSchedule.DUALPIPEV,
}

_OTHER_SCHEDULES = {
    "LoopedBFS": PipelineSchedule.INTERLEAVED_1F1B,
    "PipelineScheduleSingle": PipelineSchedule.ONE_F_ONE_B,
    "PipelineScheduleMulti": PipelineSchedule.INTERLEAVED_1F1B,
}
"""Schedules of torchtitan that a layout does not have, each with the nearest schedule that a layout has."""

_KERNELS = {
    "fused": OptimizerKernel.FUSED,
    "foreach": OptimizerKernel.FOREACH,
    "for-loop": OptimizerKernel.FOREACH,
    "fused_opt_states_bf16": OptimizerKernel.FUSED,
}
"""Optimizer kernels by torchtitan's name. The third and the fourth name stand for the nearest kernel, not for an equal
one."""


def _above_1(degree: str) -> Callable[[Layout], bool]:
    return lambda layout: getattr(layout, degree) > 1


_splits, _meets, _pipes = map(
    _above_1, ("tensor_parallel_degree", "context_parallel_degree", "pipeline_parallel_degree")
)


def _degree(name: str, default: int = 1) -> Key:
    return number(f"parallelism.{name}", name, when=lambda layout: True, default=default)


def _ends(which: str) -> Key:
    path = f"parallelism.pipeline_parallel_{which}_stage_less_layers"
    return number(path, f"{which}_stage_less_layers", when=_pipes, default=1)


_COMMON = (
    _degree("data_parallel_replicate_degree"),
    _degree("data_parallel_shard_degree", -1),  # all ranks that are left
    _degree("tensor_parallel_degree"),
    _degree("context_parallel_degree"),
    _degree("expert_parallel_degree"),
    _degree("pipeline_parallel_degree"),
    words(
        "parallelism.pipeline_parallel_schedule",
        "pipeline_schedule",
        {**SCHEDULES, **_OTHER_SCHEDULES},
        when=_pipes,
        default="1F1B",
    ),
    _ends("first"),
    _ends("last"),
    switch("compile.enable", "compiled", default=False),
    words("optimizer.implementation", "optimizer_kernel", _KERNELS, default="fused"),
)

KEYS_0_2: tuple[Key, ...] = (
    *_COMMON,
    words(
        "parallelism.disable_loss_parallel", "loss_parallel", {False: True, True: False}, when=_splits, default=False
    ),
    switch("parallelism.enable_async_tensor_parallel", "async_tensor_parallel", when=_splits, default=False),
    words(
        "parallelism.context_parallel_rotate_method",
        "context_exchange",
        # "alltoall" permutes keys and values to the next rank, which is a ring (torch 2.13, _AllToAllRotater of
        # distributed/tensor/experimental/_context_parallel/_attention.py); nothing exchanges heads for sequence
        {"alltoall": ContextExchange.RING, "allgather": ContextExchange.ALL_GATHER},
        when=_meets,
        default="allgather",
    ),
)

KEYS_0_3: tuple[Key, ...] = (
    *_COMMON,
    switch("parallelism.enable_sequence_parallel", "sequence_parallel", when=_splits, default=True),
    switch("compile.enable_async_tensor_parallel", "async_tensor_parallel", when=_splits, default=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of torchtitan, with the settings of its configuration that hold fields of a layout."""

    format: ExportFormat
    version: str
    keys: tuple[Key, ...]
    """Keys, each of which describes a setting that holds one field of a layout."""
    recipes: Mapping[int, str]
    """Names of the fp8 recipes for the release's float8 converter."""
    splits_every_sequence: bool
    """True if tensor ranks always split the sequence too."""
    by_flavor: bool
    """True if the flavor of a model decides its attention kernel; otherwise a separate setting does."""


RELEASE_0_2 = Release(
    format=ExportFormat.TORCHTITAN,
    version="0.2.2",
    keys=KEYS_0_2,
    recipes={Fp8Recipe.TENSORWISE: "tensorwise", Fp8Recipe.ROWWISE: "rowwise"},
    splits_every_sequence=True,  # models/llama3/infra/parallelize.py, apply_tp
    by_flavor=True,
)

RELEASE_0_3 = Release(
    format=ExportFormat.TORCHTITAN_CONFIG,
    version="0.3.0",
    keys=KEYS_0_3,
    recipes={Fp8Recipe.ROWWISE: "rowwise"},
    splits_every_sequence=False,
    by_flavor=False,
)


_NEAREST: Mapping[tuple[str, str], str] = {
    ("llama3", "1B"): "llama3_8b",
    ("llama3", "3B"): "llama3_8b",
    ("qwen3", "4B"): "qwen3_1_7b",
    ("qwen3", "8B"): "qwen3_14b",
    ("qwen3", "235B-A22B"): "qwen3_30b_a3b",
    ("deepseek_v3", "236B"): "deepseek_v3_16b",
}
"""Model flavors that no function creates, each with one that has the same vocabulary."""


@cache
def presets() -> Mapping[str, Mapping[str, object]]:
    """Return the settings of each preset of torchtitan (a function that returns a configuration), by function name.

    Settings for which a function keeps torchtitan's defaults are missing.
    """
    return tomllib.loads((files(__package__) / "presets.toml").read_text())


def preset(function: str) -> Mapping[str, object] | None:
    """Return the settings of a preset of torchtitan (a function that makes a configuration); None if unknown."""
    return presets().get(function)


def base_of(family: str, flavor: str) -> str | None:
    """Return the preset function of torchtitan from which an export for this model starts; None without one.

    It is a preset for this flavor of the model, or for a similar flavor.
    """
    for function, settings in presets().items():
        if (settings["model.name"], settings["model.flavor"]) == (family, flavor):
            return function
    return _NEAREST.get((family, flavor))


DEBUG_MODEL = ("llama3", "debugmodel")
"""Model that torchtitan 0.2.2 trains if the configuration names none (``config/job_config.py``)."""

_NAMES: Mapping[str, Mapping[str, str]] = {
    "llama3": {
        "1B": "llama-3.2-1b",
        "3B": "llama-3.2-3b",
        "8B": "llama-3.1-8b",
        "70B": "llama-3.1-70b",
        "405B": "llama-3.1-405b",
    },
    "llama4": {"17bx16e": "llama-4-scout", "17bx128e": "llama-4-maverick"},
    "qwen3": {
        "0.6B": "qwen3-0.6b",
        "1.7B": "qwen3-1.7b",
        "4B": "qwen3-4b",
        "8B": "qwen3-8b",
        "14B": "qwen3-14b",
        "32B": "qwen3-32b",
        "30B-A3B": "qwen3-30b-a3b",
        "235B-A22B": "qwen3-235b-a22b",
    },
    "deepseek_v3": {"16B": "deepseek-v2-lite", "236B": "deepseek-v2", "671B": "deepseek-v3"},
    "gpt_oss": {"20b": "gpt-oss-20b", "120b": "gpt-oss-120b"},
}
"""Catalog names of the models in ``models/FAMILY/__init__.py`` of torchtitan 0.2.2 and 0.3.0."""

_ONLY_IN: Mapping[str, frozenset[tuple[str, str]]] = {
    "0.2.2": frozenset({("llama4", "17bx16e"), ("llama4", "17bx128e")}),
    "0.3.0": frozenset({("llama3", "1B"), ("llama3", "3B")}),
}
"""Models that only one of the two releases has."""

PIPELINED_0_2 = frozenset({"llama3", "llama4", "deepseek_v3"})
"""Model families of 0.2.2 that have a ``pipelining_fn``. Other families cannot be split into stages."""

_FLEX = {DEBUG_MODEL: "debugmodel_flex_attn", ("llama3", "8B"): "8B_flex"}
"""Model flavors of 0.2.2 that exist a second time with FlexAttention."""

_FLEX_FAMILIES = frozenset({"deepseek_v3", "gpt_oss"})
"""Model families of 0.2.2 that use FlexAttention. The others use ``scaled_dot_product_attention``."""

_SUFFIXES: Mapping[str, AttentionKernel] = {
    "_flex": AttentionKernel.FLEX,
    "_flex_attn": AttentionKernel.FLEX,
    "_varlen": AttentionKernel.FLASH,  # FlashAttention's kernel for sequences of several lengths
    "_varlen_attn": AttentionKernel.FLASH,
}
"""Endings of a flavor's name that select an attention kernel (llama3 of 0.2.2)."""

_DEBUG = TransformerSpec(
    name="debugmodel",
    num_layers=6,
    hidden_size=256,
    num_heads=16,
    num_kv_heads=16,
    head_dim=16,
    ffn_size=768,
    vocab_size=2048,
)
"""llama3's flavor ``debugmodel`` in 0.2.2 and 0.3.0. Its feed-forward width is 8/3 of the width, rounded to a multiple
of 256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A model that torchtitan has registered. Its name consists of family and flavor, such as ``llama3`` and ``8B``."""

    family: str
    name: str

    def attending_by(self, kernel: AttentionKernel) -> str:
        """Return the name under which torchtitan 0.2.2 registers this flavor with an attention kernel.

        Only some flavors have a second name for FlexAttention. For all others, the name stays the same.
        """
        return _FLEX.get((self.family, self.name), self.name) if kernel == AttentionKernel.FLEX else self.name


@cache
def flavors(version: str) -> tuple[tuple[Flavor, TransformerSpec], ...]:
    """Return the models that a release of torchtitan registers and that the catalog also has, with their shapes."""
    elsewhere = frozenset().union(*(only for release, only in _ONLY_IN.items() if release != version))
    known = [
        (Flavor(family=family, name=name), load_model(model))
        for family, names in _NAMES.items()
        for name, model in names.items()
        if (family, name) not in elsewhere
    ]
    return (*known, (Flavor(family=DEBUG_MODEL[0], name=DEBUG_MODEL[1]), _DEBUG))


def flavor_of(model: TransformerSpec, version: str) -> Flavor | None:
    """Return the model registered in torchtitan that has the same shapes as ``model``; None if there is none.

    The names may differ.
    """
    return next((flavor for flavor, spec in flavors(version) if replace(spec, name=model.name) == model), None)


def spec_of(family: str, name: str, version: str) -> tuple[TransformerSpec | None, AttentionKernel | None]:
    """Return the shapes of a flavor of torchtitan, and the attention kernel that the flavor's name implies.

    Either of the two is None if it is unknown.
    """
    suffix = max((end for end in _SUFFIXES if name.endswith(end)), key=len, default="")
    plain = name.removesuffix(suffix)
    found = next((spec for flavor, spec in flavors(version) if (flavor.family, flavor.name) == (family, plain)), None)
    return found, _SUFFIXES.get(suffix, AttentionKernel.FLEX if family in _FLEX_FAMILIES else None)


def shapes(model: TransformerSpec) -> str:
    """Return the shapes of a model as one line of text, for a user who must register the model in torchtitan."""
    experts = model.experts
    sparse = f", {experts.num_experts} experts, {experts.experts_per_token} per token" if experts else ""
    return (
        f"dim {model.hidden_size}, n_layers {model.num_layers}, n_heads {model.num_heads}, n_kv_heads "
        f"{model.num_kv_heads}, inner width {model.ffn_size}, vocab_size {model.vocab_size}{sparse}"
    )
