"""Details of lossy exchanges that a sweep tries where its space names the exchanges and not their details."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.core.layouts.choice import GradientSync, PayloadPrecision

__all__ = ["exchange_ladder"]

Values = tuple[int, ...]

_OF_ELEMENTS = (GradientSync.RANDOM, GradientSync.STRIDING)
_OF_MOMENTUM = (GradientSync.DEMO, *_OF_ELEMENTS)
_LOSSY = (*_OF_MOMENTUM, GradientSync.DILOCO)

_RUNGS: Mapping[str, tuple[tuple[GradientSync, ...], Values]] = {
    "sync_top_k": ((GradientSync.DEMO,), (2, 4, 8)),
    "sync_sparsity": (_OF_ELEMENTS, (4, 16)),
    "sync_period": ((GradientSync.DILOCO,), (4, 16, 64)),
    "sync_sign": (_OF_MOMENTUM, (True, False)),
    "payload_precision": (_LOSSY, tuple(PayloadPrecision)),
}
"""Which exchanges a detail is of, and what is tried of it: 2 to 8 of 64 components (arXiv 2411.19870 sends 1 to 32,
arXiv 2502.06728 sends 4), one element of 4 and 16 (arXiv 2502.06728 tries 2 to 32), 4 to 64 steps (arXiv 2311.08105
averages every 50 to 2,000 in runs a thousand times as long). Few, since each is crossed with all layouts: what sends
least is fastest and comes first, and what its gate rejects takes all with it that send less."""


def exchange_ladder(named: Mapping[str, Values | None]) -> dict[str, Values]:
    """Values of every detail that the named exchanges have and nobody named.

    Args:
        named: The axes of the space that somebody named.
    """
    exchanges = named.get("gradient_sync") or ()
    return {
        detail: values
        for detail, (of, values) in _RUNGS.items()
        if detail not in named and any(exchange in of for exchange in exchanges)
    }
