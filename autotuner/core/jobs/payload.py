"""What one rank sends to the other replicas in a step, by the exchange that its layout chooses.

Formulas count bytes, not time; they hold for one layout and for numpy columns of them. ``trials.replication`` sends
just that, which a test counts. Source: the replicators of arXiv 2411.19870 and 2502.06728, and ring all-reduces.
"""

from __future__ import annotations

from autotuner.core.layouts.choice import GradientSync, PayloadPrecision
from autotuner.core.layouts.layout import Layout

__all__ = [
    "BYTE_INDEXED_CHUNK",
    "follows_signs",
    "index_bytes",
    "payload_bytes",
    "payload_elements",
    "sent_bytes",
    "steps_per_exchange",
]

BYTE_INDEXED_CHUNK = 256
"""Components of a chunk whose number fits into a byte; of larger ones two are sent."""


def follows_signs(x: Layout) -> bool:
    """Whether parameters follow the sign of what replicas exchanged, so that AdamW has nothing to remember."""
    keeps_momentum = (x.gradient_sync != GradientSync.FULL) & (x.gradient_sync != GradientSync.DILOCO)
    return keeps_momentum & (x.sync_sign != 0)


def steps_per_exchange(x: Layout) -> int:
    """Steps from one exchange between replicas to the next."""
    return 1 + (x.sync_period - 1) * (x.gradient_sync == GradientSync.DILOCO)


def index_bytes(x: Layout) -> int:
    """Bytes of the number of a component within its chunk."""
    return 1 + (x.sync_chunk > BYTE_INDEXED_CHUNK)


def payload_elements(x: Layout, num_elements: float) -> float:
    """Numbers that a rank contributes to an average step, of so many gradient elements that it holds."""
    of_demo = x.sync_top_k / x.sync_chunk * (x.gradient_sync == GradientSync.DEMO)
    sparse = (x.gradient_sync == GradientSync.RANDOM) | (x.gradient_sync == GradientSync.STRIDING)
    share = of_demo + sparse / x.sync_sparsity + (x.gradient_sync == GradientSync.DILOCO) / x.sync_period
    return num_elements * (share + (x.gradient_sync == GradientSync.FULL))


def payload_bytes(x: Layout, num_elements: float, element_bytes: float) -> float:
    """Bytes of these numbers, with the numbers of components that DeMo sends beside them.

    Args:
        x: The layout.
        num_elements: Gradient elements that a rank holds.
        element_bytes: Bytes of an element that a full exchange sends; lossy ones choose their own format.
    """
    is_lossy = x.gradient_sync != GradientSync.FULL
    chosen = 4 - 2 * (x.payload_precision == PayloadPrecision.BF16)
    value_bytes = element_bytes + (chosen - element_bytes) * is_lossy
    return payload_elements(x, num_elements) * (value_bytes + index_bytes(x) * (x.gradient_sync == GradientSync.DEMO))


def sent_bytes(x: Layout, num_elements: float, element_bytes: float) -> float:
    """Bytes that leave a rank in an average step: an all-gather of DeMo's choice, an all-reduce of all others.

    So DeMo sends more than a full exchange once ``replicas >= chunk / top_k`` where indices are as long as values.
    """
    replicas, payload = x.data_parallel_replicate_degree, payload_bytes(x, num_elements, element_bytes)
    gathers = x.gradient_sync == GradientSync.DEMO
    return payload * (replicas - 1) * (gathers + (gathers == 0) * 2 / replicas)
