"""Writes a layout as settings with the names of Megatron's namespace, and reads it back.

Names and defaults: megatron-core 0.16.1, model_parallel_config.py, distributed/distributed_data_parallel_config.py; the
data-parallel degree is computed from the other degrees (training/arguments.py, validate_args). The instances of the
distributed optimizer are groups of data-parallel and context ranks (parallel_state.py). Megatron-FSDP frees gathered
parameters after a module's forward pass (distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py); PyTorch's FSDP2 can keep
them; it does not support pipelines, experts and replicas (training/arguments.py, validate_args). Precision, kernels and
recomputation: transformer/transformer_config.py (its __post_init__ has the limits); transformer/enums.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from math import gcd, isclose, lcm
from typing import Any

from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    ExportFormat,
    Fp8Recipe,
    Precision,
    RankOrder,
    Recompute,
    ShardLevel,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.stages import layers_per_stage
from autotuner.exports.megatron.model_shapes import MOST_LAYERS, read_shapes
from autotuner.exports.megatron.pipeline_stages import read_pipeline, write_pipeline
from autotuner.exports.shared.keys import Reading, Written
from autotuner.exports.shared.target import Imported

_DEGREES = {
    "tensor_model_parallel_size": "tensor_parallel_degree",
    "pipeline_model_parallel_size": "pipeline_parallel_degree",
    "context_parallel_size": "context_parallel_degree",
    "expert_model_parallel_size": "expert_parallel_degree",
}

_EXCHANGES = {
    "p2p": ContextExchange.RING,  # the default
    "allgather": ContextExchange.ALL_GATHER,
    "a2a": ContextExchange.ALL_TO_ALL,
}


def _write_degrees(job: Job, layout: Layout) -> Written:
    """Return the settings for degrees, sequence parallelism, the exchange of context ranks and batch sizes."""
    written: Written = {name: getattr(layout, field) for name, field in _DEGREES.items()}
    if not job.model.experts:
        del written["expert_model_parallel_size"]
    else:
        if layout.expert_parallel_degree > 1 and layout.tensor_parallel_degree > 1:
            # 0.16.1's default is the tensor degree; software that gives ranks whole experts says 1
            written["expert_tensor_parallel_size"] = layout.tensor_parallel_degree if job.stack.splits_experts else 1
        written |= _dispatch(job, layout)
    if layout.sequence_parallel:
        written["sequence_parallel"] = True
    if layout.context_parallel_degree > 1:
        word = next(word for word, exchange in _EXCHANGES.items() if exchange == layout.context_exchange)
        written["cp_comm_type"] = (word,)
    return written | {"micro_batch_size": layout.micro_batch_size, "global_batch_size": job.workload.global_batch_size}


def _dispatch(job: Job, layout: Layout) -> Written:
    """Return the settings for the dispatch of tokens to experts, as the stack does it.

    DeepEP needs several ranks (moe/token_dispatcher.py).
    """
    if job.stack.dispatch == "all_gather":
        return {"moe_token_dispatcher_type": "allgather"}
    if job.stack.dispatch == "all_to_all" or layout.tensor_parallel_degree * layout.expert_parallel_degree == 1:
        return {"moe_token_dispatcher_type": "alltoall"}
    return {"moe_token_dispatcher_type": "flex", "moe_enable_deepep": True}


def _read_degrees(reading: Reading) -> Layout:
    """Return a layout with the degrees of the settings. All remaining data-parallel ranks are replicas."""
    fields: dict[str, Any] = {field: reading.integer(name) for name, field in _DEGREES.items()}
    layout = Layout(**fields)
    data, micro_batch_size = _data_degree(reading, layout), reading.integer("micro_batch_size")
    splits = reading.on("sequence_parallel")
    if splits and layout.tensor_parallel_degree == 1:
        reading.changed("sequence_parallel", "Megatron turns it off, because there is one tensor rank")
    return replace(
        layout,
        data_parallel_replicate_degree=data,
        micro_batch_size=micro_batch_size,
        sequence_parallel=splits and layout.tensor_parallel_degree > 1,
        context_exchange=_exchange(reading) if layout.context_parallel_degree > 1 else ContextExchange.RING,
    )


def _exchange(reading: Reading) -> ContextExchange:
    words = reading.settings.words("cp_comm_type") or ("p2p",)
    word = words[0].lower()
    if len(set(words)) > 1:
        reading.changed("cp_comm_type", f"layers differ, but a layout has one exchange for all layers: {word}")
    if word == "a2a+p2p":
        reading.changed("cp_comm_type", "a2a inside groups and p2p between groups is read as a ring")
        return ContextExchange.RING
    return reading.meant("cp_comm_type", word, _EXCHANGES, ", a2a+p2p", "p2p")


def _data_degree(reading: Reading, layout: Layout) -> int:
    """Return the data-parallel degree from the number of ranks that the caller or the text gives.

    Without that number, it is the smallest degree that the other settings allow.
    """
    tensor, context = layout.tensor_parallel_degree, layout.context_parallel_degree
    expert_tensor = reading.integer("expert_tensor_parallel_size", tensor)
    if expert_tensor not in (1, tensor):
        reading.changed(
            "expert_tensor_parallel_size", f"a layout splits an expert over all {tensor} tensor ranks, or over none"
        )
    expert_ranks, instances = (
        layout.expert_parallel_degree * expert_tensor,
        reading.integer("num_distributed_optimizer_instances"),
    )
    least = lcm(expert_ranks // gcd(expert_ranks, context * tensor), instances // gcd(instances, context))
    replica = tensor * layout.pipeline_parallel_degree * context
    fewest, asked, said = replica * least, reading.asked_ranks, reading.num_ranks
    if asked is not None:
        if asked < 1 or asked % fewest:
            rule = (
                f"must be a multiple of {fewest}: one copy of the model needs {replica} ranks, and this configuration "
                f"needs at least {least} ranks"
            )
            raise InvalidInput("num_ranks", asked, rule, max(1, round(asked / fewest)) * fewest)
        return asked // replica
    if said is None:
        reading.assumed(
            "world_size", f"the number of ranks is not given; {fewest}, the smallest possible number, is assumed"
        )
    elif said % fewest:
        reading.num_ranks = None
        reading.changed(
            "world_size", f"{said} ranks cannot run this; {fewest}, the smallest possible number, is assumed"
        )
    else:
        return said // replica
    return least


# ---------------------------------------------------------------- sharding
_STRATEGIES = {
    "no_shard": ShardLevel.NONE,
    "optim": ShardLevel.OPTIMIZER,
    "optim_grads": ShardLevel.GRADIENTS,
    "optim_grads_params": ShardLevel.PARAMETERS,
}

_FSDP = (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)

_DEFAULT_STRATEGY = {"0.19": "optim_grads_params"}
"""Default sharding strategy of Megatron-FSDP by release; ``no_shard`` in earlier releases (training/arguments.py,
0.16.1 and 0.19.0)."""

_TORCH_FSDP: Written = {
    "use_torch_fsdp2": True,
    "torch_fsdp2_reshard_after_forward": False,
    "gradient_accumulation_fusion": False,  # Megatron refuses it with FSDP2
}
"""Settings for PyTorch's FSDP2, which can keep gathered parameters between the passes. It overlaps communication by
itself."""


def gradient_element_bytes(x: Layout, job: Job) -> int:
    """Return the bytes of one gradient element while it is reduced: 2, or 4 if gradients are summed in fp32.

    ``x`` is one layout, or a table of layouts. For a table, the result has one value per layout.
    """
    return 2 + 2 * ((x.precision == Precision.FP32) | _sums_wide(x, job))


def _sums_wide(x: Layout, job: Job) -> bool:
    """Return True if gradients are summed in fp32, because the layout or the stack does so."""
    return (x.fp32_gradient_reduce != 0) | job.stack.sums_gradients_in_fp32


def _write_sharding(job: Job, layout: Layout) -> Written:
    """Return the settings for sharding, overlaps, buckets and the format of gradient sums."""
    if layout.data_parallel_degree * layout.context_parallel_degree == 1:
        return {}
    sums: Written = {} if layout.precision == Precision.FP32 else {"grad_reduce_in_fp32": _sums_wide(layout, job)}
    if layout.shard_level == ShardLevel.PARAMETERS and not layout.reshard_after_forward:
        return _TORCH_FSDP | sums
    written: Written = {}
    if layout.shard_level != ShardLevel.NONE:
        written["use_distributed_optimizer"] = True
        if layout.data_parallel_replicate_degree > 1:
            written["num_distributed_optimizer_instances"] = layout.data_parallel_replicate_degree
    if layout.shard_level in _FSDP:
        strategy = next(word for word, level in _STRATEGIES.items() if level == layout.shard_level)
        written |= {
            "use_megatron_fsdp": True,
            "data_parallel_sharding_strategy": strategy,
            "gradient_accumulation_fusion": False,  # needs a Transformer Engine that knows FSDP
            "ckpt_format": "fsdp_dtensor",  # the only value that Megatron accepts
        }
    written["overlap_grad_reduce"] = True  # buckets have no effect without overlap
    if layout.shard_level != ShardLevel.NONE:
        written["overlap_param_gather"] = True
    if layout.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES:
        written["ddp_bucket_size"] = max(1, layout.gradient_bucket_bytes // gradient_element_bytes(layout, job))
    return written | sums


def _read_sharding(reading: Reading, layout: Layout) -> Layout:
    """Return the layout with the sharding of the settings. Without a second rank, nothing is sharded."""
    level, reshards = _level(reading)
    data = layout.data_parallel_degree
    if data * layout.context_parallel_degree == 1:
        if level != ShardLevel.NONE:
            reading.changed("use_distributed_optimizer", "one rank has no other rank to shard with")
        return layout
    replicas = data if level == ShardLevel.NONE else _replicas(reading, data)
    layout = replace(
        layout,
        shard_level=level,
        reshard_after_forward=reshards,
        data_parallel_replicate_degree=replicas,
        data_parallel_shard_degree=data // replicas,
        fp32_gradient_reduce=layout.precision != Precision.FP32 and _sums_in_fp32(reading),
    )
    return layout if level in _FSDP else _with_bucket(reading, layout)


def _level(reading: Reading) -> tuple[ShardLevel, bool]:
    """Return the shard level, and True if gathered parameters are freed between the passes."""
    if reading.on("use_torch_fsdp2"):
        return ShardLevel.PARAMETERS, reading.on("torch_fsdp2_reshard_after_forward", True)
    if reading.on("use_megatron_fsdp") or reading.on("use_custom_fsdp"):
        level = _strategy(reading)
        if level != ShardLevel.NONE or not reading.on("use_distributed_optimizer"):
            return level, level == ShardLevel.PARAMETERS
    return (ShardLevel.OPTIMIZER if reading.on("use_distributed_optimizer") else ShardLevel.NONE), False


def _strategy(reading: Reading) -> ShardLevel:
    name = "data_parallel_sharding_strategy"
    word = reading.word(name)
    if not word:
        word = next((w for v, w in _DEFAULT_STRATEGY.items() if reading.version.startswith(v)), "no_shard")
        reading.assumed(name, f"the default of {reading.version or '0.16.1'} is {word}")
    level = reading.meant(name, word, _STRATEGIES)
    if reading.word("outer_dp_sharding_strategy", "no_shard") != "no_shard":
        reading.changed("outer_dp_sharding_strategy", "replicas of a layout do not share optimizer states")
    return level


def _replicas(reading: Reading, data: int) -> int:
    instances = reading.integer("num_distributed_optimizer_instances")
    replicas = gcd(instances, data)
    if replicas != instances:
        reading.changed(
            "num_distributed_optimizer_instances", f"context ranks always shard, so {replicas} replicas are read"
        )
    return replicas


def _sums_in_fp32(reading: Reading) -> bool:
    """Return True if gradients are summed in fp32.

    This is the default with bf16 but not with fp16 (training/arguments.py, validate_args).
    """
    said = reading.settings.switch("grad_reduce_in_fp32")
    if said is None:
        by_default = not reading.on("fp16")
        said = reading.on("accumulate_allreduce_grads_in_fp32", by_default) and not reading.on("grad_reduce_in_bf16")
        if "accumulate_allreduce_grads_in_fp32" not in reading.settings and said:
            reading.assumed("accumulate_allreduce_grads_in_fp32", "with bf16 Megatron sums gradients in fp32")
    if reading.on("grad_reduce_in_bf16"):
        detail = (
            "predictions for Megatron's software assume gradients that are summed in fp32, so they count two bytes "
            "per parameter too many for this configuration"
        )
        reading.changed("grad_reduce_in_bf16", detail)
    return said


def _with_bucket(reading: Reading, layout: Layout) -> Layout:
    elements = reading.settings.integer("ddp_bucket_size")
    if elements is None or elements < 1:
        own = max(40_000_000, 1_000_000 * layout.data_parallel_degree)  # distributed/distributed_data_parallel.py
        reading.assumed(
            "ddp_bucket_size",
            f"Megatron's default is {own:,} elements; the layout keeps the default bucket size of layouts",
        )
        return layout
    if not reading.on("overlap_grad_reduce"):
        reading.changed("ddp_bucket_size", "without overlap_grad_reduce Megatron reduces all gradients at once")
    is_wide = layout.precision == Precision.FP32 or layout.fp32_gradient_reduce
    return replace(layout, gradient_bucket_bytes=elements * (4 if is_wide else 2))


# ---------------------------------------------------------------- precision, kernels, recomputation
RECIPES = {
    "delayed": Fp8Recipe.DELAYED,  # the default
    "tensorwise": Fp8Recipe.TENSORWISE,
    "blockwise": Fp8Recipe.BLOCKWISE,
    "mxfp8": Fp8Recipe.MXFP8,
}

BACKENDS = {"flash": AttentionKernel.FLASH, "fused": AttentionKernel.CUDNN, "unfused": AttentionKernel.MATH}
"""Attention kernels by Megatron's backend name. ``auto`` lets Transformer Engine choose, and ``local`` is Megatron's
own module with its fused softmax.

