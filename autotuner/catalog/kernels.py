"""The performance laws of an accelerator's kernels, with constants from kernels.toml or from a profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

from autotuner.catalog.facts import read_tables
from autotuner.catalog.hardware import accelerator_facts, is_as_catalogued, link_facts
from autotuner.core.accelerator import Accelerator, MeasuredAttention
from autotuner.core.choices import NARROW_PRECISIONS, AttentionKernel, Precision
from autotuner.core.cluster import Cluster
from autotuner.core.kernels import AttentionLaw, FusedPass, GemmLaw, KernelLaws, UnfusedAttention
from autotuner.core.value import value

_OPERAND_BYTES = {
    Precision.FP32: 4,
    Precision.BF16: 2,
    Precision.FP8: 1,
    Precision.FP8_EMULATED: 2,
    Precision.NVFP4: 0.5,
}

_RECIPES = ("promoted", "rowwise", "blockwise", "mxfp8")
"""Ways to scale fp8 values. Each reduces the rate of matrix products to a share."""

_Passes: TypeAlias = tuple[FusedPass, FusedPass]
"""Laws of the forward and the backward pass."""


@value
class BorrowedConstant:
    """A constant of predictions that was not measured on the predicted device or network."""

    constant: str
    """The constant: ``matrix products in fp8``, ``collectives over ndr400``."""
    origin: str
    """The place where it was measured, or the assumption behind it, in words: ``as on h100``, ``as in bf16``."""


_Borrowed: TypeAlias = Iterator[tuple[str, str]]
"""Constants, each with the device or network on which it was measured; empty if that is this one."""


@lru_cache(maxsize=256)
def kernels_for(accelerator: Accelerator) -> KernelLaws:
    """Return the performance laws (rates and overheads) of an accelerator's matrix products and attention kernels.

    Peaks and bandwidth are those of the accelerator itself. The shares of the peak that kernels reach come from a
    profile of this device if there is one, otherwise from the most similar measured device. For a catalog accelerator
    ``kernels.toml`` names the similar device. For a device that a user describes it is the default device of its kind.
    """
    device = _device(accelerator)
    shares = {measured.precision: measured.peak_share for measured in accelerator.measured_gemm}

    def measured(precision: Precision, law: GemmLaw) -> GemmLaw:
        return replace(law, peak_share=shares[precision]) if precision in shares else law

    gemm = {precision: _gemm_law(accelerator, precision, device) for precision in accelerator.precisions}
    attention = {
        precision: _attention_law(
            measured(precision, gemm[_core_precision(precision, accelerator)]),
            device,
            [one for one in accelerator.measured_attention if one.precision == precision],
        )
        for precision in accelerator.precisions
    }
    return KernelLaws(
        gemm=MappingProxyType({precision: measured(precision, law) for precision, law in gemm.items()}),
        attention=MappingProxyType(attention),
    )


def _tables() -> Mapping[str, Any]:
    return read_tables("kernels.toml")


def _device(accelerator: Accelerator) -> Mapping[str, Any]:
    """Return the table of the most similar measured device, including the parts that it takes from other devices."""
    _, device = _owner(accelerator)
    (_, products), (_, cores) = (_owner(accelerator, part) for part in ("gemm_of", "attention_of"))
    return {**device, "gemm": products["gemm"], "attention": cores["attention"], "like": cores.get("like", {})}


def _owner(accelerator: Accelerator, part: str = "") -> tuple[str, Mapping[str, Any]]:
    """Return the name and the table of the most similar measured device, or of the device that a part is taken from."""
    tables = _tables()
    name = tables["nearest"].get(accelerator.name, tables["default"][accelerator.kind])
    name = tables["device"][name].get(part, name)
    return name, tables["device"][name]


# ---------------------------------------------------------------- matrix products
def _gemm_law(accelerator: Accelerator, precision: Precision, device: Mapping[str, Any]) -> GemmLaw:
    """Return the law of matrix products in one number format.

    A format that was not measured takes the constants of the next wider measured format.
    """
    fitted = device["gemm"][_measured_precision(precision, device)]
    # the rate that remains with a recipe depends on whether tensor cores apply the scales of blocks
    scaling = _tables()["narrow"]["scaling" if accelerator.applies_block_scales else "promoting"]
    recipes = scaling if precision in (Precision.FP8, Precision.NVFP4) else {}
    tiling = _tables()["tiling"][device["tiling"]]
    return GemmLaw(
        peak_flop_per_s=accelerator.peak_flop_per_s(precision),
        peak_share=fitted["peak_share"] * (recipes["nvfp4_share"] if precision == Precision.NVFP4 else 1.0),
        memory_bandwidth_bytes_per_s=accelerator.streaming_bytes_per_s,
        num_multiprocessors=_tables()["num_multiprocessors"].get(accelerator.name, device["num_multiprocessors"]),
        operand_bytes=_OPERAND_BYTES[precision],
        product_bytes=max(_OPERAND_BYTES[precision], 2),
        tiles=tuple((rows, columns) for rows, columns in tiling["tiles"]),
        splits=tuple(tiling["splits"]),
        unaligned_shares=tuple(tiling["unaligned_shares"]),
        sustained_share=accelerator.sustained_share_in(precision),
        **{name: fitted[name] for name in ("prologue", "wave_loss", "latency_s", "small_tile_share")},
        **{f"{recipe}_share": recipes.get(f"{recipe}_share", 1.0) for recipe in _RECIPES},
    )


def _measured_precision(precision: Precision, device: Mapping[str, Any]) -> str:
    wider = (precision.label, "fp8", "bf16") if precision == Precision.NVFP4 else (precision.label, "bf16")
    return next(label for label in wider if label in device["gemm"])


# ---------------------------------------------------------------- attention
def _core_precision(precision: Precision, accelerator: Accelerator) -> Precision:
    """Return the number format of the attention core.

    Training in fp8 or fewer bits keeps the core in bf16 if the hardware has bf16.
    """
    keeps_bf16 = precision in NARROW_PRECISIONS and Precision.BF16 in accelerator.precisions
    return Precision.BF16 if keeps_bf16 else precision


def _attention_law(products: GemmLaw, device: Mapping[str, Any], measured: Iterable[MeasuredAttention]) -> AttentionLaw:
    """Return the law of attention in one number format.

    A kernel is unfused if the device's table has no fused law of it. A kernel that is in no table is missing.
    """
    fused: dict[AttentionKernel, _Passes] = {
        AttentionKernel.from_label(label): (FusedPass(**table["forward"]), FusedPass(**table["backward"]))
        for label, table in device["attention"].items()
    }
    fused |= {AttentionKernel.from_label(label): _like(table, fused) for label, table in device["like"].items()}
    unfused = {
        kernel: UnfusedAttention(forward_bytes=table["forward_bytes"], backward_bytes=table["backward_bytes"])
        for label, table in _tables()["unfused"].items()
        if (kernel := AttentionKernel.from_label(label)) not in fused
    }
    for one in measured:
        if one.kernel in fused:
            forward, backward = fused[one.kernel]
            fused[one.kernel] = _measured(forward, one.forward_share), _measured(backward, one.backward_share)
    return AttentionLaw(products=products, fused=MappingProxyType(fused), unfused=MappingProxyType(unfused))


def _like(table: Mapping[str, Any], fused: Mapping[AttentionKernel, _Passes]) -> _Passes:
    """Return the laws of a kernel that was not fitted: those of another kernel, at a share of its rate."""
    forward, backward = fused[AttentionKernel.from_label(table["kernel"])]
    return _slower(forward, table["forward_share"]), _slower(backward, table["backward_share"])


def _slower(one_pass: FusedPass, share: float) -> FusedPass:
    return replace(
        one_pass,
        product_share=one_pass.product_share * share,
        softmax_flop_per_score=one_pass.softmax_flop_per_score / share,
    )


def _measured(one_pass: FusedPass, share_of_all_pairs: float) -> FusedPass:
    """Return the law of a pass that has one share for products, exponentials and block overhead together.

    A profile measures only their total time.
    """
    share = share_of_all_pairs / 2 if one_pass.skips_masked else share_of_all_pairs
    return replace(one_pass, product_share=min(1.0, share), softmax_flop_per_score=0.0, overhead_keys=0.0)


# ---------------------------------------------------------------- constants that are borrowed
def borrowed_constants(
    cluster: Cluster, precisions: Iterable[Precision], kernels: Iterable[AttentionKernel]
) -> tuple[BorrowedConstant, ...]:
    """Return the constants in a prediction that were measured on another device or network than the predicted one.

    Args:
        cluster: The cluster of the prediction, with its device and links.
        precisions: Number formats of the matrix products of the predicted layouts.
        kernels: Attention kernels of the predicted layouts.
    """
    device = cluster.accelerator
    clock = accelerator_facts(device.name)["sustained_share"].borrowed if is_as_catalogued(device) else ""
    found = (
        *_borrowed_products(device, precisions),
        *_borrowed_attention(device, kernels),
        ("clock", clock),  # a device that a user described states its own clock
        *_borrowed_links(cluster),
    )
    return tuple(BorrowedConstant(constant=constant, origin=owner) for constant, owner in found if owner)


def borrowed_facts(
    cluster: Cluster, precisions: Iterable[Precision], kernels: Iterable[AttentionKernel]
) -> tuple[str, ...]:
    """Return the constants of ``borrowed_constants`` as texts, such as ``clock (assumed, as on H100)``."""
    return tuple(f"{one.constant} ({one.origin})" for one in borrowed_constants(cluster, precisions, kernels))


def _borrowed_products(device: Accelerator, precisions: Iterable[Precision]) -> _Borrowed:
    """Yield the number formats of matrix products, with the other device where their rate was measured.

    Formats that a profile of this device measured are left out.
    """
    name, owner = _owner(device, "gemm_of")
    profiled = {one.precision for one in device.measured_gemm}
    for precision in precisions:
        if precision not in profiled:
            label = _measured_precision(precision, owner)
            if device.name not in owner["accelerators"]:
                source = f"as on {name}"
            else:
                source = f"as in {label}" if label != precision.label else _source_owner(owner["gemm"][label])
            yield f"matrix products in {precision.label}", source


def _borrowed_attention(device: Accelerator, kernels: Iterable[AttentionKernel]) -> _Borrowed:
    name, owner = _owner(device, "attention_of")
    profiled = {one.kernel for one in device.measured_attention}
    for kernel in kernels:
        table = owner["attention"].get(kernel.label) or owner.get("like", {}).get(kernel.label)
        if kernel not in profiled and table is not None:
            is_own = device.name in owner["accelerators"]
            yield f"{kernel.label} attention", _source_owner(table) if is_own else f"as on {name}"


def _source_owner(table: Mapping[str, Any]) -> str:
    return str(_tables()["sources"][table["source"]].get("borrowed", ""))


def _borrowed_links(cluster: Cluster) -> _Borrowed:
    """Yield the catalog links that the job uses, each with the network where its constants were measured.

    A link that a user described has its own constants.
    """
    domain = cluster.accelerators_per_domain
    used = [cluster.intra_node_link] if domain > 1 else []
    for link in [*used, cluster.inter_node_link] if cluster.world_size > domain else used:
        owners = dict.fromkeys(fact.borrowed for fact in link_facts(link.name).values() if fact.borrowed)
        yield f"collectives over {link.name}", ", ".join(owners)
