"""Fits the constants of catalog/kernels.toml's fused attention kernels to tests/published/attention_throughput.csv.

``python -m research.fit_attention`` prints, for each device and kernel, the constants and the relative error on the
rows they were fitted to and on left-out panels of the papers' figures. Needs SciPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from autotuner.core.choices import AttentionKernel
from autotuner.core.columns import Floats
from autotuner.core.kernels import AttentionLaw, FusedPass
from research.kernel_tables import Speed, attention_error, load_attention_law, load_speeds

TRUSTED_ERROR = 0.05  # relative errors count squared below it and linearly above: bars were read by eye

BACKWARD_SHARE = 0.75
"""Backward over forward product share where only both together were measured: FlashAttention 1 reaches 25 to 35 % of
the peak backward and 30 to 50 % forward (arXiv 2307.08691, section 1)."""

BACKWARD_SOFTMAX = 2.0
"""Backward over forward cost of a score outside the products: the exponential again, and the gradient through it.

Fitted apart, the ratio was 1.9 for FlashAttention 3 on an H100 and 2.2 for FlashAttention 2 on an A100.
"""

# least, first guess, most
SHARE, SOFTMAX_FLOP, OVERHEAD_KEYS = (0.05, 0.6, 1.0), (1.0, 80.0, 1000.0), (5.0, 100.0, 600.0)


def fit(speeds: Sequence[Speed], kernel: AttentionKernel, law: AttentionLaw) -> AttentionLaw:
    """The law with this kernel's constants at the least error on these speeds."""
    apart = any(speed.direction != "both" for speed in speeds)
    ranges = (SHARE, OVERHEAD_KEYS, *((SHARE, OVERHEAD_KEYS, SOFTMAX_FLOP) if apart else ()))
    low, start, high = np.log(ranges).T

    def law_with(logarithms: Floats) -> AttentionLaw:
        # the exponential of a bound's logarithm may lie beyond it by a rounding
        values = np.minimum(np.exp(logarithms), np.array(ranges)[:, 2]).tolist()
        share, overhead, backward_share, backward_overhead, softmax = (
            values if apart else (*values, BACKWARD_SHARE * values[0], values[1], 0.0)
        )
        forward = FusedPass(product_share=share, softmax_flop_per_score=softmax, overhead_keys=overhead)
        backward = FusedPass(
            product_share=backward_share,
            softmax_flop_per_score=BACKWARD_SOFTMAX * softmax,
            overhead_keys=backward_overhead,
        )
        return replace(law, fused={kernel: (forward, backward)})

    def error(logarithms: Floats) -> Floats:
        return np.log1p(attention_error(speeds, kernel, law_with(logarithms)))

    return law_with(least_squares(error, start, bounds=(low, high), loss="soft_l1", f_scale=TRUSTED_ERROR).x)


def left_out_error(speeds: Sequence[Speed], kernel: AttentionKernel, law: AttentionLaw) -> Floats:
    """Error of each row by constants that no bar of its panel helped to fit."""
    errors = []
    for panel in sorted({speed.panel for speed in speeds}):
        fitted = fit([speed for speed in speeds if speed.panel != panel], kernel, law)
        errors.append(attention_error([speed for speed in speeds if speed.panel == panel], kernel, fitted))
    return np.concatenate(errors)


def report() -> Iterator[str]:
    """Constants and errors of every device and kernel in the table."""
    for name in ("a100-80gb", "h100-sxm"):
        law = load_attention_law(name)
        for kernel in AttentionKernel:
            if speeds := load_speeds(name, kernel):
                fitted = fit(speeds, kernel, law)
                yield f"{name} {kernel}, {len(speeds)} rows"
                yield from (f"  {_constants(one_pass)}" for one_pass in fitted.fused[kernel])
                yield f"  fitted   {_summary(attention_error(speeds, kernel, fitted))}"
                yield f"  left out {_summary(left_out_error(speeds, kernel, law))}"


def _constants(one: FusedPass) -> str:
    return (
        f"product_share = {one.product_share:.3g}, softmax_flop_per_score = {one.softmax_flop_per_score:.3g}, "
        f"overhead_keys = {one.overhead_keys:.3g}"
    )


def _summary(error: Floats) -> str:
    median, p90 = np.quantile(np.abs(error), (0.5, 0.9))
    return f"median {median:.3f} p90 {p90:.3f}"


if __name__ == "__main__":
    print("\n".join(report()))  # noqa: T201  # a benchmark prints its result
