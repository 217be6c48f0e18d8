"""The laws of an accelerator's kernels, with the constants of kernels.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeAlias

from autotuner.catalog.measured import with_measured
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import NARROW_PRECISIONS, AttentionKernel, Precision
from autotuner.core.kernels import AttentionLaw, FusedPass, GemmLaw, KernelLaws, UnfusedAttention

__all__ = ["borrowed_attention", "borrowed_products", "kernels_for"]

_OPERAND_BYTES = {
    Precision.FP32: 4,
    Precision.BF16: 2,
    Precision.FP8: 1,
    Precision.FP8_EMULATED: 2,
    Precision.NVFP4: 0.5,
}


@lru_cache(maxsize=256)
def kernels_for(accelerator: Accelerator) -> KernelLaws:
    """The laws of that accelerator's kernels: its own peaks and bandwidth, the shares of the nearest measured device.

    The table names the nearest of the catalog's accelerators; one that a user describes takes the default of its kind.
    """
    device = _device(accelerator)
    gemm = {precision: _gemm_law(accelerator, precision, device) for precision in accelerator.precisions}
    attention = {p: _attention_law(gemm[_core_precision(p, accelerator)], device) for p in accelerator.precisions}
    return with_measured(KernelLaws(gemm=MappingProxyType(gemm), attention=MappingProxyType(attention)), accelerator)


def borrowed_products(accelerator: Accelerator, precision: Precision) -> str:
    """Whose the constants of its matrix products in that format are, where they were not measured on it; else empty."""
    name, owner = _owner(accelerator, "gemm_of")
    label = _measured_precision(precision, owner)
    if accelerator.name not in owner["accelerators"]:
        return f"as on {name}"
    if label != precision.label:
        return f"as in {label}"
    return _borrowed(owner["gemm"][label])


def borrowed_attention(accelerator: Accelerator, kernel: AttentionKernel) -> str:
    """Whose the constants of that kernel are, where they were not measured on it; else empty."""
    name, owner = _owner(accelerator, "attention_of")
    table = owner["attention"].get(kernel.label) or owner.get("like", {}).get(kernel.label)
    if table is None:
        return ""
    return _borrowed(table) if accelerator.name in owner["accelerators"] else f"as on {name}"


def _borrowed(table: Mapping[str, Any]) -> str:
    return str(_tables()["sources"][table["source"]].get("borrowed", ""))


def _device(accelerator: Accelerator) -> Mapping[str, Any]:
    """The table of the nearest measured device, with what it takes from others filled in."""
    _, device = _owner(accelerator)
    (_, products), (_, cores) = (_owner(accelerator, of) for of in ("gemm_of", "attention_of"))
    return {**device, "gemm": products["gemm"], "attention": cores["attention"], "like": cores.get("like", {})}


def _owner(accelerator: Accelerator, of: str = "") -> tuple[str, Mapping[str, Any]]:
    """Name and table of the nearest measured device, or of the one that it takes something from."""
    tables = _tables()
    name = tables["nearest"].get(accelerator.name, tables["default"][accelerator.kind])
    name = tables["device"][name].get(of, name)
    return name, tables["device"][name]


def _core_precision(precision: Precision, accelerator: Accelerator) -> Precision:
    """That of the attention core: training in fp8 or below keeps it in bf16 where the hardware has that."""
    keeps_bf16 = precision in NARROW_PRECISIONS and Precision.BF16 in accelerator.precisions
    return Precision.BF16 if keeps_bf16 else precision


def _gemm_law(accelerator: Accelerator, precision: Precision, device: Mapping[str, Any]) -> GemmLaw:
    """Formats that were not measured on the device take the constants of the next wider one that was."""
    fitted = device["gemm"][_measured_precision(precision, device)]
    recipes = _recipe_shares(accelerator) if precision in (Precision.FP8, Precision.NVFP4) else {}
    tiling = _tables()["tiling"][device["tiling"]]
    bandwidth = accelerator.memory_bandwidth_bytes_per_s * tiling["bandwidth_share"]
    return GemmLaw(
        peak_flop_per_s=accelerator.peak_flop_per_s(precision),
        peak_share=fitted["peak_share"] * (recipes["nvfp4_share"] if precision == Precision.NVFP4 else 1.0),
        memory_bandwidth_bytes_per_s=bandwidth,
        num_multiprocessors=_tables()["num_multiprocessors"].get(accelerator.name, device["num_multiprocessors"]),
        operand_bytes=_OPERAND_BYTES[precision],
        product_bytes=max(_OPERAND_BYTES[precision], 2),
        prologue=fitted["prologue"],
        wave_loss=fitted["wave_loss"],
        latency_s=fitted["latency_s"],
        tiles=tuple((rows, columns) for rows, columns in tiling["tiles"]),
        small_tile_share=fitted["small_tile_share"],
        splits=tuple(tiling["splits"]),
        unaligned_shares=tuple(tiling["unaligned_shares"]),
        sustained_share=accelerator.sustained_share_in(precision),
        promoted_share=recipes.get("promoted_share", 1.0),
        rowwise_share=recipes.get("rowwise_share", 1.0),
        blockwise_share=recipes.get("blockwise_share", 1.0),
        mxfp8_share=recipes.get("mxfp8_share", 1.0),
    )


def _measured_precision(precision: Precision, device: Mapping[str, Any]) -> str:
    wider = (precision.label, "fp8", "bf16") if precision == Precision.NVFP4 else (precision.label, "bf16")
    return next(label for label in wider if label in device["gemm"])


def _recipe_shares(accelerator: Accelerator) -> Mapping[str, Any]:
    """What recipes leave of the rate, by whether tensor cores apply the scales of blocks."""
    table: Mapping[str, Any] = _tables()["narrow"]["scaling" if accelerator.applies_block_scales else "promoting"]
    return table


def _attention_law(products: GemmLaw, device: Mapping[str, Any]) -> AttentionLaw:
    """Kernels that the device's table does not have as fused ones are unfused, or not there at all."""
    fused = {AttentionKernel.from_label(label): _fused(table) for label, table in device["attention"].items()}
    fused |= {AttentionKernel.from_label(label): _like(table, fused) for label, table in device["like"].items()}
    unfused = {AttentionKernel.from_label(label): _unfused(table) for label, table in _tables()["unfused"].items()}
    return AttentionLaw(
        products=products,
        fused=MappingProxyType(fused),
        unfused=MappingProxyType({kernel: law for kernel, law in unfused.items() if kernel not in fused}),
    )


_Passes: TypeAlias = tuple[FusedPass, FusedPass]
"""Forward and backward."""


def _fused(table: Mapping[str, Any]) -> _Passes:
    return FusedPass(**table["forward"]), FusedPass(**table["backward"])


def _like(table: Mapping[str, Any], fused: Mapping[AttentionKernel, _Passes]) -> _Passes:
    """A kernel that nobody fitted: another's passes, at a share of their rate."""
    forward, backward = fused[AttentionKernel.from_label(table["kernel"])]
    return _slower(forward, table["forward_share"]), _slower(backward, table["backward_share"])


def _slower(one_pass: FusedPass, share: float) -> FusedPass:
    return replace(
        one_pass,
        product_share=one_pass.product_share * share,
        softmax_flop_per_score=one_pass.softmax_flop_per_score / share,
    )


def _unfused(table: Mapping[str, Any]) -> UnfusedAttention:
    return UnfusedAttention(forward_bytes=table["forward_bytes"], backward_bytes=table["backward_bytes"])


@cache
def _tables() -> Mapping[str, Any]:
    text = files("autotuner.catalog").joinpath("kernels.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))
