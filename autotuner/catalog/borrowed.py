"""Constants that an answer uses and that were not measured on the device, or the network, that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotuner.catalog.kernels import borrowed_attention, borrowed_products
from autotuner.catalog.load import accelerator_facts, is_as_catalogued, link_facts
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.cluster import Cluster

__all__ = ["borrowed_facts"]


def borrowed_facts(
    cluster: Cluster, precisions: Iterable[Precision], kernels: Iterable[AttentionKernel]
) -> tuple[str, ...]:
    """What a prediction borrows, each with whose it is: ``clock (assumed, as on H100)``.

    Args:
        cluster: Whose device and links.
        precisions: Formats of the layouts' matrix products.
        kernels: Attention kernels of the layouts.
    """
    device = cluster.accelerator
    said = (*_products(device, precisions), *_attention(device, kernels), *_clock(device), *_links(cluster))
    return tuple(f"{what} ({whose})" for what, whose in said if whose)


_Said = Iterator[tuple[str, str]]
"""What, and whose it is; empty where it is the device's own."""


def _products(device: Accelerator, precisions: Iterable[Precision]) -> _Said:
    """Formats whose rate no profile of the very device measured."""
    profiled = {one.precision for one in device.measured_gemm}
    for precision in precisions:
        if precision not in profiled:
            yield f"matrix products in {precision.label}", borrowed_products(device, precision)


def _attention(device: Accelerator, kernels: Iterable[AttentionKernel]) -> _Said:
    profiled = {one.kernel for one in device.measured_attention}
    for kernel in kernels:
        if kernel not in profiled:
            yield f"{kernel.label} attention", borrowed_attention(device, kernel)


def _clock(device: Accelerator) -> _Said:
    """That of a device that a user describes is what the description says."""
    if is_as_catalogued(device):
        yield "clock", accelerator_facts(device.name)["sustained_share"].borrowed


def _links(cluster: Cluster) -> _Said:
    """Links that the job uses; one that a user describes is what the description says."""
    domain = cluster.accelerators_per_domain
    used = [cluster.intra_node_link] if domain > 1 else []
    for link in [*used, cluster.inter_node_link] if cluster.world_size > domain else used:
        whose = dict.fromkeys(fact.borrowed for fact in link_facts(link.name).values() if fact.borrowed)
        yield f"collectives over {link.name}", ", ".join(whose)
