"""Which argument of the ``transformers`` Trainer holds which field of a layout.

Source of names and defaults: transformers 5.23.0, ``training_args.py``. Its ``activation_checkpointing`` is called as
older releases call it, which this one reads too.
"""

from __future__ import annotations

import json

from autotuner.core.choices import OptimizerKernel, Precision, Recompute, ShardLevel
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.units import MIB
from autotuner.export.huggingface.backend import Backend, backend_of
from autotuner.export.keys import Key, count, number_of, words


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