Until release 0.19, the installed package decides which FlashAttention ``flash`` is; from then on,
``flash_attention_version`` does.
"""


def _write_numerics(layout: Layout) -> Written:
    """Return the settings for precision, fp8 recipe and attention backend."""
    written: Written = {} if layout.precision == Precision.FP32 else {"bf16": True}
    if layout.precision in (Precision.FP8, Precision.FP8_EMULATED):
        recipe = next((word for word, one in RECIPES.items() if one == layout.fp8_recipe), "tensorwise")
        written |= {"fp8": "hybrid", "fp8_recipe": recipe}
    if layout.precision == Precision.NVFP4:
        written |= {"fp4": "e2m1", "fp4_recipe": "nvfp4"}
    nearest = "unfused" if layout.attention_kernel == AttentionKernel.FUSED_SOFTMAX else "flash"
    backends = (word for word, kernel in BACKENDS.items() if kernel == layout.attention_kernel)
    written["attention_backend"] = next(backends, nearest)
    return written | ({"flash_attention_version": 3} if layout.attention_kernel == AttentionKernel.FLASH_3 else {})


def _read_numerics(reading: Reading, layout: Layout) -> Layout:
    """Return the layout with the number formats and kernels of the settings."""
    precision, kernel = _precision(reading), _attention(reading)
    if precision != Precision.FP8:
        return replace(layout, precision=precision, attention_kernel=kernel)
    recipe = reading.word("fp8_recipe")
    if not recipe:
        reading.assumed("fp8_recipe", "Megatron's default is delayed")
        recipe = "delayed"
    if recipe == "custom":
        reading.changed("fp8_recipe", "a custom recipe is read as tensorwise")
        recipe = "tensorwise"
    scaled = reading.meant("fp8_recipe", recipe, RECIPES, ", custom")
    return replace(layout, precision=precision, attention_kernel=kernel, fp8_recipe=scaled)


def _precision(reading: Reading) -> Precision:
    if reading.on("fp16"):
        reading.changed("fp16", "is read as bf16, which has the same rates and sizes")
    if reading.word("fp4", "none") != "none":
        return Precision.NVFP4
    if reading.word("fp8", "none") != "none":
        return Precision.FP8
    return Precision.BF16 if reading.on("bf16") or reading.on("fp16") else Precision.FP32


def _attention(reading: Reading) -> AttentionKernel:
    word = reading.word("attention_backend", "auto").removeprefix("attnbackend.")
    version = reading.word("flash_attention_version")
    if word == "flash" and version in ("3", "4"):
        return AttentionKernel.FLASH_3
    if word == "local":
        return AttentionKernel.FUSED_SOFTMAX if reading.on("masked_softmax_fusion", True) else AttentionKernel.MATH
    if word == "auto":
        if not reading.on("use_flash_attn"):
            reading.assumed("attention_backend", "Transformer Engine chooses the kernel; FlashAttention is assumed")
        return AttentionKernel.FLASH
    return reading.meant("attention_backend", word, BACKENDS, ", local, auto", "flash")


MODULES = (*("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"),)
"""Words that ``recompute_modules`` accepts. A stack states which of them its selective recomputation uses."""

_DEFAULT_MODULES = ("core_attn",)


OPTIMIZER_OFFLOAD = ("optimizer_cpu_offload", "optimizer_offload_fraction", "use_precision_aware_optimizer")
"""Fields of OptimizerConfig (optimizer/optimizer_config.py). Megatron requires the third together with the first."""


def _write_recompute(job: Job, layout: Layout) -> Written:
    """Return the settings for recomputation and offloading."""
    written: Written = {}
    if layout.recompute == Recompute.SELECTIVE:
        modules = tuple(policy.value for policy in job.stack.selective_recompute if policy.value in MODULES)
        written = {"recompute_granularity": "selective", "recompute_modules": modules or _DEFAULT_MODULES}
    elif layout.recompute == Recompute.FULL:
        every = layout.recompute_every
        num_layers = 1 if every == 1 else -(-max(1, layers_per_stage(layout, job.model.num_layers)) // every)
        method = "uniform" if every == 1 else "block"
        written = {"recompute_granularity": "full", "recompute_method": method, "recompute_num_layers": num_layers}
    if layout.offload_activations:
        written["cpu_offloading_num_layers"] = max(1, job.model.num_layers - 1)  # Megatron refuses all of them together
    if layout.optimizer_offload_percent:
        fraction = layout.optimizer_offload_percent / 100
        written |= dict(zip(OPTIMIZER_OFFLOAD, (True, fraction, True), strict=True))
    return written


def _read_recompute(reading: Reading, layout: Layout, layers_of_stage: int | None) -> Layout:
    """Return the layout with the recomputation of the settings.

    ``layers_of_stage`` is the number of layers of a middle stage, if it is known.
    """
    recompute, every = _recomputed(reading, layers_of_stage)
    offloads = True
    if reading.integer("cpu_offloading_num_layers", 0) or reading.on("cpu_offloading"):
        reading.changed("cpu_offloading", "a layout offloads the activations of all layers")
    elif reading.on("fine_grained_activation_offloading"):
        reading.changed(
            "fine_grained_activation_offloading",
            "a layout offloads all activations of a layer, not those of single modules",
        )
    else:
        offloads = False
    return replace(
        layout,
        recompute=recompute,
        recompute_every=every,
        offload_activations=offloads,
        optimizer_offload_percent=_optimizer_offload(reading),
    )


def _optimizer_offload(reading: Reading) -> int:
    """Return the percentage of the optimizer that is offloaded to the host."""
    switch, share, aware = OPTIMIZER_OFFLOAD
    if not reading.on(switch):
        return 0
    reading.on(aware)
    fraction = reading.settings.number(share)
    if fraction is None:
        reading.assumed(share, "Megatron-LM's default is 100 %")
        return 100
    if not 0 <= fraction <= 1:
        raise InvalidInput(share, fraction, "must be a share from 0 to 1", min(max(fraction, 0.0), 1.0))
    percent = round(100 * fraction)
    if not isclose(percent, 100 * fraction, abs_tol=1e-6):
        reading.changed(share, f"a layout has whole percentages only: {percent}")
    return percent


def _recomputed(reading: Reading, layers_of_stage: int | None) -> tuple[Recompute, int]:
    granularity = reading.word("recompute_granularity")
    if reading.on("recompute_activations"):
        granularity = "selective"
    elif not granularity and reading.on("checkpoint_activations"):  # before core 0.1
        granularity = "full"
    if granularity in ("", "none"):
        return Recompute.NONE, 1
    if granularity not in ("full", "selective"):
        near = get_close_matches(granularity, ("full", "selective"), 1)
        raise InvalidInput("recompute_granularity", granularity, "must be full or selective", *near)
    if granularity == "full":
        return Recompute.FULL, _every(reading, layers_of_stage)
    modules = reading.settings.words("recompute_modules") or _DEFAULT_MODULES
    if modules != _DEFAULT_MODULES:
        reading.changed("recompute_modules", f"the software stack decides which of {', '.join(modules)} run again")
    return Recompute.SELECTIVE, 1


def _every(reading: Reading, layers: int | None) -> int:
    """Return the interval of recomputed layers.

    It gives as many recomputed layers as Megatron's block method has in each stage.
    """
    num_layers, method = reading.integer("recompute_num_layers"), reading.word("recompute_method", "uniform")
    if method != "block":
        if num_layers > 1:
            detail = f"{num_layers} layers are recomputed together, but in a layout each layer keeps its input"
            reading.changed("recompute_num_layers", detail)
        return 1
    if layers is None:
        reading.changed(
            "recompute_method",
            f"{num_layers} layers of each stage are recomputed, but the size of a stage is not known: "
            "all layers are assumed",
        )
    if layers is None or num_layers >= layers:
        return 1
    every = min(range(1, layers + 1), key=lambda n: (abs(-(-layers // n) - num_layers), n))
    change = f"the first {num_layers} of {layers} layers are read as {-(-layers // every)} layers, one in {every}"
    reading.changed("recompute_method", change)
    return every


# ---------------------------------------------------------------- all parts
def layout_settings(job: Job, layout: Layout) -> Written:
    """Return Megatron's settings for a layout: degrees, pipeline, sharding, recomputation and number formats.

    The settings of the model are not included; ``write_shapes`` returns them.
    """
    written = _write_degrees(job, layout) | write_pipeline(job, layout) | _write_sharding(job, layout)
    written |= _write_recompute(job, layout) | _write_numerics(layout)
    return written | ({"tp_comm_overlap": True} if layout.async_tensor_parallel else {})


def environment(layout: Layout) -> dict[str, str]:
    """Return the environment variables that Megatron needs for the layout.

    They include ``CUDA_DEVICE_MAX_CONNECTIONS``. With one connection, the device runs kernels in the order in which
    they are launched, so that collectives of tensor and context ranks overlap with computation. Megatron requires this
    before Blackwell. FSDP requires more than one connection; 8 is CUDA's default. Source: training/arguments.py of
    core_v0.16.1, validate_args.
    """
    connections = ""
    if layout.shard_level in (ShardLevel.GRADIENTS, ShardLevel.PARAMETERS):
        connections = "8"
    elif layout.tensor_parallel_degree * layout.context_parallel_degree > 1:
        connections = "1"
    return ({"CUDA_DEVICE_MAX_CONNECTIONS": connections} if connections else {}) | collective_environment(layout)


def left_at_default(layout: Layout) -> Iterator[str]:
    """Yield sentences, without full stops, on settings of Megatron that no field of a layout can change."""
    several = layout.data_parallel_degree * layout.context_parallel_degree > 1
    if several and layout.gradient_bucket_bytes == DEFAULT_BUCKET_BYTES:
        yield (
            "gradient buckets have Megatron's default size, 40,000,000 elements or 1,000,000 for each "
            "data-parallel rank"
        )
    if layout.recompute == Recompute.SELECTIVE:
        yield "selective recomputation recomputes the modules of the software stack"
    if layout.offload_activations:
        yield ("one layer keeps its activations on the device, because Megatron refuses to offload all layers")
    order = "tp-cp-ep-pp-dp" if layout.rank_order == RankOrder.REPLICAS_OUTERMOST else "tp-cp-ep-dp-pp"
    yield f"overlaps of gradient reductions and parameter gathers are on; rank order is {order}"


def read_layout(reading: Reading, wanted: ExportFormat, num_layers: int | None = None) -> Imported:
    """Return the layout that Megatron's settings describe, with the notes on how each setting was treated.

    Args:
        reading: Settings by the names of Megatron's argument namespace.
        wanted: The format that the settings came from: Megatron-LM, Megatron-Bridge or NeMo.
        num_layers: The number of layers of the model that a recipe names. It is used if the settings have no number of
            layers.

    Raises:
        InvalidInput: A setting has an invalid value, or settings contradict each other.
    """
    model = read_shapes(reading)
    layout = _read_sharding(reading, _read_numerics(reading, _read_degrees(reading)))
    num_layers = (model.num_layers if model else reading.integer("num_layers", 0, most=MOST_LAYERS)) or num_layers
    layout = read_pipeline(reading, layout, num_layers)
    layout = _read_recompute(reading, layout, layers_per_stage(layout, num_layers) if num_layers else None)
    if reading.on("use_tp_pp_dp_mapping") and 1 not in (layout.pipeline_parallel_degree, layout.data_parallel_degree):
        if layout.data_parallel_shard_degree == 1:
            layout = replace(layout, rank_order=RankOrder.REPLICAS_OUTERMOST)
        else:
            detail = (
                "a layout keeps the ranks that shard with each other inside one stage, so the configuration is read "
                "with the usual order of ranks"
            )
            reading.changed("use_tp_pp_dp_mapping", detail)
    overlaps = reading.on("tp_comm_overlap") and layout.sequence_parallel
    layout = replace(layout, async_tensor_parallel=overlaps)
    batch = reading.integer("global_batch_size", 0) or None
    if batch is None:
        batch = layout.micro_batch_size * layout.data_parallel_degree
        reading.assumed("global_batch_size", f"one micro-batch on each data-parallel rank is assumed: {batch}")
    return Imported(
        format=wanted,
        layout=layout,
        version=reading.version,
        num_ranks=reading.asked_ranks or reading.num_ranks,
        model=model,
        seq_len=reading.integer("seq_length", 0) or reading.integer("encoder_seq_length", 0) or None,
        global_batch_size=batch,
        notes=tuple(reading),
    )
